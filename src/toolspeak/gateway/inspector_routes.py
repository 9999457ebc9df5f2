"""The inspector's page, and the little interface that it uses.

The page itself holds nothing, and whoever reaches the port may have it. All that it shows comes
from `/inspector/api/…`, which `auth.py` opens only to those who show the token that was made when
the gateway started, or the admin key. Keys of clients open nothing here.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from functools import cache
from importlib.resources import files
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import parse_qs

import msgspec
from msgspec import structs, to_builtins

from .. import __version__
from ..errors import UsageError
from ..notes import NOTES
from ..observe.inspector.approvals import ApprovalAnswer, SubmittedApproval
from ..observe.inspector.client import API_ROOT, INSPECTOR_ROOT
from ..observe.inspector.playground import SAMPLE_TOOLS, PlaygroundInput, list_dialects, parse_text
from ..observe.inspector.recorder import RequestRecorder
from ..observe.inspector.request_log import RequestSummary
from ..observe.inspector.request_view import REASON_TEXTS
from ..types import Failure, Trust
from ..wires.framing import encode_json
from .http import Refused

_Kind = TypeVar("_Kind")

if TYPE_CHECKING:
    from .app import Gateway
    from .routes import Handler, RequestContext

_LOOK_EVERY = 0.2
_PING_EVERY = 10.0
_LONGEST_WAIT = 30.0
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
        self.routes: tuple[tuple[str, str, Handler], ...] = (
            ("GET", f"{API_ROOT}about", self._about),
            ("GET", f"{API_ROOT}requests", self._requests),
            ("GET", f"{API_ROOT}requests/(?P<key>.+)", self._request),
            ("GET", f"{API_ROOT}live", self._live),
            ("GET", f"{API_ROOT}approvals", self._approvals),
            ("POST", f"{API_ROOT}approvals", self._ask),
            ("GET", rf"{API_ROOT}approvals/(?P<id>\w+)", self._answered),
            ("POST", rf"{API_ROOT}approvals/(?P<id>\w+)", self._answer),
            ("POST", f"{API_ROOT}parse", self._parse),
            ("GET", rf"{INSPECTOR_ROOT}(?P<name>[\w.\-]+)", self._file),
        )

    @property
    def _recorder(self) -> RequestRecorder:
        recorder = self._gateway.recorder
        assert recorder, "the guard lets nobody in if there is none"
        return recorder

    # The page.

    async def send_page(self, it: RequestContext) -> None:
        """The page itself."""
        await self._send(it, "index.html")

    async def _file(self, it: RequestContext, match: re.Match[str]) -> None:
        await self._send(it, match["name"])

    async def _send(self, it: RequestContext, name: str) -> None:
        content = _files().get(name)
        if content is None:
            raise Refused(Failure("not_found", f"there is no {name!r} in the inspector", 404))
        it.sender.headers |= _HEADERS
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        await it.sender.whole(200, content, f"{kind}; charset=utf-8")

    # What it shows.

    async def _about(self, it: RequestContext, _: re.Match[str]) -> None:
        catalog, settings = self._gateway.catalog, self._gateway.config.inspector
        about = {
            "version": __version__,
            "models": catalog.list_names(),
            "default_model": catalog.default_model,
            "dialects": list_dialects(),
            "trust": list(get_args(Trust)),
            "notes": NOTES,
            "outcomes": REASON_TEXTS,
            "wires": _WIRES,
            "samples": SAMPLE_TOOLS,
            "keeps": {"requests": settings.requests, "bytes": settings.bytes},
        }
        await _tell(it, about)

    async def _requests(self, it: RequestContext, _: re.Match[str]) -> None:
        after = _number(it, "after")
        new = await self._recorder.list_summaries(after)
        await _tell(it, {"requests": to_builtins(new), "next": _last(new, after)})

    async def _request(self, it: RequestContext, match: re.Match[str]) -> None:
        key = match["key"]
        shown = await self._recorder.render_request(key)
        if shown is None:
            most = self._gateway.config.inspector.requests
            problem = f"there is no request {key[:100]!r} any more; the last {most} are kept"
            raise Refused(Failure("not_found", problem, 404))
        if "download" in parse_qs(it.incoming.query):
            name = re.sub(r"[^\w\-]", "", key, flags=re.ASCII)
            it.sender.headers["content-disposition"] = f'attachment; filename="{name}.json"'
        await _tell(it, shown)

    async def _live(self, it: RequestContext, _: re.Match[str]) -> None:
        """What is new, as it happens: a line of JSON each time."""
        # From here on we hear of it if nobody looks any more.
        await it.incoming.body(0)
        await it.sender.begin(200, "application/x-ndjson")
        if it.incoming.method == "HEAD":
            await it.sender.end()
            return
        after = _number(it, "after")
        asked: list[Any] | None = None
        line: dict[str, Any] = {"epoch": self._recorder.epoch}
        said_at = perf_counter()
        seen = ChangedSummaries()
        # With other settings, whoever looks has to show again that they may.
        access = self._gateway.access
        while self._gateway.access is access and not self._gateway.is_stopping:
            summaries = await self._recorder.list_summaries(after)
            if new := seen.new(summaries):
                after = _last(new, after)
                line |= {"requests": to_builtins(new), "next": after}
            pending = to_builtins(await self._recorder.approvals.list_pending())
            if pending != asked:
                line["approvals"] = asked = pending
            if line or perf_counter() - said_at > _PING_EVERY:
                line, said_at, data = {}, perf_counter(), encode_json(line) + b"\n"
                await it.sender.more(data, said_at)
            await asyncio.sleep(_LOOK_EVERY)
        await it.sender.end()

    # Approvals.

    async def _approvals(self, it: RequestContext, _: re.Match[str]) -> None:
        pending = await self._recorder.approvals.list_pending()
        await _tell(it, {"approvals": to_builtins(pending)})

    async def _ask(self, it: RequestContext, _: re.Match[str]) -> None:
        asked = await self._converted(it, SubmittedApproval)
        await _tell(it, to_builtins(await self._recorder.approvals.add(asked)))

    async def _answered(self, it: RequestContext, match: re.Match[str]) -> None:
        """What was said to a question, once somebody has; at most so many seconds later."""
        deadline = perf_counter() + min(_number(it, "wait"), _LONGEST_WAIT)
        answer = await self._recorder.approvals.get_answer(match["id"])
        while answer is None and perf_counter() < deadline and not self._gateway.is_stopping:
            await asyncio.sleep(_LOOK_EVERY)
            answer = await self._recorder.approvals.get_answer(match["id"])
        await _tell(it, {"answer": answer})

    async def _answer(self, it: RequestContext, match: re.Match[str]) -> None:
        said = await self._converted(it, _Said)
        counts = await self._recorder.approvals.answer(match["id"], said.answer)
        if counts is None:
            problem = "nobody waits for an answer to this any more"
            raise Refused(Failure("not_found", problem, 404))
        await _tell(it, {"answer": counts})

    # The playground.

    async def _parse(self, it: RequestContext, _: re.Match[str]) -> None:
        pasted = await self._converted(it, PlaygroundInput)
        try:
            found = await asyncio.to_thread(parse_text, pasted)
        except UsageError as problem:
            raise Refused(Failure("bad_request", str(problem), 400)) from None
        await _tell(it, found)

    async def _converted(self, it: RequestContext, kind: type[_Kind]) -> _Kind:
        body = await it.incoming.value(self._gateway.config.limits)
        try:
            return msgspec.convert(body, kind)
        except msgspec.ValidationError as problem:
            raise Refused(Failure("bad_request", str(problem), 400)) from None


class _Said(msgspec.Struct, frozen=True):
    answer: ApprovalAnswer


async def _tell(it: RequestContext, value: Any) -> None:
    it.sender.headers |= _HEADERS
    await it.sender.whole(200, encode_json(value))


@cache
def _files() -> dict[str, bytes]:
    """The files of the page."""
    folder = files("toolspeak.observe.inspector") / "static"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def _number(it: RequestContext, name: str) -> float:
    given = parse_qs(it.incoming.query).get(name, ("0",))[0]
    try:
        return max(0.0, float(given))
    except ValueError:
        raise Refused(Failure("bad_request", f"`{name}` has to be a number", 400)) from None


def _last(new: list[RequestSummary], after: float) -> float:
    """Up to when the one who asks knows all that is over."""
    return max((one.changed_at for one in new if one.is_finished), default=after)


class ChangedSummaries:
    """What somebody knows already."""

    def __init__(self) -> None:
        self._seen: dict[str, RequestSummary] = {}

    def new(self, summaries: list[RequestSummary]) -> list[RequestSummary]:
        """Those that say more than before; how long one takes so far is nothing new."""
        before, self._seen = self._seen, {}
        new: list[RequestSummary] = []
        for one in summaries:
            said = self._seen[one.key] = one if one.is_finished else structs.replace(one, ms=0.0)
            if before.get(one.key) != said:
                new.append(one)
        return new
