"""One request as the page, `toolspeak explain` and the download show it, with secrets masked.

The playground shows a pasted text in the same way.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct, structs, to_builtins

from ...calls.tools import as_tools
from ...config.addresses import is_loopback
from ...config.settings import PUBLIC_HEADERS, mask_secret, mask_url
from ...dialects import DIALECTS, Parser, render_calls
from ...engine.outcome import OUTCOMES
from ...errors import ToolspeakError
from ...events import CallStart, fold
from ...notes import NOTES
from ...types import Failure, Message, Note, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from ...upstream.record import AttemptRecord, RequestRecord
from ...wires import get_wire
from ...wires.framing import decode_json
from .masking import Masker, Span, decode_escapes, replace_surrogates
from .reply_text import (
    Highlight,
    HighlightFinder,
    ReplyText,
    encode_highlights,
    read_reply_text,
    utf16_offsets,
)
from .request_log import RequestSummary, summarize_request, to_milliseconds

_REASON_TEXTS: dict[str, str] = {
    **OUTCOMES,
    "known": "the model is not asked: the user's message contains the whole call",
    "decided": "the model is not asked again: its decisions so far determine the calls",
    "decision": "a small model makes one decision at a time",
    "tool selection": "the model first selects the tools it needs",
    "fallback": "the previous upstream failed",
    "unselected tool": "the model called a tool that was not selected; all tools are offered",
    "field rejected": "the upstream rejected a field; it was dropped or renamed",
    "tools rejected": "the upstream rejected the tools; the prompt describes them instead",
}
"""Describes the outcomes of attempts, and the reasons for further attempts."""
_VISIBLE_HEADERS = PUBLIC_HEADERS | {
    *("accept-encoding", "accept-language", "cache-control", "connection", "content-length"),
    *("host", "retry-after", "traceparent", "transfer-encoding", "vary", "x-request-id"),
}
_VISIBLE_PREFIXES = ("x-stainless-", "x-toolspeak")
_SAMPLE_CALL = ToolCall(id="a1b2c3d4e", name="get_weather", arguments={"city": "Oslo", "days": 3})


class RequestView:
    """Renders one request. `secrets` of the gateway itself are masked wherever they occur."""

    def __init__(self, record: RequestRecord, secrets: Iterable[str] = ()) -> None:
        assert record.capture, "only captured requests are shown"
        self._record = record
        self._capture = capture = record.capture
        servers = (attempt.server for attempt in record.attempts)
        keys = (secret for server in servers for secret in server.secrets())
        self._masker = Masker((*secrets, *keys))
        self._replies = list(map(_read_attempt, record.attempts))
        is_stream = "json" not in record.response_headers.get("content-type", "stream")
        self._response = read_reply_text(record.wire, capture, is_stream=is_stream)
        self._body = _decode_text(capture.body)
        # A secret that is recognized in one text is masked in all of them.
        replies = (reply.text for reply in self._replies)
        for text in (self._body, *replies, self._response.text, capture.target):
            self._masker.learn(text)

    def render(self) -> dict[str, Any]:
        record, capture, masker = self._record, self._capture, self._masker
        view = {
            "summary": to_builtins(mask_summary(summarize_request(record), masker)),
            "request": {
                "method": record.method,
                "target": masker.mask_text(_mask_target(capture.target)),
                "headers": _mask_headers(capture.headers),
                "body": masker.mask_text(_indent_json(self._body)),
                "size": len(capture.body),
            },
            "curl": self._render_curl(),
            "attempts": [
                self._render_attempt(attempt, reply)
                for attempt, reply in zip(record.attempts, self._replies, strict=True)
            ],
            "response": self._render_response(),
            "calls": self._render_calls(record.reply),
            "notes": self._render_notes(dict.fromkeys(record.notes)),
            "failure": self._render_failure(record.failure),
            "usage": to_builtins(record.reply.usage) if record.reply else None,
        }
        return {**masker.mask_known(view), "masked_secrets": masker.masked_count}

    def _render_attempt(self, attempt: AttemptRecord, received: ReplyText) -> dict[str, Any]:
        masker, reply = self._masker, attempt.reply or Reply()
        secrets = masker.find_secrets(received.text)
        text = masker.mask_text(received.text)
        raw = masker.mask_raw_json(received.mask_raw(secrets))
        highlights = self._find_highlights(attempt, received, secrets)
        return {
            "reason": attempt.reason,
            "reason_text": _REASON_TEXTS.get(attempt.reason, attempt.reason),
            "is_retry": attempt.reason in OUTCOMES,
            "start_ms": self._milliseconds_after_start(attempt.started),
            "first_byte_ms": self._milliseconds_after_start(attempt.first_byte),
            "end_ms": self._milliseconds_after_start(attempt.ended),
            "resends": attempt.resends,
            "upstream": attempt.server.name,
            "address": mask_url(attempt.server.base_url),
            "wire": attempt.server.wire,
            "path": attempt.path,
            "model": masker.mask_text(attempt.model),
            "plan": to_builtins(attempt.plan),
            **self._render_prompt(attempt),
            "body": masker.mask_text(_indent_json(_decode_text(attempt.request_body))),
            "status": attempt.status,
            "text": text,
            "raw": raw,
            "chunks": _render_chunks(received, text, raw),
            "highlights": encode_highlights(highlights, text, masker),
            "calls": self._render_calls(reply),
            "rejected": [masker.mask_value(to_builtins(one)) for one in reply.rejected],
            "notes": self._render_notes(reply.notes),
            "outcome": attempt.outcome,
            "outcome_text": _REASON_TEXTS.get(attempt.outcome, attempt.outcome),
            "stop_reason": reply.stop_reason,
            "failure": self._render_failure(attempt.failure),
            "usage": to_builtins(reply.usage),
        }

    def _find_highlights(
        self, attempt: AttemptRecord, received: ReplyText, secrets: list[Span]
    ) -> list[Highlight]:
        finder = HighlightFinder(received.text)
        for index, (start, end, name) in enumerate(received.calls):
            finder.add(Highlight(start, end, "call", name, f"call to {name}", index))
        for index, (start, end) in enumerate(received.reasoning):
            finder.add(Highlight(start, end, "reasoning", "reasoning", "", index))
        for index, (start, end) in enumerate(secrets):
            finder.add(Highlight(start, end, "secret", "masked secret", "", index))
        if not received.reasoning:
            parser = Parser(reasoning_open=attempt.plan.reasoning_open)
            finder.add_reasoning(fold([*parser.feed(received.text), *parser.finish()]))
        if attempt.reply:
            finder.add_reply(attempt.reply)
        return finder.find_nested()

    def _render_prompt(self, attempt: AttemptRecord) -> dict[str, Any]:
        """Return the messages as the upstream received them."""
        try:
            request = get_wire(attempt.server.wire).decode_request(
                decode_json(attempt.request_body), model=attempt.model, stream=False
            )
        except ToolspeakError:
            return {"prompt": [], "tools": 0}
        return {
            "prompt": [self._render_message(message) for message in request.messages],
            "tools": len(request.tools or ()),
        }

    def _milliseconds_after_start(self, moment: float | None) -> float | None:
        """Return the milliseconds since the request started."""
        return None if moment is None else to_milliseconds(moment - self._record.started)

    def _render_message(self, message: Message) -> dict[str, str]:
        text = "\n".join(map(_part_text, message.parts))
        return {"role": message.role, "text": self._masker.mask_text(text)}

    def _render_response(self) -> dict[str, Any]:
        record, received, masker = self._record, self._response, self._masker
        body = masker.mask_raw_json(received.mask_raw(masker.find_secrets(received.text)))
        to_utf16 = utf16_offsets(body)
        return {
            "status": record.status if record.ended else 0,
            "headers": _mask_headers(record.response_headers),
            "body": body,
            "chunks": [
                {"ms": to_milliseconds(chunk.seconds), "end": to_utf16(chunk.raw_end)}
                for chunk in received.chunks
            ],
            "size": self._capture.size,
        }

    def _render_curl(self) -> str:
        """Return a command that repeats the request, on this host if the client used loopback."""
        headers = self._capture.headers
        host = headers.get("host", "")
        host = host if is_loopback(host.rpartition(":")[0] or host) else "GATEWAY"
        address = f"http://{host}{self._masker.mask_text(_mask_target(self._capture.target))}"
        words = ["curl", "-gsN" if self._record.is_stream else "-gs", address]
        for name, value in headers.items():
            if name in PUBLIC_HEADERS and name not in ("user-agent", "accept"):
                words += ["-H", f"{name}: {value}"]
        line = shlex.join(words)
        if {"authorization", "x-api-key", "x-goog-api-key"} & headers.keys():
            line += ' -H "authorization: Bearer $KEY"'
        return f"{line} --data-raw {shlex.quote(self._masker.mask_text(self._body))}"

    def _render_calls(self, reply: Reply | None) -> list[dict[str, Any]]:
        if reply is None:
            return []
        mask = self._masker.mask_value
        return [_render_call(call, mask(call.arguments), call.dialect) for call in reply.calls]

    def _render_notes(self, notes: Iterable[Note]) -> list[dict[str, str]]:
        return [explain_note(self._masker.mask_value(to_builtins(note))) for note in notes]

    def _render_failure(self, failure: Failure | None) -> Any:
        return self._masker.mask_value(to_builtins(failure)) if failure else None


def mask_summary(summary: RequestSummary, masker: Masker) -> RequestSummary:
    names = ("user_message", "failure", "model", "upstream_model")
    masked = {name: masker.mask_text(replace_surrogates(getattr(summary, name))) for name in names}
    masked["target"] = masker.mask_text(_mask_target(replace_surrogates(summary.target)))
    calls = [masker.mask_text(replace_surrogates(name)) for name in summary.calls]
    return structs.replace(summary, calls=calls, **masked)


def _render_call(call: ToolCall, arguments: Any, dialect: str | None) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": arguments, "dialect": dialect}


def explain_note(note: dict[str, Any]) -> dict[str, str]:
    """Return a note with the meaning of its code."""
    fields = {name: str(note[name]) for name in ("code", "message", "where")}
    return {**fields, "meaning": NOTES.get(fields["code"], "")}


def _read_attempt(attempt: AttemptRecord) -> ReplyText:
    capture = attempt.response_capture
    assert capture, "all attempts of a captured request are captured"
    return read_reply_text(attempt.server.wire, capture, is_stream=attempt.is_stream)


def _render_chunks(received: ReplyText, text: str, raw: str) -> list[dict[str, Any]]:
    to_utf16, raw_to_utf16 = utf16_offsets(text), utf16_offsets(raw)
    return [
        {
            "ms": to_milliseconds(chunk.seconds),
            "end": to_utf16(chunk.end),
            "raw_end": raw_to_utf16(chunk.raw_end),
        }
        for chunk in received.chunks
    ]


def _part_text(part: Part) -> str:
    match part:
        case Text() | Reasoning():
            return part.text
        case ToolCall():
            return f"{part.name}({part.input})"
        case ToolResult():
            return part.text
        case _:
            return f"[{type(part).__name__.lower()}]"


def _mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Mask the values of all headers that are not known to be harmless."""
    return {
        name: value
        if name in _VISIBLE_HEADERS or name.startswith(_VISIBLE_PREFIXES)
        else mask_secret(value)
        for name, value in headers.items()
    }


