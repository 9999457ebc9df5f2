"""The inspector's page, its API, and the queue of calls that wait for a person's approval.

The page itself contains no data, so anyone who reaches the port may load it. Everything it shows
comes from `/inspector/api/…`, which `auth.py` opens only for the admin key or the token that was
made when the gateway started. Client keys do not open it.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from functools import cache
from importlib.resources import files
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct, structs, to_builtins

from .._util import encode_json, random_id
from ..errors import UsageError
from ..observe.inspector.client import API_ROOT, INSPECTOR_ROOT
from ..observe.inspector.recorder import RequestRecorder
from ..observe.inspector.request_log import RequestSummary
from ..observe.inspector.request_view import (
    SAMPLE_TOOLS,
    PlaygroundInput,
    list_dialects,
    parse_text,
)
from ..store.base import Store
from ..types import Failure, Trust
from .http import Refused
from .request_limits import read_json

_Kind = TypeVar("_Kind")

if TYPE_CHECKING:
    from .app import Gateway
    from .routes import Handler, RequestContext

_POLL_INTERVAL = 0.2
_PING_INTERVAL = 10.0
_MAX_WAIT = 30.0
ApprovalAnswer = Literal["yes", "always", "no", "withdrawn"]
_QUEUE_KEY = "approvals"
_MAX_PENDING = 200
_MAX_LIFETIME = 3600.0
_HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font")),
            "img-src 'self' data:",
            *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_WIRES = {
    "openai_chat": "OpenAI Chat",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "ollama": "Ollama",
    "gemini": "Gemini",
}


class InspectorRoutes:
    """Serves the inspector."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._approvals = ApprovalQueue(gateway.store)
        self.routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", f"{API_ROOT}about", self._describe_gateway),
            ("GET", f"{API_ROOT}requests", self._list_requests),
            ("GET", f"{API_ROOT}requests/(?P<key>.+)", self._show_request),
            ("GET", f"{API_ROOT}live", self._stream_changes),
            ("GET", f"{API_ROOT}approvals", self._list_approvals),
            ("POST", f"{API_ROOT}approvals", self._add_approval),
            ("GET", rf"{API_ROOT}approvals/(?P<id>\w+)", self._get_answer),
            ("POST", rf"{API_ROOT}approvals/(?P<id>\w+)", self._answer),
            ("POST", f"{API_ROOT}parse", self._parse_text),
            ("GET", rf"{INSPECTOR_ROOT}(?P<name>[\w.\-]+)", self._send_file),
        )

    @property
    def _recorder(self) -> RequestRecorder:
        recorder = self._gateway.recorder
        assert recorder, "access is denied while the inspector is off"
        return recorder

    # The page.

    async def send_page(self, context: RequestContext) -> None:
        await self._send_static(context, "index.html")

    async def _send_file(self, context: RequestContext, match: re.Match[str]) -> None:
        await self._send_static(context, match["name"])

    async def _send_static(self, context: RequestContext, name: str) -> None:
        content = load_page_files().get(name)
        if content is None:
            raise Refused(Failure("not_found", f"the inspector has no file {name!r}", 404))
        context.response.headers |= _HEADERS
        content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        await context.response.send_whole(200, content, f"{content_type}; charset=utf-8")

    # Requests.

    async def _describe_gateway(self, context: RequestContext, _: re.Match[str]) -> None:
        catalog = self._gateway.catalog
        about = {
            "models": catalog.list_names(),
            "default_model": catalog.default_model,
            "dialects": list_dialects(),
            "trust": list(get_args(Trust)),
            "wires": _WIRES,
            "samples": SAMPLE_TOOLS,
            "max_requests": self._gateway.config.inspector.requests,
        }
        await _send_json(context, about)

    async def _list_requests(self, context: RequestContext, _: re.Match[str]) -> None:
        after = _read_number(context, "after")
        new = await self._recorder.list_summaries(after)
        await _send_json(context, {"requests": to_builtins(new), "next": _last_change(new, after)})

    async def _show_request(self, context: RequestContext, match: re.Match[str]) -> None:
        key = match["key"]
        rendered = await self._recorder.render_request(key)
        if rendered is None:
            limit = self._gateway.config.inspector.requests
            problem = f"the request {key[:100]!r} is not available; only the last {limit} are kept"
            raise Refused(Failure("not_found", problem, 404))
        if "download" in parse_qs(context.request.query):
            name = re.sub(r"[^\w\-]", "", key, flags=re.ASCII)
            context.response.headers["content-disposition"] = f'attachment; filename="{name}.json"'
        await _send_json(context, rendered)

    async def _stream_changes(self, context: RequestContext, _: re.Match[str]) -> None:
        """Stream changes as they happen, each as a line of JSON."""
        # Once the body is read, a closed connection cancels this handler.
        await context.request.read_body(0)
        await context.response.begin(200, "application/x-ndjson")
        if context.request.method == "HEAD":
            await context.response.end()
            return
        after = _read_number(context, "after")
        known_approvals: list[Any] | None = None
        line: dict[str, Any] = {"epoch": self._recorder.epoch}
        sent_at = perf_counter()
        known: dict[str, RequestSummary] = {}
        # After a reload of the configuration, the page must authorize again.
        access = self._gateway.access
        end = sent_at + self._gateway.live_seconds
        while (
            self._gateway.access is access
            and not self._gateway.is_stopping
            and perf_counter() < end
        ):
            summaries = await self._recorder.list_summaries(after)
            states = {one.key: _without_elapsed_time(one) for one in summaries}
            if new := [one for one in summaries if known.get(one.key) != states[one.key]]:
                after = _last_change(new, after)
                line |= {"requests": to_builtins(new), "next": after}
            known = states
            pending = to_builtins(await self._approvals.list_pending())
            if pending != known_approvals:
                line["approvals"] = known_approvals = pending
            if line or perf_counter() - sent_at > _PING_INTERVAL:
                line, sent_at, data = {}, perf_counter(), encode_json(line) + b"\n"
                await context.response.send_chunk(data, sent_at)
            await asyncio.sleep(_POLL_INTERVAL)
        await context.response.end()

    # Approvals.

    async def _list_approvals(self, context: RequestContext, _: re.Match[str]) -> None:
        pending = await self._approvals.list_pending()
        await _send_json(context, {"approvals": to_builtins(pending)})

    async def _add_approval(self, context: RequestContext, _: re.Match[str]) -> None:
        approval = await self._approvals.add(await self._read_value(context, SubmittedApproval))
        await _send_json(context, to_builtins(approval))

    async def _get_answer(self, context: RequestContext, match: re.Match[str]) -> None:
        """Send the answer as soon as there is one, or None after the requested time."""
        longest = min(_MAX_WAIT, self._gateway.live_seconds)
        deadline = perf_counter() + min(_read_number(context, "wait"), longest)
        answer = await self._approvals.get_answer(match["id"])
        while answer is None and perf_counter() < deadline and not self._gateway.is_stopping:
            await asyncio.sleep(_POLL_INTERVAL)
            answer = await self._approvals.get_answer(match["id"])
        await _send_json(context, {"answer": answer})

    async def _answer(self, context: RequestContext, match: re.Match[str]) -> None:
        given = await self._read_value(context, _GivenAnswer)
        valid_answer = await self._approvals.answer(match["id"], given.answer)
        if valid_answer is None:
            problem = "this approval request was already answered, or has expired"
            raise Refused(Failure("not_found", problem, 404))
        await _send_json(context, {"answer": valid_answer})

    # The playground.

    async def _parse_text(self, context: RequestContext, _: re.Match[str]) -> None:
        pasted = await self._read_value(context, PlaygroundInput)
        try:
            parsed = await asyncio.to_thread(parse_text, pasted)
        except UsageError as problem:
            raise Refused(Failure("bad_request", str(problem), 400)) from None
        await _send_json(context, parsed)

    async def _read_value(self, context: RequestContext, kind: type[_Kind]) -> _Kind:
        gateway = self._gateway
        body = await read_json(context.request, gateway.config.limits, gateway.worker)
        try:
            return msgspec.convert(body, kind)
        except msgspec.ValidationError as problem:
            raise Refused(Failure("bad_request", str(problem), 400)) from None


