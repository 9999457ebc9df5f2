"""Who sees tool output without its secrets, and which tools may get secrets back."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Viewer = Literal["model", "display"]


class Scrubbing(Struct, frozen=True):
    """What an agent is told about secrets. It changes nothing by itself."""

    scrub_for: tuple[Viewer, ...] = ("model",)
    """Whose text is scrubbed."""
    restore_for: tuple[str, ...] = ()
    """Tools that may get secrets back, each time after somebody was asked."""

    def scrubs(self, viewer: Viewer) -> bool:
        return viewer in self.scrub_for

    @property
    def restores(self) -> bool:
        """Whether marks are to be made with a vault."""
        return bool(self.restore_for)

    def may_restore(self, tool: str) -> bool:
        """Whether it may be asked at all: a tool that is on no list never gets a secret."""
        return tool in self.restore_for
