"""Access control: who may use the gateway and its inspector.

On loopback no key is needed, but web pages are kept out: the Host header must name this machine,
requests from other origins are rejected, and bodies must be declared as JSON, which a page cannot
do for another origin without asking first (CORS). Programs that are no browser may omit the
declaration.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import parse_qs

from ..config.addresses import is_loopback
from ..config.settings import Config
from ..observe.inspector.client import API_ROOT, INSPECTOR_ROOT
from ..types import Failure
from .http import Refused, RequestHead

PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""Paths that need no key: they reveal only whether the gateway is ready."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_CROSS_ORIGIN = frozenset({"cross-site", "same-site"})
"""Values of `sec-fetch-site` for requests from other pages."""
_MAX_QUOTED = 100


class InspectorAccess:
    """Decides who may use the inspector.

    The admin key opens it. If none is configured, the token that was made when the gateway started
    opens it, on loopback only.
    """

    def __init__(self, config: Config, token: str = "") -> None:
        is_local = is_loopback(config.server.host)
        self._key = config.server.admin_key or (token if is_local else "")
        self.token = "" if config.server.admin_key else self._key
        """Opens the inspector. May be part of a printed URL; an admin key may not."""
        self.closed_reason = self._find_closed_reason(config)
        """Empty if the inspector is open."""

    @property
    def is_open(self) -> bool:
        return not self.closed_reason

    def accepts(self, key: str) -> bool:
        return hmac.compare_digest(key.encode("utf-8", "replace"), self._key.encode())

    def page_url(self, url: str) -> str:
        """Return the inspector's URL. Browsers do not send the part after `#`."""
        return f"{url}/#token={self.token}" if self.token else f"{url}/"

    def _find_closed_reason(self, config: Config) -> str:
        if not config.inspector.enabled:
            return "`inspector.enabled` is false"
        if not self._key:
            return "other machines may reach this gateway, so set `server.admin_key`"
        if self._key in config.server.keys:
            return "`server.admin_key` is also a client key; set a different one"
        return ""


