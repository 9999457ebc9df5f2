"""Helpers for tests: texts cut into chunks, and a server that plays a script in every API."""

from .chunking import parse, parse_to_events, split_at, split_into_chunks
from .scripted_server import ScriptedServer, Turn

__all__ = ["ScriptedServer", "Turn", "parse", "parse_to_events", "split_at", "split_into_chunks"]
