"""The terminal chat behind `toolspeak chat`."""

from .session import ChatSession, ChatSettings
from .terminal import Display, Keyboard

__all__ = ["ChatSession", "ChatSettings", "Display", "Keyboard"]
