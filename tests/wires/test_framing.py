"""Frames are the same wherever a stream of bytes is cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak import WireError
from toolspeak._util import encode_json
from toolspeak.wires.framing import (
    Frame,
    Framing,
    JsonLines,
    ServerSentEvents,
    decode_json,
    encode_sse,
)


def read_frames(framing: Framing, pieces: list[bytes]) -> list[tuple[str, str]]:
    found = [frame for piece in pieces for frame in framing.feed(piece)]
    return [(frame.event, _frame_text(frame)) for frame in (*found, *framing.finish())]


def _frame_text(frame: Frame) -> str:
    return frame.data if isinstance(frame.data, str) else frame.data.decode()


EVENTS = [
    (b"data: one\n\n", [("", "one")]),
    (b"data:one\n\n", [("", "one")]),
    (b"data:  one\n\n", [("", " one")]),
    (b"data: one\r\n\r\n", [("", "one")]),
    (b"data: one\r\r", [("", "one")]),
    (b"data: one\r\n\ndata: two\n\r\n", [("", "one"), ("", "two")]),
    (b"data: one\ndata: two\n\n", [("", "one\ntwo")]),
    (b"data: one\ndata\ndata: two\n\n", [("", "one\n\ntwo")]),
    (b"event: start\ndata: one\n\n", [("start", "one")]),
    (b"event:start\nid: 7\nretry: 10\ndata: one\n\n", [("start", "one")]),
    (b"event: lost\n\ndata: one\n\n", [("", "one")]),
    (b": a comment\n\ndata: one\n\n:\n\n", [("", "one")]),
    (b"\xef\xbb\xbfdata: one\n\n", [("", "one")]),
    (b"data: one\n\ndata: [DONE]\n\n", [("", "one"), ("", "[DONE]")]),
    (b"data: cut off", [("", "cut off")]),
    (b"data: one\n", [("", "one")]),
    ("data: ø 天 \U0001f326\u2028\n\n".encode(), [("", "ø 天 \U0001f326\u2028")]),
    (b"unknown: x\ndata: one\n\n", [("", "one")]),
    (b"\n\n\n", []),
    (b"", []),
]


@pytest.mark.parametrize(("data", "expected"), EVENTS, ids=[repr(data) for data, _ in EVENTS])
def test_server_sent_events_cut_anywhere_give_frames(
    data: bytes, expected: list[tuple[str, str]]
) -> None:
    for size in range(1, len(data) + 2):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert read_frames(ServerSentEvents(), pieces) == expected


def test_json_lines_cut_anywhere_give_lines() -> None:
    data = b'{"a": 1}\n\n{"b": 2}\r\n{"c": 3}'
    for size in range(1, len(data) + 1):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        found = [text for _, text in read_frames(JsonLines(), pieces)]
        assert found == ['{"a": 1}', '{"b": 2}', '{"c": 3}']


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))), st.integers(1, 9))
def test_encoded_events_are_read_back(texts: list[str], size: int) -> None:
    data = b"".join(encode_sse(text, "e") for text in texts)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [decode_json(text) for _, text in read_frames(ServerSentEvents(), pieces)] == texts


@pytest.mark.parametrize("framing", [ServerSentEvents, JsonLines])
@given(data=st.binary(max_size=200))
def test_framing_with_junk_raises_nothing(framing: type[Framing], data: bytes) -> None:
    found = [frame for at in range(len(data)) for frame in framing().feed(data[at : at + 1])]
    assert all(isinstance(frame, Frame) for frame in found)


@pytest.mark.parametrize("framing", [ServerSentEvents, JsonLines])
def test_long_frame_in_small_pieces_takes_linear_time(framing: type[Framing]) -> None:
    def seconds(size: int) -> float:
        reader, piece = framing(), b"x" * 10
        begun = time.process_time()
        for frame in (list(reader.feed(p)) for p in [b'data: {"', *[piece] * (size // 10)]):
            assert not frame
        return time.process_time() - begun

    seconds(10_000)
    small, large = (min(seconds(size) for _ in range(3)) for size in (100_000, 800_000))
    assert large < 8 * small * 3


@pytest.mark.parametrize(
    ("framing", "piece"),
    [(ServerSentEvents, b"data:\n"), (ServerSentEvents, b"data"), (JsonLines, b"xx")],
    ids=["many lines", "long line", "long JSON line"],
)
def test_frame_above_the_limit_raises(
    framing: type[Framing], piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolspeak.wires.framing.MAX_FRAME", 1000)
    reader = framing()
    with pytest.raises(WireError, match="more than 1000 bytes"):
        assert not [frame for _ in range(1001) for frame in reader.feed(piece)]


def test_decode_json_with_invalid_json_raises() -> None:
    with pytest.raises(WireError, match="not valid JSON"):
        decode_json(b'{"a": \xff}')
    assert decode_json(encode_json({"a": "\ud800"})) == {"a": "\ud800"}
