"""A request as the page, `toolspeak explain` and a download show it: plain, and without secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import structs, to_builtins

from ...config.addresses import is_loopback
from ...config.settings import PUBLIC_HEADERS, mask_secret, mask_url
from ...dialects import Parser
from ...engine.outcome import OUTCOMES as REPLY_OUTCOMES
from ...errors import ToolspeakError
from ...events import fold
from ...notes import NOTES
from ...types import Failure, Message, Note, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from ...upstream.errors import endpoint_secrets
from ...upstream.record import AttemptRecord, RequestRecord
from ...wires import get_wire
from ...wires.framing import decode_json
from .highlights import Place, Places, in_utf16, spans_of
from .masking import Covering, plain, sendable
from .reply_text import Said, read
from .summary import Summary, summary_of

OUTCOMES: dict[str, str] = {
    **REPLY_OUTCOMES,
    "known": "what the model was to say was clear without asking it",
    "decided": "the calls, for which the model has made all decisions",
    "preparing": "what the model is asked before the request itself",
    "fallback": "the upstream before has failed",
    "tools refused": "the upstream takes no tools: the model is told of them in the prompt",
}
"""Why a model was asked again, or what a reply came to."""
_PLAIN_HEADERS = PUBLIC_HEADERS | {
    *("accept-encoding", "accept-language", "cache-control", "connection", "content-length"),
    *("host", "retry-after", "traceparent", "transfer-encoding", "vary", "x-request-id"),
}
_PLAIN_PREFIXES = ("x-stainless-", "x-toolspeak")


class View:
    """Shows one request. `known`: secrets of the gateway itself, which nobody may see."""

    def __init__(self, record: RequestRecord, known: Iterable[str] = ()) -> None:
        assert record.capture, "nobody can look at others"
        self._record = record
        self._kept = kept = record.capture
        servers = (question.server for question in record.attempts)
        asked = (secret for server in servers for secret in endpoint_secrets(server))
        self._covering = Covering((*known, *asked))
        self._replies = list(map(_heard, record.attempts))
        is_stream = "json" not in record.response_headers.get("content-type", "stream")
        self._received = read(record.wire, kept, is_stream=is_stream)
        self._body = _text(kept.body)
        # One that shows itself in one place is to be covered in all others.
        texts = (*(said.text for said in self._replies), self._received.text, kept.target)
        for text in (self._body, *texts):
            self._covering.learn(text)

    def shown(self) -> dict[str, Any]:
        """All of it."""
        record, kept, cover = self._record, self._kept, self._covering
        shown = {
            "summary": to_builtins(discreet(summary_of(record), cover)),
            "sent": {
                "method": record.method,
                "target": cover.text(_target(kept.target)),
                "headers": _headers(kept.headers),
                "body": cover.text(_pretty(self._body)),
                "size": len(kept.body),
            },
            "curl": self._curl(),
            "turns": [
                self._turn(question, said)
                for question, said in zip(record.attempts, self._replies, strict=True)
            ],
            "received": self._answer(),
            "calls": self._calls(record.reply),
            "notes": self._notes(dict.fromkeys(record.notes)),
            "failure": self._failure(record.failure),
            "usage": to_builtins(record.reply.usage) if record.reply else None,
        }
        return {**cover.known(shown), "hidden": cover.met}

    def _turn(self, question: AttemptRecord, said: Said) -> dict[str, Any]:
        cover, reply = self._covering, question.reply or Reply()
        secrets = cover.spans(said.text)
        sent = _text(question.request_body)
        shown = cover.text(said.text)
        raw = cover.bytes(said.covered_raw(secrets))
        place, raw_place = in_utf16(shown), in_utf16(raw)
        return {
            "why": question.reason,
            "why_text": OUTCOMES.get(question.reason, question.reason),
            "at_ms": self._ms(question.started),
            "first_ms": self._ms(question.first_byte),
            "ms": self._ms(question.ended),
            "retries": question.retries,
            "upstream": question.server.name,
            "address": mask_url(question.server.base_url),
            "wire": question.server.wire,
            "path": question.path,
            "model": cover.text(question.model),
            "plan": to_builtins(question.plan),
            **self._prompt(question),
            "body": cover.text(_pretty(sent)),
            "status": question.status,
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
            "spans": spans_of(self._places(question, said, secrets), shown, cover),
            "calls": self._calls(reply),
            "rejected": [cover.value(to_builtins(one)) for one in reply.rejected],
            "notes": self._notes(reply.notes),
            "outcome": question.outcome,
            "outcome_text": OUTCOMES.get(question.outcome, question.outcome),
            "stop_reason": reply.stop_reason,
            "failure": self._failure(question.failure),
            "usage": to_builtins(reply.usage),
        }

    def _places(
        self, question: AttemptRecord, said: Said, secrets: list[tuple[int, int]]
    ) -> list[Place]:
        places = Places(said.text)
        for index, (start, end, name) in enumerate(said.calls):
            places.add(Place(start, end, "call", name, f"a call of {name}", index))
        for index, (start, end) in enumerate(said.thoughts):
            places.add(Place(start, end, "reasoning", "reasoning", "what the model thought", index))
        for index, (start, end) in enumerate(secrets):
            places.add(Place(start, end, "secret", "secret", "a secret, covered", index))
        if not said.thoughts:
            parser = Parser(reasoning_open=question.plan.reasoning_open)
            places.reasoning(fold([*parser.feed(said.text), *parser.finish()]))
        if question.reply:
            places.calls((call.name, call.raw) for call in question.reply.calls)
            places.rejected(question.reply.rejected)
            places.notes(question.reply.notes)
        return places.all()

    def _prompt(self, question: AttemptRecord) -> dict[str, Any]:
        """The conversation as the upstream got it."""
        try:
            request = get_wire(question.server.wire).decode_request(
                decode_json(question.request_body), model=question.model, stream=False
            )
        except ToolspeakError:
            return {"prompt": [], "tools": 0}
        return {
            "prompt": [self._message(message) for message in request.messages],
            "tools": len(request.tools or ()),
        }

    def _ms(self, moment: float | None) -> float | None:
        """When that was, counted from when the request began."""
        return None if moment is None else _ms(moment - self._record.started)

    def _message(self, message: Message) -> dict[str, str]:
        text = "\n".join(map(_words, message.parts))
        return {"role": message.role, "text": self._covering.text(text)}

    def _answer(self) -> dict[str, Any]:
        record, said, cover = self._record, self._received, self._covering
        body = cover.bytes(said.covered_raw(cover.spans(said.text)))
        place = in_utf16(body)
        return {
            "status": record.status if record.ended else 0,
            "headers": _headers(record.response_headers),
            "body": body,
            "chunks": [
                {"ms": _ms(piece.seconds), "end": place(piece.raw_end)} for piece in said.pieces
            ],
            "size": self._kept.size,
        }

    def _curl(self) -> str:
        """What asks the same again: here, whatever name the client had for it."""
        headers = self._kept.headers
        host = headers.get("host", "")
        host = host if is_loopback(host.rpartition(":")[0] or host) else "GATEWAY"
        address = f"http://{host}{self._covering.text(_target(self._kept.target))}"
        words = ["curl", "-gsN" if self._record.is_stream else "-gs", address]
        for name, value in headers.items():
            if name in PUBLIC_HEADERS and name not in ("user-agent", "accept"):
                words += ["-H", f"{name}: {value}"]
        line = shlex.join(words)
        if {"authorization", "x-api-key", "x-goog-api-key"} & headers.keys():
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


def _heard(question: AttemptRecord) -> Said:
    assert question.response_capture, "there is one wherever bytes are kept"
    return read(question.server.wire, question.response_capture, is_stream=question.is_stream)


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
        name: value
        if name in _PLAIN_HEADERS or name.startswith(_PLAIN_PREFIXES)
        else mask_secret(value)
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


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
