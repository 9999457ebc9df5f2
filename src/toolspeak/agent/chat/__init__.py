"""The terminal chat behind `toolspeak chat`."""

from .session import ChatSession
from .terminal import Display, Keyboard

__all__ = ["ChatSession", "Display", "Keyboard"]
