"""The APIs that clients and upstreams use: each decodes to and encodes from the same values."""

from .encoding import EncodedRequest
from .routes import WIRES, get_wire
from .wire import Envelope, FrameDecoder, StreamDecoder, StreamEncoder, Wire

__all__ = [
    "WIRES",
    "EncodedRequest",
    "Envelope",
    "FrameDecoder",
    "StreamDecoder",
    "StreamEncoder",
    "Wire",
    "get_wire",
]
