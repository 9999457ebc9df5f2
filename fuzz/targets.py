"""What is fuzzed: each target takes any bytes, and raises an exception if a rule is broken.

The first line of an input chooses the options, in words; unknown words are ignored:

    hermes lenient tools 3
    <tool_call>{"name": "now", "arguments": {}}</tool_call>
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.dialects.test_bad_input import assert_deltas_are_the_arguments, is_linear
from tests.support import TOOLBOX, to_comparable
from tests.wires.scenarios import describe_reply
from tests.wires.test_fuzz import encode_everywhere, split

from toolspeak import DIALECTS, WireError, fold
from toolspeak._util import encode_json
from toolspeak.calls.json_values import (
    STRICT_DECODER,
    canonical_json,
    is_incomplete_json,
    is_nested_deeper,
    parse_json,
)
from toolspeak.calls.lenient_json import LenientJsonError, LenientJsonReader
from toolspeak.config.document import ConfigError
from toolspeak.config.loading import read_config
from toolspeak.config.settings import Limits, mask_settings
from toolspeak.testing import parse, parse_to_events, split_into_chunks
from toolspeak.wires import WIRES, StreamDecoder, Wire
from toolspeak.wires.framing import decode_json

_TIMED_SHARE = 32
"""Time is measured for one input in so many, which its checksum chooses."""
_SHORT = 2_000
"""The text is repeated to this length, in characters; eight times as much is to take eight times as
long."""


class Options(Struct, frozen=True):
    """The first line of an input, as words."""

    words: tuple[str, ...]

    @classmethod
    def split_off(cls, data: bytes) -> tuple[Options, bytes]:
        line, _, rest = data.partition(b"\n")
        return cls(tuple(line.decode("ascii", "replace").split())), rest

    def has(self, word: str) -> bool:
        return word in self.words

    def choose(self, known: Any, default: str) -> str:
        """Return the first word that is known."""
        return next((word for word in self.words if word in known), default)

    @property
    def size(self) -> int:
        """The size of chunks."""
        numbers = (int(word) for word in self.words if word.isascii() and word.isdigit())
        return min(max(1, next((number for number in numbers), 1)), 1_000_000)


# The parser.


def check_parser(data: bytes) -> None:
    """No text raises an exception; the result does not depend on the chunks; time is linear."""
    choice, rest = Options.split_off(data)
    text = rest.decode("utf-8", "surrogateescape")
    options: dict[str, Any] = {
        "dialect": choice.choose(DIALECTS, "auto"),
        "trust": choice.choose(("strict", "lenient"), "standard"),
        "tools": TOOLBOX if choice.has("tools") else None,
        "types_only": choice.has("types_only"),
        "reasoning_open": True if choice.has("open") else False if choice.has("closed") else None,
        "arguments": "incremental" if choice.has("incremental") else "validated",
        "max_call": 40 if choice.has("short") else 8_000_000,
    }
    if choice.has("context"):
        text, _, result = text.partition("\n----\n")
        options["context"] = [{"role": "tool", "tool_call_id": "1", "content": result}]
    whole = to_comparable(parse([text], **options))
    for size in {1, choice.size}:
        assert to_comparable(parse(split_into_chunks(text, size), **options)) == whole, size
    if choice.has("incremental"):
        assert_deltas_are_the_arguments(parse_to_events(split_into_chunks(text, 3), **options))
        validated = to_comparable(parse([text], **(options | {"arguments": "validated"})))
        assert [call[1:] for call in whole[2]] == [call[1:] for call in validated[2]]
    if _is_timed(data) and text:
        short = text * (_SHORT // len(text) + 1)
        names = {"dialect": options["dialect"], "trust": options["trust"]}
        assert is_linear(short, short * 8, max(choice.size, 5), **names), "time is not linear"


def _is_timed(data: bytes) -> bool:
    return zlib.crc32(data) % _TIMED_SHARE == 0


# Wires.


def check_wires(data: bytes) -> None:
    """Requests raise only `WireError`; replies, streams and failures raise nothing."""
    choice, body = Options.split_off(data)
    wire = WIRES[choice.choose(WIRES, "openai_chat")]
    kind = choice.choose(("reply", "stream", "failure"), "request")
    if kind == "stream":
        _check_stream(wire, body, choice.size)
        return
    try:
        value = (wire.parse_reply_body if kind == "reply" else decode_json)(body)
    except WireError:
        return
    if kind == "request":
        _check_request(wire, value, body)
    elif kind == "reply":
        encode_everywhere(list(wire.decode_reply(value)))
    else:
        failure = wire.decode_failure(500, value)
        for other in WIRES.values():
            encode_json(other.encode_failure(failure))


def _check_request(wire: Wire, value: Any, body: bytes) -> None:
    if is_nested_deeper(value, body, Limits().json_depth):
        return  # The gateway rejects it.
    try:
        request = wire.decode_request(value, model="m", stream=False)
    except WireError:
        return
    for other in WIRES.values():
        encode_json(other.encode_request(request).body)


def _check_stream(wire: Wire, data: bytes, size: int) -> None:
    whole, is_same = _decode_stream(wire, data, len(data) or 1), True
    for each in {1, size}:
        is_same &= _decode_stream(wire, data, each) == whole
    assert is_same, "the reply depends on the chunks"


def _decode_stream(wire: Wire, data: bytes, size: int) -> dict[str, Any]:
    numbers = itertools.count(1)
    decoder = StreamDecoder(wire, new_id=lambda: f"call_{next(numbers)}")
    events = [event for piece in split(data, size) for event in decoder.feed(piece)]
    events += decoder.finish()
    if size > 1:
        encode_everywhere(events)
    reply = fold(events)
    return {**describe_reply(reply), "failure": reply.failure}


# The configuration.


def check_config(data: bytes) -> None:
    """A file is read, or is a `ConfigError` of at least one line."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toolspeak.toml"
        path.write_bytes(data)
        lines: list[str] = []
        try:
            config = read_config(path, {"REDIS_PASSWORD": "s3cret", "A": "one"}).config
            lines.append(repr(config))
            encode_json(mask_settings(config))
        except ConfigError as error:
            lines += error.problems
        assert lines
        assert "s3cret" not in "".join(lines)


