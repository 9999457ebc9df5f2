"""Which names are this machine's own."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host's name is this machine's own."""
    bare = host.strip("[]").lower()
    try:
        return bare == "localhost" or ip_address(bare).is_loopback
    except ValueError:
        return False
