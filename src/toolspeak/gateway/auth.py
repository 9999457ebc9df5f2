"""Who may look into the inspector: on loopback whoever has the token that was made at the start;
elsewhere, or where there is one, whoever has the admin key; else nobody."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import parse_qs

from ..config.addresses import is_loopback
from ..config.settings import Config
from ..observe.inspector.client import API_ROOT, INSPECTOR_ROOT
from ..types import Failure, Request
from .http import Head, Refused


class InspectorAccess:
    """What opens the inspector."""

    def __init__(self, config: Config, token: str = "") -> None:
        is_local = is_loopback(config.server.host)
        self._key = config.server.admin_key or (token if is_local else "")
        self._is_separate = self._key not in config.server.keys
        self.token = "" if config.server.admin_key else self._key
        """What may stand in the address that is printed; an admin key may not."""
        self.closed_reason = self._find_closed_reason(config)

    @property
    def is_open(self) -> bool:
        """Whether anybody can look."""
        return not self.closed_reason

    def accepts(self, shown: str) -> bool:
        """Whether that is the key."""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._key.encode())

    def _find_closed_reason(self, config: Config) -> str:
        if not config.inspector.enabled:
            return "`inspector.enabled` is false"
        if not self._key:
            return "other machines can reach this gateway, so it needs `server.admin_key`"
        if not self._is_separate:
            return "`server.admin_key` is a key of clients, too; it has to be another"
        return ""

    def page_url(self, url: str) -> str:
        """Where the page is. What stands behind `#` never leaves the browser."""
        return f"{url}/#token={self.token}" if self.token else f"{url}/"


_OPEN = frozenset({"/health", "/ready"})
"""What anybody may ask who can reach the gateway: it tells nothing."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_FOREIGN = frozenset({"cross-site", "same-site"})
"""What browsers say of a request that another page makes, be it one of this machine."""
_SHOWN = 100