# Lenient JSON.


def check_lenient_json(data: bytes) -> None:
    """Any text is a value or a `LenientJsonError`; strict JSON needs no repair; time is linear."""
    choice, rest = Options.split_off(data)
    text = rest.decode("utf-8", "surrogateescape")
    options: dict[str, Any] = {
        "allow_missing_closers": choice.has("closers"),
        "allow_inner_quotes": choice.has("quotes"),
    }
    reader_options = options | {"python": choice.has("python")}
    reader_options["string_token"] = '<|"|>' if choice.has("token") else ""
    _check_value(_read(parse_json, text, **options, allow_extra_closers=choice.has("extra")))
    _check_value(_read(_read_one, text, **reader_options))
    is_incomplete_json(text)
    try:
        expected = STRICT_DECODER.decode(text)
    except (ValueError, RecursionError):
        pass
    else:
        assert _read(parse_json, text, **options) == (expected, ())
    if _is_timed(data) and text:
        short = text * (_SHORT // len(text) + 1)
        assert _is_linear_json(short, reader_options), "time is not linear"


def _read_one(text: str, **options: Any) -> tuple[Any, tuple[str, ...]]:
    reader = LenientJsonReader(text, **options)
    return reader.read_value(), reader.repairs()


def _read(read: Callable[..., tuple[Any, tuple[str, ...]]], text: str, **options: Any) -> Any:
    try:
        return read(text, **options)
    except LenientJsonError:
        return None


def _check_value(found: tuple[Any, tuple[str, ...]] | None) -> None:
    """Check that a value is JSON."""
    if found is not None:
        json.dumps(found[0], allow_nan=False)
        canonical_json(found[0])


def _is_linear_json(short: str, options: dict[str, Any]) -> bool:
    def seconds(text: str) -> float:
        start = time.process_time()
        _read(_read_one, text, **options)
        _read(parse_json, text)
        return time.process_time() - start

    for _ in range(3):
        taken = seconds(short * 8)
        if taken < 0.05 or taken < 16 * seconds(short) + 0.05:
            return True
    return False


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parser": check_parser,
    "wires": check_wires,
    "config": check_config,
    "lenient_json": check_lenient_json,
}
