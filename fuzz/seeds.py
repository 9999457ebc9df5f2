"""The first inputs of each target, from the tests' tables, and the words of its dictionary."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.config.config_files import BOX, EVERYTHING, QWEN
from tests.config.test_litellm import LITELLM
from tests.dialects.test_bad_input import MARKERS, PIECES, REPEATED
from tests.support import CASES
from tests.wires.scenarios import SCENARIOS
from tests.wires.test_fuzz import RICH

from toolspeak import DIALECTS, Failure, Request, fold
from toolspeak.wires import WIRES, Envelope

ROOT = Path(__file__).parent.parent


def list_table_rows() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "tests" / "tables").glob("*.toml")):
        yield from tomllib.loads(path.read_text("utf-8"))["case"]


def list_parser_seeds() -> Iterator[bytes]:
    for path in sorted(CASES.glob("*.toml")):
        texts = [row["text"] for row in tomllib.loads(path.read_text("utf-8"))["case"]]
        for text in texts:
            yield _join(f"{path.stem} tools 3", text)
        # Copied from a tool result.
        yield _join(f"{path.stem} context 4", f"{texts[0]}\n----\nA page: {texts[0]}")
    for row in list_table_rows():
        words = f"{row.get('dialect', 'auto')} {row.get('trust', 'standard')} 5"
        yield _join(words, row["text"])
    for piece in REPEATED:
        yield _join("auto lenient tools incremental 2", piece * 3)


def list_wire_seeds() -> Iterator[bytes]:
    envelope = Envelope(Request(model="m", messages=()), "1")
    failure = Failure("rate_limit", "Try again in 3 s.", 429, "rate_limit_exceeded")
    for wire in WIRES.values():
        yield _join(f"{wire.name} failure", json.dumps(wire.encode_failure(failure)))
        for body in RICH[wire.name]:
            yield _join(f"{wire.name} request", json.dumps(body))
        for scenario in SCENARIOS:
            body = wire.encode_request(scenario.request).body
            yield _join(f"{wire.name} request", json.dumps(body))
            reply = wire.encode_reply(fold(scenario.reply), envelope)
            yield _join(f"{wire.name} reply", json.dumps(reply))
            encoder = wire.stream_encoder(envelope)
            stream = b"".join(map(encoder.feed, scenario.reply))
            yield f"{wire.name} stream 7\n".encode() + stream


def list_config_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in (BOX, QWEN, EVERYTHING, LITELLM))
    yield (ROOT / "deploy" / "toolspeak.toml").read_bytes()


def list_lenient_json_seeds() -> Iterator[bytes]:
    words = ("", "closers quotes", "python", "token closers", "extra")
    for number, row in enumerate(list_table_rows()):
        start = row["text"].find("{")
        if start >= 0:
            yield _join(words[number % len(words)], row["text"][start:])


def _join(words: str, text: str) -> bytes:
    return f"{words}\n{text}".encode("utf-8", "surrogateescape")


SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "parser": list_parser_seeds,
    "wires": list_wire_seeds,
    "config": list_config_seeds,
    "lenient_json": list_lenient_json_seeds,
}


def list_words(target: str) -> list[str]:
    """Return the words that a target's inputs are likely to contain."""
    if target == "parser":
        options = ("strict", "lenient", "tools", "types_only", "open", "closed", "incremental")
        return [*DIALECTS, *options, "short", "context", "\n----\n", *MARKERS, *PIECES]
    if target == "wires":
        bodies = [text for seed in list_wire_seeds() for text in seed.decode().split('"')[1::2]]
        return [*WIRES, "request", "reply", "stream", "failure", *bodies]
    if target == "config":
        return [*"\n".join([EVERYTHING, LITELLM, "${A}", "${A:-b}", "[[x]]"]).split()]
    return ["closers", "quotes", "python", "token", "extra", '<|"|>', "```json", "“", "\\u00e9"]


def render_dictionary(target: str) -> str:
    """Return the words in libFuzzer's format."""
    words = {word.encode("utf-8", "replace")[:60] for word in list_words(target) if word}
    return "".join(f'"{"".join(map(_escape, word))}"\n' for word in sorted(words))


def _escape(byte: int) -> str:
    is_plain = 32 <= byte < 127 and byte not in b'"\\'
    return chr(byte) if is_plain else f"\\x{byte:02x}"
