"""The APIs that clients and upstreams speak, each to and from the same values and events."""

from ..errors import UsageError
from .anthropic import WIRE as ANTHROPIC
from .gemini import WIRE as GEMINI
from .ollama import WIRE as OLLAMA
from .openai_chat import WIRE as OPENAI_CHAT
from .openai_responses import WIRE as OPENAI_RESPONSES
from .wire import EncodedRequest, Envelope, ReplyDecoder, StreamDecoder, StreamEncoder, Wire

WIRES = {wire.name: wire for wire in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, OLLAMA, GEMINI)}


def get_wire(name: str) -> Wire:
    """The wire of that name."""
    if name not in WIRES:
        raise UsageError(f"there is no wire {name!r}; known are {', '.join(WIRES)}")
    return WIRES[name]


__all__ = [
    "WIRES",
    "EncodedRequest",
    "Envelope",
    "ReplyDecoder",
    "StreamDecoder",
    "StreamEncoder",
    "Wire",
    "get_wire",
]
