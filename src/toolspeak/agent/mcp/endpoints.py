"""Where a server is: a command that starts it, or an address. Neither prints its secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from ...errors import UsageError
from ...security.scrubbing import scrub

_NAME = re.compile(r"[!#$%&'*+.^`|~\w-]+", re.ASCII)
_VALUE = re.compile(r"[\t -~]*")


class Command(Struct, frozen=True, kw_only=True):
    """A program that speaks over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What it gets beside the few variables that every program needs."""
    cwd: str | None = None

    def __repr__(self) -> str:
        where = f" in {self.cwd}" if self.cwd else ""
        return f"`{scrub(shlex.join([self.command, *self.args])).text}`{where}"


class Address(Struct, frozen=True, kw_only=True):
    """A server that is running, and speaks HTTP."""

    url: str
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        from ...config.settings import mask_url

        return mask_url(self.url)


Place = Command | Address


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, if they can be sent. No message shows a value: it may be a key."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a header")
        if not _VALUE.fullmatch(value.strip()):
            raise UsageError(f"no header can carry the value of {name!r}: it is more than ASCII")
    return {name: value.strip() for name, value in headers.items()}
