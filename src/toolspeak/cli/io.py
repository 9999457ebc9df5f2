"""What the commands share: reading files, writing JSON."""

from __future__ import annotations

import codecs
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UsageError


def read_text(path: str) -> str:
    """The text of a file, or of standard input for "-". Bytes that are no text are kept visible."""
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def read_json(path: str) -> Any:
    """The value in a JSON file."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None


def write_json(value: Any) -> None:
    """One JSON object on standard output."""
    plain = msgspec.to_builtins(value)
    text = json.dumps(plain, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain)
    print(text)
