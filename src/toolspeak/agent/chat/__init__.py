"""An agent in the terminal: what `toolspeak chat` is made of."""

from .display import Display
from .keyboard import Keyboard
from .session import Session, Setup

__all__ = ["Display", "Keyboard", "Session", "Setup"]
