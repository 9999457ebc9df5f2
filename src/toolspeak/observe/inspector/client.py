"""Talks to the inspector of a gateway that runs, as its page does.

inspector = Inspector.at()                        the one of this machine
inspector.get("requests/req_…")
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from ...config.addresses import parse_gateway_url
from ...config.running_instances import list_instances, list_responding
from ...errors import UsageError

KEY_VARIABLE = "TOOLSPEAK_ADMIN_KEY"
_TIMEOUT = 60.0


class InspectorClient:
    """The inspector of one gateway."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key
        # A loopback address is reached directly, whatever stands in the environment.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def connect(cls, url: str | None = None, key: str | None = None) -> InspectorClient:
        """The one at that address, or the one that was started last on this machine."""
        key = key or os.environ.get(KEY_VARIABLE, "")
        if url is None:
            here = next(list_responding(), None)
            if here is None:
                raise UsageError(
                    "no gateway of yours runs on this machine; start `toolspeak serve`, or name "
                    "one with --url and its admin key with --key"
                )
            return cls(here.url, key or here.token)
        parse_gateway_url(url)
        token = next((one.token for one in list_instances() if _is_same_address(one.url, url)), "")
        return cls(url, key or token)

    def get(self, path: str, **query: str) -> Any:
        """What is there."""
        asked = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        return self._send(f"{path}?{asked}" if asked else path, None)

    def post(self, path: str, value: Any) -> Any:
        """Send something there."""
        return self._send(path, json.dumps(value).encode())

    def _send(self, path: str, data: bytes | None) -> Any:
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        try:
            request = urllib.request.Request(f"{self.url}{API_ROOT}{path}", data, headers)  # noqa: S310 - it is checked
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as problem:
            raise UsageError(f"{self.url}: {_error_message(problem)}") from None
        except (OSError, ValueError, HTTPException) as problem:
            why = getattr(problem, "reason", problem)
            raise UsageError(f"{self.url} does not answer as a gateway does: {why}") from None


def _error_message(problem: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(problem)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{problem.code} {problem.reason}"


def _is_same_address(one: str, other: str) -> bool:
    names = {"localhost": "127.0.0.1"}
    first, second = urlsplit(one), urlsplit(other)
    same_host = names.get(first.hostname or "", first.hostname) == names.get(
        second.hostname or "", second.hostname
    )
    return same_host and first.port == second.port


INSPECTOR_ROOT = "/inspector/"
API_ROOT = f"{INSPECTOR_ROOT}api/"
CHAT_PATH = f"{API_ROOT}chat"
"""Where the page itself chats, as a client of OpenAI's API would."""