class _GivenAnswer(Struct, frozen=True):
    answer: ApprovalAnswer


async def _send_json(context: RequestContext, value: Any) -> None:
    context.response.headers |= _HEADERS
    await context.response.send_whole(200, encode_json(value))


@cache
def load_page_files() -> dict[str, bytes]:
    """Return the content of the page's files by name."""
    folder = files("toolspeak.observe.inspector") / "static"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def _read_number(context: RequestContext, name: str) -> float:
    value = parse_qs(context.request.query).get(name, ("0",))[0]
    try:
        return max(0.0, float(value))
    except ValueError:
        raise Refused(Failure("bad_request", f"`{name}` must be a number", 400)) from None


def _last_change(new: list[RequestSummary], after: float) -> float:
    """Return the time up to which the client knows all finished requests."""
    return max((one.changed_at for one in new if one.is_finished), default=after)


def _without_elapsed_time(summary: RequestSummary) -> RequestSummary:
    """Return a summary without its elapsed time, to tell whether the request has changed."""
    return summary if summary.is_finished else structs.replace(summary, ms=0.0)


# Approvals.


class SubmittedApproval(Struct, frozen=True, kw_only=True):
    """A call for which an agent requests approval."""

    tool: str
    arguments: dict[str, Any] = {}
    source: str = ""
    agent: str = ""
    expires_at: float
    """Seconds since 1970; unanswered by then means no."""
    can_always: bool = False
    is_echo: bool = False
    """The model may only repeat a call that a tool result contains."""
    secrets: tuple[str, ...] = ()
    """Descriptions of the secrets that the call would receive."""


