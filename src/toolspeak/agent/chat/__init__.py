"""An agent in the terminal: what `toolspeak chat` is made of."""

from .session import ChatSession, ChatSettings
from .terminal import Display, Keyboard

__all__ = ["ChatSession", "ChatSettings", "Display", "Keyboard"]
