"""Hosts, URLs and headers: which are this machine's own, and which can be used."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from ..errors import UsageError

DEFAULT_PORTS = {"http": 80, "https": 443}
_UNUSABLE = re.compile(r"[\s\\]")
_PRINTABLE = re.compile(r"[!-~]+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^`|~\w-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t -~]*")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return True for `localhost` and for loopback addresses."""
    address = _parse_ip(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback if address else normalize_host(host) == "localhost"


def is_this_machine(host: str) -> bool:
    """Return True for loopback hosts and for the wildcard addresses 0.0.0.0 and ::."""
    address = _parse_ip(host)
    return is_loopback(host) or (address is not None and address.is_unspecified)


def normalize_host(host: str) -> str:
    """Return a host without brackets and trailing dot, in lower case."""
    return host.strip("[]").rstrip(".").lower()


def parse_http_url(url: str) -> SplitResult | None:
    """Return the parts of an http(s) URL, or None if nothing can connect to it."""
    try:
        parts = urlsplit(url)
        # Reading `port` raises ValueError if it is not a port number.
        if parts.port == 0 or _UNUSABLE.search(url):
            return None
    except ValueError:
        return None
    return parts if parts.scheme in DEFAULT_PORTS and parts.hostname else None


def parse_gateway_url(url: str) -> SplitResult:
    """Return the parts of a gateway's URL; raise `UsageError` if it is not one."""
    parts = parse_http_url(url)
    if parts is None or not _PRINTABLE.fullmatch(url):
        raise UsageError(f"Expected a URL such as http://127.0.0.1:7878, got {url!r}")
    return parts


def _parse_ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(normalize_host(host))
    except ValueError:
        return None


def find_header_problem(name: str, value: str) -> str:
    """Return why a header cannot be sent, or "". The value may be a key, so it is not shown."""
    if not _HEADER_NAME.fullmatch(name):
        return f"{name!r} is not a valid header name"
    if not _HEADER_VALUE.fullmatch(value):
        return f"the value of header {name!r} must be printable ASCII without line breaks"
    return ""