class PendingApproval(SubmittedApproval, frozen=True, kw_only=True):
    """An approval request in the queue."""

    id: str
    created_at: float


_APPROVAL_DECODER = msgspec.json.Decoder(PendingApproval)


class ApprovalQueue:
    """The approval requests of all agents, and their answers.

    An agent adds a request and polls for its answer; the page lists what is pending and answers.
    All of it is in the store, so any worker can serve either side. The first answer counts.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, request: SubmittedApproval) -> PendingApproval:
        fields = structs.asdict(request)
        fields["expires_at"] = min(request.expires_at, time() + _MAX_LIFETIME)
        approval = PendingApproval(id=f"ask_{random_id()}", created_at=time(), **fields)
        data = msgspec.json.encode(approval)
        await self._store.push(_QUEUE_KEY, data, max_items=_MAX_PENDING, seconds=_MAX_LIFETIME)
        return approval

    async def list_pending(self) -> list[PendingApproval]:
        """Return the unanswered requests, oldest first."""
        return [one for one in await self._list_current() if not await self.get_answer(one.id)]

    async def answer(self, identity: str, answer: ApprovalAnswer) -> ApprovalAnswer | None:
        """Answer a request; return the answer that counts, or None if there is no such request."""
        approval = {one.id: one for one in await self._list_current()}.get(identity)
        if approval is None:
            return None
        if earlier := await self.get_answer(identity):
            return earlier
        if answer == "always" and not approval.can_always:
            answer = "yes"
        key = _answer_key(identity)
        await self._store.push(key, answer.encode(), max_items=_MAX_PENDING, seconds=_MAX_LIFETIME)
        return await self.get_answer(identity)

    async def _list_current(self) -> list[PendingApproval]:
        """Return the requests that have not expired, oldest first."""
        all_ = map(_APPROVAL_DECODER.decode, reversed(await self._store.list_items(_QUEUE_KEY)))
        return [one for one in all_ if one.expires_at > time()]

    async def get_answer(self, identity: str) -> ApprovalAnswer | None:
        # The store lists the newest first.
        answers = await self._store.list_items(_answer_key(identity))
        return msgspec.convert(answers[-1].decode(), ApprovalAnswer) if answers else None


def _answer_key(identity: str) -> str:
    return f"approval:{identity}"
