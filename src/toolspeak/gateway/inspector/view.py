"""A trace as the page, `toolspeak explain` and a download show it: plain values, and no secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import structs, to_builtins

from ...bridge.outcome import KINDS
from ...dialects import Parser
from ...errors import ToolspeakError
from ...events import fold
from ...notes import NOTES
from ...types import (
    Failure,
    Message,
    Note,
    Part,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolResult,
)
from ...wires import wire_of
from ...wires.framing import decode_json
from ..hosts import is_loopback
from ..settings import HARMLESS, hidden, hidden_address
from ..upstream import secrets_at
from .covering import Covering, plain, sendable
from .places import Place, Places, in_utf16, spans_of
from .said import Said, read
from .trace import Summary, Trace, Turn

OUTCOMES: dict[str, str] = {
    **KINDS,
    "known": "what the model was to say was clear without asking it",
    "preparing": "what the model is asked before the request itself",
    "fallback": "the upstream before has failed",
    "tools refused": "the upstream takes no tools: the model is told of them in the prompt",
}
"""Why a model was asked again, or what a reply came to."""
_PLAIN_HEADERS = HARMLESS | {
    *("accept-encoding", "accept-language", "cache-control", "connection", "content-length"),
    *("host", "retry-after", "traceparent", "transfer-encoding", "vary", "x-request-id"),
}
_PLAIN_PREFIXES = ("x-stainless-", "x-toolspeak")


class View:
    """Shows one trace. `known`: secrets of the gateway itself, which nobody may see."""

    def __init__(self, trace: Trace, known: Iterable[str] = ()) -> None:
        self._trace = trace
        endpoints = (turn.endpoint for turn in trace.turns)
        asked = (secret for endpoint in endpoints for secret in secrets_at(endpoint))
        self._covering = Covering((*known, *asked))
        self._replies = [
            read(turn.endpoint.wire, turn.heard, is_stream=turn.is_stream) for turn in trace.turns
        ]
        is_stream = "json" not in trace.answered.get("content-type", "stream")
        self._received = read(trace.wire, trace.received, is_stream=is_stream)
        self._body = _text(trace.body)
        # One that shows itself in one place is to be covered in all others.
        texts = (*(said.text for said in self._replies), self._received.text, trace.target)
        for text in (self._body, *texts):
            self._covering.learn(text)

    def shown(self) -> dict[str, Any]:
        """All of it."""
        trace, cover = self._trace, self._covering
        shown = {
            "summary": to_builtins(discreet(trace.summary, cover)),
            "sent": {
                "method": trace.method,
                "target": cover.text(_target(trace.target)),
                "headers": _headers(trace.headers),
                "body": cover.text(_pretty(self._body)),
                "size": len(trace.body),
            },
            "curl": self._curl(),
            "turns": [
                self._turn(turn, said)
                for turn, said in zip(trace.turns, self._replies, strict=True)
            ],
            "received": self._answer(),
            "calls": self._calls(trace.reply),
            "notes": self._notes(dict.fromkeys(trace.notes)),
            "failure": self._failure(trace.failure),
            "usage": to_builtins(trace.reply.usage) if trace.reply else None,
        }
        return {**cover.known(shown), "hidden": cover.met}

    def _turn(self, turn: Turn, said: Said) -> dict[str, Any]:
        cover, reply = self._covering, turn.reply or Reply()
        secrets = cover.spans(said.text)
        sent = _text(turn.sent)
        shown = cover.text(said.text)
        raw = cover.bytes(said.covered_raw(secrets))
        place, raw_place = in_utf16(shown), in_utf16(raw)
        return {
            "why": turn.why,
            "why_text": OUTCOMES.get(turn.why, turn.why),
            "at_ms": _ms(turn.at),
            "first_ms": _ms(turn.first),
            "ms": _ms(turn.ended),
            "retries": turn.retries,
            "upstream": turn.endpoint.name,
            "address": hidden_address(turn.endpoint.base_url),
            "wire": turn.endpoint.wire,
            "path": turn.path,
            "model": cover.text(turn.model),
            "plan": to_builtins(turn.plan),
            **self._prompt(turn),
            "body": cover.text(_pretty(sent)),
            "status": turn.status,
            "text": shown,
            "raw": raw,
            "chunks": [
                {
                    "ms": _ms(piece.seconds),
                    "end": place(piece.end),
                    "raw_end": raw_place(piece.raw_end),
                }
                for piece in said.pieces
            ],
            "spans": spans_of(self._places(turn, said, secrets), shown, cover),
            "calls": self._calls(reply),
            "rejected": [cover.value(to_builtins(one)) for one in reply.rejected],
            "notes": self._notes(reply.notes),
            "outcome": turn.outcome,
            "outcome_text": OUTCOMES.get(turn.outcome, turn.outcome),
            "stop_reason": reply.stop_reason,
            "failure": self._failure(turn.failure),
            "usage": to_builtins(reply.usage),
        }

    def _places(self, turn: Turn, said: Said, secrets: list[tuple[int, int]]) -> list[Place]:
        places = Places(said.text)
        for index, (start, end, name) in enumerate(said.calls):
            places.add(Place(start, end, "call", name, f"a call of {name}", index))
        for index, (start, end) in enumerate(said.thoughts):
            places.add(Place(start, end, "reasoning", "reasoning", "what the model thought", index))
        for index, (start, end) in enumerate(secrets):
            places.add(Place(start, end, "secret", "secret", "a secret, covered", index))
        if not said.thoughts:
            parser = Parser(reasoning_open=turn.plan.reasoning_open)
            places.reasoning(fold([*parser.feed(said.text), *parser.finish()]))
        if turn.reply:
            places.calls((call.name, call.raw) for call in turn.reply.calls)
            places.rejected(turn.reply.rejected)
            places.notes(turn.reply.notes)
        return places.all()

    def _prompt(self, turn: Turn) -> dict[str, Any]:
        """The conversation as the upstream got it."""
        try:
            request = wire_of(turn.endpoint.wire).decode_request(
                decode_json(turn.sent), model=turn.model, stream=False
            )
        except ToolspeakError:
            return {"prompt": [], "tools": 0}
        return {
            "prompt": [self._message(message) for message in request.messages],
            "tools": len(request.tools or ()),
        }

    def _message(self, message: Message) -> dict[str, str]:
        text = "\n".join(map(_words, message.parts))
        return {"role": message.role, "text": self._covering.text(text)}

    def _answer(self) -> dict[str, Any]:
        trace, said, cover = self._trace, self._received, self._covering
        body = cover.bytes(said.covered_raw(cover.spans(said.text)))
        place = in_utf16(body)
        return {
            "status": trace.status,
            "headers": _headers(trace.answered),
            "body": body,
            "chunks": [
                {"ms": _ms(piece.seconds), "end": place(piece.raw_end)} for piece in said.pieces
            ],
            "size": trace.received.size,
        }

    def _curl(self) -> str:
        """What asks the same again: here, whatever name the client had for it."""
        trace = self._trace
        host = trace.headers.get("host", "")
        host = host if is_loopback(host.rpartition(":")[0] or host) else "GATEWAY"
        address = f"http://{host}{self._covering.text(_target(trace.target))}"
        words = ["curl", "-gsN" if trace.stream else "-gs", address]
        for name, value in trace.headers.items():
            if name in HARMLESS and name not in ("user-agent", "accept"):
                words += ["-H", f"{name}: {value}"]
        line = shlex.join(words)
        if {"authorization", "x-api-key", "x-goog-api-key"} & trace.headers.keys():
            line += ' -H "authorization: Bearer $KEY"'
        return f"{line} --data-raw {shlex.quote(self._covering.text(self._body))}"

    def _calls(self, reply: Reply | None) -> list[dict[str, Any]]:
        if reply is None:
            return []
        return [
            {
                "id": call.id,
                "name": call.name,
                "arguments": self._covering.value(call.arguments),
                "dialect": reply.dialect if call.raw else None,
            }
            for call in reply.calls
        ]

    def _notes(self, notes: Iterable[Note]) -> list[dict[str, str]]:
        return [told(self._covering.value(to_builtins(note))) for note in notes]

    def _failure(self, failure: Failure | None) -> Any:
        return self._covering.value(to_builtins(failure)) if failure else None


def discreet(summary: Summary, cover: Covering) -> Summary:
    """A summary without secrets."""
    texts = ("target", "asked", "failure", "model", "served")
    said = {name: cover.text(sendable(getattr(summary, name))) for name in texts}
    said["target"] = cover.text(_target(sendable(summary.target)))
    calls = [cover.text(sendable(name)) for name in summary.calls]
    return structs.replace(summary, calls=calls, **said)


def told(note: dict[str, Any]) -> dict[str, str]:
    """A note, with what its code means."""
    fields = {name: str(note[name]) for name in ("code", "message", "where")}
    return {**fields, "meaning": NOTES.get(fields["code"], "")}


def _words(part: Part) -> str:
    match part:
        case Text() | Reasoning():
            return part.text
        case ToolCall():
            return f"{part.name}({part.input})"
        case ToolResult():
            return part.text
        case _:
            return f"[{type(part).__name__.lower()}]"


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by name; what they say only where that is no secret for certain."""
    return {
        name: value if name in _PLAIN_HEADERS or name.startswith(_PLAIN_PREFIXES) else hidden(value)
        for name, value in headers.items()
    }


def _target(target: str) -> str:
    """A path, without the keys that its query may hold."""
    address = urlsplit(target)
    if not address.query:
        return target
    pairs = parse_qsl(address.query, keep_blank_values=True)
    shown = urlencode([(key, "KEY" if key == "key" else value) for key, value in pairs])
    return urlunsplit(address._replace(query=shown))


def _pretty(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.MsgspecError:
        return text


def _text(data: bytes) -> str:
    """JSON as text, without escapes that only hide what it says."""
    return plain(data.decode("utf-8", "replace"))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
