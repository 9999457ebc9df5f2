"""Where a server is: a command that starts it, or an address. Neither prints its secrets."""

from __future__ import annotations

import shlex

from msgspec import Struct

from ...scrubbing import scrub


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
        from ...gateway.settings import hidden_address

        return hidden_address(self.url)


Place = Command | Address
