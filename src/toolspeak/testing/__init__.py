"""Help for tests: texts cut into pieces, and a server that answers as it is told in any API."""

from .pieces import chunks, events, parse, split_at
from .server import ScriptedServer, Turn

__all__ = ["ScriptedServer", "Turn", "chunks", "events", "parse", "split_at"]
