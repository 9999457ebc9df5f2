"""What is written in one turn of the event loop leaves together, and nothing of it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from toolspeak.upstream.timers import Ticker
from toolspeak.upstream.write_batching import Corked


class Transport(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self._fails = fails
        self.is_aborted = False

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._fails:
            raise OSError("no")
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.is_aborted = True


def connected(ticker: Ticker, *, fails: bool = False) -> tuple[Corked, Transport]:
    line, transport = Corked(ticker), Transport(fails=fails)
    line.connection_made(transport)
    return line, transport


def in_a_turn(write: Callable[[Ticker], None]) -> None:
    async def turn() -> None:
        write(Ticker())
        await asyncio.sleep(0)

    asyncio.run(turn())


def test_what_one_writes_in_a_turn_leaves_as_one() -> None:
    seen: list[Transport] = []

    def write(ticker: Ticker) -> None:
        line, transport = connected(ticker)
        seen.append(transport)
        line.write(b"one ")
        line.write(b"two")
        assert transport.written == []

    in_a_turn(write)
    assert seen[0].written == [b"one two"]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40, 100])
def test_all_that_write_in_a_turn_are_heard(count: int) -> None:
    seen: list[Transport] = []

    def write(ticker: Ticker) -> None:
        for number in range(count):
            line, transport = connected(ticker)
            seen.append(transport)
            line.write(b"%d" % number)

    in_a_turn(write)
    assert [one.written for one in seen] == [[b"%d" % number] for number in range(count)]


def test_what_is_large_leaves_at_once_and_after_what_came_before() -> None:
    """Whether a client takes it has to be known before more is made."""
    seen: list[Transport] = []

    def write(ticker: Ticker) -> None:
        line, transport = connected(ticker)
        seen.append(transport)
        line.write(b"head ")
        line.write(b"x" * 20_000)
        assert transport.written == [b"head " + b"x" * 20_000]
        line.write(b" end")

    in_a_turn(write)
    assert seen[0].written[1:] == [b" end"]


def test_many_small_ones_are_large_together() -> None:
    def write(ticker: Ticker) -> None:
        line, transport = connected(ticker)
        for _ in range(100):
            line.write(b"x" * 1000)
        assert len(b"".join(transport.written)) > 80_000

    in_a_turn(write)


def test_one_that_cannot_be_written_to_keeps_nothing_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Transport] = []

    def write(ticker: Ticker) -> None:
        for number in range(3):
            line, transport = connected(ticker, fails=number == 1)
            seen.append(transport)
            line.write(b"x")

    in_a_turn(write)
    assert [one.written for one in seen] == [[b"x"], [], [b"x"]]
    assert [one.is_aborted for one in seen] == [False, True, False]
    assert len(caplog.records) == 1


def test_nobody_writes_to_one_that_is_closed() -> None:
    seen: list[Transport] = []

    def write(ticker: Ticker) -> None:
        line, transport = connected(ticker)
        seen.append(transport)
        line.write(b"x")
        line.drop()
        alone = Corked(ticker)
        alone.write(b"never connected")

    in_a_turn(write)
    assert seen[0].written == []
    assert seen[0].is_aborted