def _mask_target(target: str) -> str:
    """Mask API keys in the query."""
    address = urlsplit(target)
    if not address.query:
        return target
    pairs = parse_qsl(address.query, keep_blank_values=True)
    query = urlencode([(key, "KEY" if key == "key" else value) for key, value in pairs])
    return urlunsplit(address._replace(query=query))


def _indent_json(text: str) -> str:
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.MsgspecError:
        return text


def _decode_text(data: bytes) -> str:
    """Decode JSON text, without the escapes that only make it harder to read."""
    return decode_escapes(data.decode("utf-8", "replace"))


# The playground.


class PlaygroundInput(Struct, frozen=True, kw_only=True):
    """A pasted text, and the options to parse it with."""

    text: str
    tools: Any = None
    trust: Literal["strict", "standard", "lenient"] = "standard"
    dialect: str = "auto"


def parse_text(pasted: PlaygroundInput) -> dict[str, Any]:
    """Return the calls and notes of a text, and where they are in it."""
    tools = as_tools(pasted.tools) or None
    parser = Parser(dialect=pasted.dialect, tools=tools, trust=pasted.trust)
    events = [*parser.feed(pasted.text), *parser.finish()]
    reply = fold(events)
    dialects = {event.id: event.dialect for event in events if isinstance(event, CallStart)}
    finder = HighlightFinder(pasted.text)
    finder.add_reasoning(reply)
    finder.add_reply(reply)
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "dialect": reply.dialect,
        "calls": [
            _render_call(call, call.arguments, dialects.get(call.id)) for call in reply.calls
        ],
        "rejected": to_builtins(reply.rejected),
        "notes": [explain_note(to_builtins(note)) for note in reply.notes],
        "highlights": encode_highlights(finder.find_nested(), pasted.text),
    }