class AccessControl:
    """Admits requests or rejects them.

    A gateway without keys serves this machine only. If it is not known where the server listens,
    both addresses of each connection must be loopback addresses.
    """

    def __init__(self, config: Config, token: str = "", *, is_address_known: bool = True) -> None:
        server = config.server
        self._limits = config.limits
        self._keys = tuple(key.encode() for key in server.keys)
        self._hosts = {host.lower() for host in (server.host, *server.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in server.allowed_origins}
        self._checks_addresses = not is_address_known and not self._keys
        self._is_local = is_loopback(server.host) if is_address_known else not self._keys
        # Most requests have one of a few Host headers.
        self._is_own_host_cached = lru_cache(maxsize=64)(self._is_own_host)
        self.inspector = InspectorAccess(config, token)

    def authorize(self, head: RequestHead) -> str:
        """Check a request before its body is read, and return the key that the client has sent."""
        if head.size > self._limits.header_bytes:
            message = f"the headers are longer than {self._limits.header_bytes} bytes; "
            message += "send fewer, or raise `limits.header_bytes`"
            raise Refused(Failure("too_large", message, 431))
        if head.path in PUBLIC_PATHS:
            return ""
        if head.repeated_header:
            message = f"the header {head.repeated_header} was sent twice; send it once"
            raise Refused(Failure("bad_request", message, 400))
        if self._checks_addresses:
            _check_addresses(head)
        self._check_host(head)
        if _is_inspector_page(head):
            return ""
        self._check_origin(head)
        if head.method == "OPTIONS":
            # A browser sends no key with a CORS preflight.
            return ""
        if head.method == "POST":
            self._check_content_type(head)
        if head.path.startswith(API_ROOT):
            return self._check_admin_key(head)
        return self._check_client_key(head)

    def allows_origin(self, origin: str) -> bool:
        return origin.lower() in self._origins or "*" in self._origins

    def _check_host(self, head: RequestHead) -> None:
        host = head.headers.get("host", "")
        if self._is_local and not self._is_own_host_cached(host):
            name = _strip_port(host.lower())[:_MAX_QUOTED]
            message = f"the Host header names {name!r}, which is not this machine; to allow it, "
            message += "add it to `server.allowed_hosts`"
            raise Refused(Failure("forbidden", message, 403))

    def _is_own_host(self, host: str) -> bool:
        host = host.lower()
        name = _strip_port(host)
        return is_loopback(name) or bool(self._hosts & {name, host})

    def _check_origin(self, head: RequestHead) -> None:
        origin = head.headers.get("origin")
        if origin is None and head.headers.get("sec-fetch-site") in _CROSS_ORIGIN:
            # Browsers send no Origin for images, scripts and frames.
            raise Refused(
                Failure("forbidden", "web pages of other sites may not send requests here", 403)
            )
        is_inspector = head.path.startswith(INSPECTOR_ROOT)
        if origin is None or (self.allows_origin(origin) and not is_inspector):
            return
        own_host = head.headers.get("host", "").lower()
        if origin.lower().partition("://")[2] != own_host or not own_host:
            message = f"web pages from {origin[:_MAX_QUOTED]!r} may not call this gateway; "
            message += "add the origin to `server.allowed_origins`"
            raise Refused(Failure("forbidden", message, 403))

    def _check_content_type(self, head: RequestHead) -> None:
        header = head.headers.get("content-type", "")
        if header == "application/json":
            return
        media_type = header.partition(";")[0].strip().lower()
        if media_type == "application/json" or media_type.endswith("+json"):
            return
        if "content-type" not in head.headers and self._is_local and not _is_from_browser(head):
            return
        actual = f"is {media_type[:_MAX_QUOTED]!r}" if media_type else "is missing"
        message = f"the Content-Type header {actual}; send application/json"
        raise Refused(Failure("bad_request", message, 415))

    def _check_admin_key(self, head: RequestHead) -> str:
        if reason := self.inspector.closed_reason:
            raise Refused(Failure("forbidden", f"the inspector is off: {reason}", 403))
        scheme, _, key = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.inspector.accepts(key.strip()):
            message = "the token or admin key is missing or wrong; send the token from the URL "
            message += "that `toolspeak serve` printed, or the admin key: "
            message += "Authorization: Bearer …"
            raise Refused(Failure("unauthorized", message, 401), {"www-authenticate": "Bearer"})
        return "the inspector"

    def _check_client_key(self, head: RequestHead) -> str:
        if not self._keys:
            return next(_presented_keys(head), "")
        for key in _presented_keys(head):
            presented = key.encode("utf-8", "replace")
            # Compare with every key, so that the time taken reveals nothing.
            if sum(hmac.compare_digest(presented, known) for known in self._keys) and presented:
                return key
        message = "the key is missing or wrong; send one of the gateway's keys: "
        message += "Authorization: Bearer …, x-api-key, x-goog-api-key or ?key="
        raise Refused(Failure("unauthorized", message, 401), {"www-authenticate": "Bearer"})


def accepts_html(head: RequestHead) -> bool:
    """Return True if a browser requests a page."""
    return "text/html" in head.headers.get("accept", "")


def _check_addresses(head: RequestHead) -> None:
    """Refuse clients on other machines, and those of which the server does not know the address."""
    if (
        head.client is None
        or not is_loopback(head.client[0])
        or (head.server and not is_loopback(head.server[0]))
    ):
        message = "clients on other machines need a key, and the gateway has none; "
        message += "set `server.keys`"
        raise Refused(Failure("forbidden", message, 403))


def _is_inspector_page(head: RequestHead) -> bool:
    """Return True for the inspector's static files: they hold no data, so anyone may load them."""
    if head.method not in ("GET", "HEAD"):
        return False
    path = head.path
    is_file = path.startswith(INSPECTOR_ROOT) and not path.startswith(API_ROOT)
    return is_file or (path == "/" and accepts_html(head))


def _presented_keys(head: RequestHead) -> Iterator[str]:
    """Yield the keys in all places that the APIs have for them. Some clients send two."""
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        yield token.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if key := head.headers.get(name, "").strip():
            yield key
    if "key=" in head.query:
        yield from parse_qs(head.query).get("key", ())


def _is_from_browser(head: RequestHead) -> bool:
    """Return True for a request with headers that browsers add and pages cannot remove."""
    return any(name == "origin" or name.startswith("sec-fetch-") for name in head.headers)


def _strip_port(host: str) -> str:
    match = _HOST.fullmatch(host)
    return match[1] if match else host