class AccessControl:
    """Lets requests in, or refuses them."""

    def __init__(self, config: Config, token: str = "") -> None:
        server = config.server
        self._limits = config.limits
        self._keys = tuple(key.encode() for key in server.keys)
        self._hosts = {host.lower() for host in (server.host, *server.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in server.allowed_origins}
        self._is_local = is_loopback(server.host)
        # The same few clients ask again and again.
        self._is_ours = lru_cache(maxsize=64)(self._is_own_host)
        self.inspector = InspectorAccess(config, token)

    def authorize(self, head: Head) -> str:
        """Check a request before its body is read; returns the key that the client showed."""
        if head.size > self._limits.header_bytes:
            problem = f"the headers are longer than {self._limits.header_bytes} bytes; "
            problem += "`limits.headers` says how long they may be"
            raise Refused(Failure("too_large", problem, 431))
        if head.path in _OPEN:
            return ""
        if head.doubled:
            problem = f"the header {head.doubled} stands there twice; send it once"
            raise Refused(Failure("bad_request", problem, 400))
        self._check_host(head)
        if _is_inspector_page(head):
            return ""
        self._check_origin(head)
        if head.method == "OPTIONS":
            # A browser asks this before it sends anything, and shows no key.
            return ""
        if head.method == "POST":
            _check_content_type(head)
        return (
            self._check_admin_key(head)
            if head.path.startswith(API_ROOT)
            else self._check_client_key(head)
        )

    def allows_origin(self, origin: str) -> bool:
        """Whether web pages from there may call the gateway."""
        return origin.lower() in self._origins or "*" in self._origins

    def check_tool_count(self, request: Request) -> None:
        """Check what a request asks for."""
        count = len(request.tools or ())
        if count > self._limits.tools:
            problem = f"{count} tools are more than the {self._limits.tools} that are allowed; "
            problem += "send fewer, or raise `limits.tools`"
            raise Refused(Failure("too_large", problem, 400, param="tools"))

    def _check_host(self, head: Head) -> None:
        host = head.headers.get("host", "")
        if self._is_local and not self._is_ours(host):
            shown = _strip_port(host.lower())[:_SHOWN]
            problem = f"the Host {shown!r} is not this machine; `server.hosts` lists others"
            raise Refused(Failure("forbidden", problem, 403))

    def _is_own_host(self, host: str) -> bool:
        """Whether a Host header names this machine, or what may stand for it."""
        host = host.lower()
        name = _strip_port(host)
        return is_loopback(name) or bool(self._hosts & {name, host})

    def _check_origin(self, head: Head) -> None:
        origin = head.headers.get("origin")
        if origin is None and head.headers.get("sec-fetch-site") in _FOREIGN:
            # Images, scripts and frames come without an Origin.
            raise Refused(Failure("forbidden", "web pages of others may not ask for this", 403))
        is_inspector = head.path.startswith(INSPECTOR_ROOT)
        if origin is None or (self.allows_origin(origin) and not is_inspector):
            return
        own = head.headers.get("host", "").lower()
        if origin.lower().partition("://")[2] != own or not own:
            problem = f"web pages of {origin[:_SHOWN]!r} may not call this; "
            problem += "`server.origins` lists those that may"
            raise Refused(Failure("forbidden", problem, 403))

    def _check_admin_key(self, head: Head) -> str:
        """Whoever looks into the inspector has to show more than a client."""
        if why := self.inspector.closed_reason:
            problem = f"the inspector is off: {why}"
            raise Refused(Failure("forbidden", problem, 403))
        kind, _, shown = head.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not self.inspector.accepts(shown.strip()):
            problem = "this needs the token in the address that `toolspeak serve` has printed, or "
            problem += "the admin key: Authorization: Bearer …"
            raise Refused(Failure("unauthorized", problem, 401), {"www-authenticate": "Bearer"})
        return "the inspector"

    def _check_client_key(self, head: Head) -> str:
        if not self._keys:
            return next(_presented_keys(head), "")
        for key in _presented_keys(head):
            given = key.encode("utf-8", "replace")
            # Every key is compared, so that the time tells nothing.
            if sum(hmac.compare_digest(given, known) for known in self._keys) and given:
                return key
        problem = "this gateway needs a key that it knows: Authorization: Bearer …, x-api-key, "
        problem += "x-goog-api-key or ?key="
        raise Refused(Failure("unauthorized", problem, 401), {"www-authenticate": "Bearer"})


def _is_inspector_page(head: Head) -> bool:
    """Whether a request is for the inspector's page, or a file of it: they hold nothing, so links
    from anywhere may lead there."""
    if head.method not in ("GET", "HEAD"):
        return False
    path = head.path
    is_file = path.startswith(INSPECTOR_ROOT) and not path.startswith(API_ROOT)
    return is_file or (path == "/" and accepts_html(head))


def accepts_html(head: Head) -> bool:
    """Whether it is a browser that asks."""
    return "text/html" in head.headers.get("accept", "")


def _presented_keys(head: Head) -> Iterator[str]:
    """The keys that a client shows, in whichever places its API has for them. Some show two."""
    kind, _, bearer = head.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and bearer.strip():
        yield bearer.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if key := head.headers.get(name, "").strip():
            yield key
    if "key=" in head.query:
        yield from parse_qs(head.query).get("key", ())


def _check_content_type(head: Head) -> None:
    given = head.headers.get("content-type", "")
    if given == "application/json":
        return
    given = given.partition(";")[0].strip().lower()
    if given != "application/json" and not given.endswith("+json"):
        was = f"not {given[:_SHOWN]!r}" if given else "and no type is stated"
        problem = f"the body has to be application/json, {was}; set the Content-Type header"
        raise Refused(Failure("bad_request", problem, 415))


def _strip_port(host: str) -> str:
    """A host without its port."""
    match = _HOST.fullmatch(host)
    return match[1] if match else host