def list_dialects() -> list[dict[str, str]]:
    """Return the dialects that can be chosen, each with an example."""
    tools = as_tools([SAMPLE_TOOLS[0]["tool"]])
    return [
        {
            "name": dialect.name,
            "models": dialect.description,
            "example": render_calls(dialect, [_SAMPLE_CALL], tools=tools),
        }
        for dialect in DIALECTS.values()
    ]


def _sample_tool(
    name: str, about: str, properties: dict[str, Any], required: list[str], result: str
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"tool": {"type": "function", "function": function}, "result": result}


_DAYS = {"type": "integer", "description": "How many days ahead."}
_CURRENCY = {"type": "string", "enum": ["EUR", "NOK", "USD"]}
SAMPLE_TOOLS = [
    _sample_tool(
        "get_weather",
        "The weather in a city.",
        {"city": {"type": "string"}, "days": _DAYS},
        ["city"],
        '{"temperature": -5, "sky": "light snow"}',
    ),
    _sample_tool(
        "search_files",
        "Find files whose content matches a word.",
        {"word": {"type": "string"}, "folder": {"type": "string", "default": "."}},
        ["word"],
        '["docs/walk.md", "README.md"]',
    ),
    _sample_tool(
        "convert_currency",
        "Convert an amount of money.",
        {"amount": {"type": "number"}, "from": _CURRENCY, "to": _CURRENCY},
        ["amount", "from", "to"],
        '{"amount": 11.6}',
    ),
]
"""Tools to try, with sample results."""
