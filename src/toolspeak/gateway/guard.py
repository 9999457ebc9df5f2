"""Who may talk to the gateway, and how much they may say.

On loopback no key is needed, but no web page may reach it either: the Host has to be this machine,
a foreign Origin is refused, and bodies have to be JSON, which a page cannot send unasked.
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs, urlsplit

from ..types import Failure, Request
from .http import Incoming, Refused
from .settings import Config

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_EVERYWHERE = frozenset({"/health", "/ready"})
"""What anybody may ask who can reach the gateway: it tells nothing."""


def is_loopback(host: str) -> bool:
    """Whether a host's name is this machine's own."""
    return host.lower() in LOOPBACK or host.startswith("127.")


class Guard:
    """Lets requests in, or refuses them."""

    def __init__(self, config: Config) -> None:
        self._server = config.server
        self._limits = config.limits
        self._keys = tuple(key.encode() for key in config.server.keys)
        self._hosts = {host.lower() for host in config.server.hosts}
        self._is_local = is_loopback(config.server.host)

    def admit(self, incoming: Incoming) -> str:
        """Check a request before its body is read; returns the key that the client showed."""
        if incoming.header_size > self._limits.headers:
            problem = f"the headers are longer than {self._limits.headers} bytes"
            raise Refused(Failure("too_large", problem, 431))
        self._check_host(incoming)
        self._check_origin(incoming)
        if incoming.path in _EVERYWHERE:
            return ""
        if incoming.method == "POST":
            _check_content_type(incoming)
        return self._key(incoming)

    def check_size(self, request: Request) -> None:
        """Check what a request asks for."""
        count = len(request.tools or ())
        if count > self._limits.tools:
            problem = f"{count} tools are more than the {self._limits.tools} that are allowed"
            raise Refused(Failure("too_large", problem, 400, param="tools"))

    def _check_host(self, incoming: Incoming) -> None:
        if not self._is_local:
            return
        host = _name_in(incoming.headers.get("host", ""))
        if not is_loopback(host) and host not in self._hosts:
            problem = f"the Host {host!r} is not this machine; `server.hosts` lists others"
            raise Refused(Failure("forbidden", problem, 403))

    def _check_origin(self, incoming: Incoming) -> None:
        origin = incoming.headers.get("origin")
        if origin is None or origin in self._server.origins:
            return
        own = incoming.headers.get("host", "").lower()
        if urlsplit(origin).netloc.lower() != own or origin == "null":
            problem = f"web pages of {origin!r} may not call this; `server.origins` lists those"
            raise Refused(Failure("forbidden", problem, 403))

    def _key(self, incoming: Incoming) -> str:
        shown = shown_key(incoming)
        if not self._keys:
            return shown
        given = shown.encode("utf-8", "replace")
        # Every key is compared, so that the time tells nothing.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if not any(matches):
            problem = "this gateway needs a key: Authorization: Bearer …, x-api-key, "
            problem += "x-goog-api-key or ?key="
            raise Refused(Failure("unauthorized", problem, 401), {"www-authenticate": "Bearer"})
        return shown


def shown_key(incoming: Incoming) -> str:
    """The key that a client shows, in whichever place its API has for it."""
    bearer = incoming.headers.get("authorization", "")
    kind, _, key = bearer.partition(" ")
    if kind.lower() == "bearer" and key.strip():
        return key.strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if incoming.headers.get(name):
            return incoming.headers[name]
    return parse_qs(incoming.query).get("key", [""])[0] if "key=" in incoming.query else ""


def _check_content_type(incoming: Incoming) -> None:
    given = incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not given.endswith("+json"):
        problem = f"the body has to be application/json, not {given or 'of no stated type'!r}"
        raise Refused(Failure("bad_request", problem, 415))


def _name_in(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
