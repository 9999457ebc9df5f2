"""A client of the inspector's API, for a gateway that runs in another process.

inspector = InspectorClient.connect()             the gateway on this machine
inspector.get("requests/req_…")
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from ...config.addresses import parse_gateway_url
from ...config.running_instances import list_instances, list_responding
from ...errors import UsageError

KEY_VARIABLE = "TOOLSPEAK_ADMIN_KEY"
_TIMEOUT = 60.0
INSPECTOR_ROOT = "/inspector/"
API_ROOT = f"{INSPECTOR_ROOT}api/"
CHAT_PATH = f"{API_ROOT}chat"
"""The page's own chat requests, in OpenAI's format."""


class InspectorClient:
    """The inspector of one gateway."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key
        # Ignore proxies of the environment: they cannot reach a loopback address.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @classmethod
    def connect(cls, url: str | None = None, key: str | None = None) -> InspectorClient:
        """Connect to the gateway at that URL, or to the one started last on this machine."""
        key = key or os.environ.get(KEY_VARIABLE, "")
        if url is None:
            instance = next(list_responding(), None)
            if instance is None:
                raise UsageError(
                    "no gateway is running on this machine; start one with `toolspeak serve`, or "
                    f"give a gateway's URL, and its admin key in {KEY_VARIABLE}"
                )
            return cls(instance.url, key or instance.token)
        parse_gateway_url(url)
        token = next(
            (one.token for one in list_instances() if _address_of(one.url) == _address_of(url)), ""
        )
        return cls(url, key or token)

    def get(self, path: str, **query: str) -> Any:
        encoded = urlencode(query)
        return self._send(f"{path}?{encoded}" if encoded else path, None)

    def post(self, path: str, value: Any) -> Any:
        return self._send(path, json.dumps(value).encode())

    def _send(self, path: str, data: bytes | None) -> Any:
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        try:
            request = urllib.request.Request(f"{self.url}{API_ROOT}{path}", data, headers)  # noqa: S310 - the scheme is checked
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return json.load(response)
        except urllib.error.HTTPError as problem:
            raise UsageError(f"{self.url}: {_error_message(problem)}") from None
        except OSError as problem:
            why = getattr(problem, "reason", problem)
            raise UsageError(f"no gateway responds at {self.url}: {why}") from None
        except (ValueError, HTTPException) as problem:
            raise UsageError(
                f"the server at {self.url} is not a Toolspeak gateway: {problem}"
            ) from None


def _error_message(problem: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(problem)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{problem.code} {problem.reason}"


def _address_of(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return "127.0.0.1" if parts.hostname == "localhost" else parts.hostname, parts.port
