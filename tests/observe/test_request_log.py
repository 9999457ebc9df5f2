"""Requests that are over are bytes until somebody looks: then they are what they were."""

from __future__ import annotations

import asyncio
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any, ClassVar

import pytest

from tests.gateway.running_gateway import Nowhere
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.gateway.http import Sender
from toolspeak.gateway.inspector_recorder import Recorder
from toolspeak.observe.inspector import request_log as ring_module
from toolspeak.observe.inspector import sharing
from toolspeak.observe.inspector.request_log import Ring
from toolspeak.observe.inspector.summary import summary_of
from toolspeak.store.base import MemoryStore
from toolspeak.types import (
    Document,
    Failure,
    Image,
    Note,
    Other,
    Plan,
    Reasoning,
    Rejection,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from toolspeak.upstream.capture import UNCOUNTED, Flow, Kept, Room, weight_of
from toolspeak.upstream.catalog import Endpoint, UpstreamServer
from toolspeak.upstream.record import AttemptRecord, RequestRecord
from toolspeak.upstream.response import UpstreamResponse

ROOM = Room(2**30)


def call(**arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name="get_weather", arguments=arguments, raw="<call>")


def nest(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def served(
    reply: Reply, number: int = 0, *, is_last: bool = True, body: bytes = b"{}"
) -> RequestRecord:
    """A request to which a model has said that."""
    kept = Kept(1.0, ROOM, key=f"req_{number}", target="/v1/x?y", headers={"accept": "*"})
    kept.take(b"data: 1\n\n")
    kept.take(b"data: 2\n\n")
    kept.take_body(body)
    heard = Flow(1.0, ROOM)
    heard.take(b"\xff\x00 not text")
    question = AttemptRecord(
        UpstreamServer("up", "openai_chat", "http://127.0.0.1/v1", "key", {"x": "y"}),
        Plan("prompt", "hermes", True, ("because",)),
        path="/chat/completions",
        model="m",
        reason="invalid-call",
        started=1.5,
        request_body=b"{}",
        response_capture=heard,
        headers={"traceparent": "00"},
        retries=1,
        status=200,
        is_stream=True,
        first_byte=1.6,
        ended=1.7,
        reply=reply if is_last else Reply(parts=(Text("before"),)),
        outcome="calls",
        failure=Failure("upstream", "no", 502, "code", "param", {"a": [1, None, 2.5]}),
    )
    record = RequestRecord(f"req_{number}", "POST", "/v1/x", "openai_chat", is_chat=True)
    record.attempts, record.capture = [question], kept
    record.retries, record.failures = ["upstream"], [("up", "timeout")]
    record.set_reply(reply, (Note("coerced", "text", "$.x"),))
    record.end(200, {"content-type": "application/json"})
    return record


EVERY_PART = Reply(
    parts=(
        Reasoning("hm", "signature", {"x": 1}),
        Text("Ünïcode \U0001f600"),
        call(city="Oslo", days=3, deep={"a": [{"b": None}]}, big=2**63),
        Image(data="aGk="),
        Document("text", "title"),
        ToolResult(call_id="1", name="n", content=(Text("a"), Image(url="u"), Other({"k": 1}))),
        Other({"type": "odd"}),
    ),
    rejected=(Rejection("raw", "unknown-tool", "problem", "$", "name"),),
    notes=(Note("fuzzy-name", "message"),),
    dialect="hermes",
    id="1",
    model="m",
    stop_reason="calls",
    raw_stop_reason="stop",
    usage=Usage(1, 2, 3, 4, 5, {"x": {"y": 1.5}}),
    failure=Failure("timeout", "late", 504),
    wire="openai_chat",
    extra={"fingerprint": "f"},
)
WRITABLE = {
    "every part": EVERY_PART,
    "nothing": Reply(),
    "odd numbers": Reply(parts=(call(x=float("inf"), y=-(2**63), z=1e-300),)),
}
UNWRITABLE = {
    "half a character": Reply(parts=(Text("hi \ud800"),)),
    "half a character in an argument": Reply(parts=(call(city="\udfff"),)),
    "a number that no machine has": Reply(parts=(call(x=2**70),)),
    "a nest": Reply(parts=(call(x=nest(5000)),)),
}


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("name", [*WRITABLE, *UNWRITABLE])
def test_what_is_kept_is_what_it_was(name: str, is_last: bool) -> None:
    reply = {**WRITABLE, **UNWRITABLE}[name]
    record, ring = served(reply, is_last=is_last), Ring()
    ring.end(record)
    [over] = ring.over()
    assert isinstance(over.said, bytes) == (name in WRITABLE)
    assert over.record.reply == reply
    assert over.record == record
    assert over.summary.calls == [one.name for one in reply.calls]


@pytest.mark.parametrize("name", [*WRITABLE, *UNWRITABLE])
def test_one_that_is_under_way_goes_on_without_whoever_looks(name: str) -> None:
    record, ring = served({**WRITABLE, **UNWRITABLE}[name]), Ring()
    record.ended = 0.0
    ring.active["req_0"] = record
    seen = ring.snapshot("req_0")
    assert seen == record
    assert seen
    assert seen.capture
    assert record.capture
    record.capture.take(b"more")
    assert seen.capture.pieces == [b"data: 1\n\n", b"data: 2\n\n"]


def test_a_look_is_remembered_and_only_what_is_kept() -> None:
    ring = Ring(most=3)
    for number in range(3):
        ring.end(served(EVERY_PART, number))
    first = ring.over()
    ring.end(served(EVERY_PART, 3))
    second = ring.over()
    assert [one.summary.id for one in second] == ["req_1", "req_2", "req_3"]
    assert [one.summary for one in second[:2]] == [one.summary for one in first[1:]]
    assert second[0] is first[1]
    assert ring.find("req_0", None) is None
    assert ring.find("req_3", None)
    changes = [one.summary.changed for one in second]
    assert sorted(set(changes)) == changes


@pytest.mark.parametrize("reply", [Reply(parts=(call(x="y"),)), Reply(parts=(call(x="\ud800"),))])
def test_one_that_is_larger_than_all_that_may_be_kept(reply: Reply) -> None:
    ring = Ring(max_bytes=20_000)
    body = b'{"messages":[{"role":"user","content":"Who?"}],"x":"' + b"x" * 30_000 + b'"}'
    ring.end(served(reply, body=body))
    [over] = ring.over()
    assert (over.summary.asked, over.summary.calls) == ("Who?", ["get_weather"])
    assert over.record.capture
    assert over.record.capture.size == 18
    assert ring.size < 20_000


def test_what_is_forgotten_is_forgotten_also_by_those_who_have_looked() -> None:
    ring = Ring(most=10)
    for number in range(10):
        ring.end(served(EVERY_PART, number))
    assert len(ring.over()) == 10
    looked = ring._looked  # pyright: ignore[reportPrivateUsage]
    for number in range(10, 14):
        ring.end(served(EVERY_PART, number))
    assert len(looked) == 6
    ring.resize(0, 0)
    assert (ring.size, ring.over(), looked) == (0, [], {})


def test_what_takes_room_is_what_is_counted() -> None:
    ring, reply = Ring(), Reply(parts=(Text("x"),))
    records = [served(reply, number, body=b"x" * 3000) for number in range(300)]
    tracemalloc.start()
    try:
        for record in records:
            ring.end(record)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ring.size < held < 1.1 * ring.size


@pytest.mark.parametrize("name", ["every part", "half a character"])
def test_the_request_was_served_whatever_goes_wrong_in_writing_it_down(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(record: RequestRecord) -> None:
        raise ValueError(record.id)

    monkeypatch.setattr(ring_module, "summary_of", odd)
    ring = Ring(max_bytes=1000)
    ring.end(served({**WRITABLE, **UNWRITABLE}[name], body=b"x" * 5000))
    assert len(caplog.records) == 1
    assert (ring.size, ring.over()) == (0, [])


def test_many_look_while_requests_come_and_go() -> None:
    ring = Ring(most=50)
    is_over = threading.Event()
    looks: list[int] = []

    def look() -> None:
        while not is_over.is_set():
            found = ring.over()
            numbers = [int(one.summary.id[4:]) for one in found]
            assert numbers == sorted(numbers)
            looks.append(len(found))

    with ThreadPoolExecutor(3) as threads:
        looking = [threads.submit(look) for _ in range(3)]
        for number in range(2000):
            reply = UNWRITABLE["half a character"] if number % 7 == 0 else EVERY_PART
            ring.end(served(reply, number))
            if number % 100 == 0:
                sleep(0.005)
        is_over.set()
        for one in looking:
            one.result()
    assert looks
    assert len(ring.over()) == len(ring._looked) == 50  # pyright: ignore[reportPrivateUsage]


def test_room_is_given_back() -> None:
    ring = Ring()
    before = ring.room.left
    for _ in range(50):
        record = RequestRecord()
        kept = record.capture = Kept(0.0, ring.room, key="req_1")
        for size in (10, 5000, 30) * 20:
            kept.take(b"x" * size)
        kept.take_body(b"y" * 700)
        ring.end(record)
    assert ring.room.left == before


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_so_many_are_kept(most: int) -> None:
    ring = Ring(most=most)
    for number in range(most + 100):
        ring.end(served(EVERY_PART, number))
    assert [one.summary.id for one in ring.over()] == [f"req_{100 + n}" for n in range(most)]
    for number in (100, 99 + most):
        found = ring.find(f"req_{number}", None)
        assert found
        assert found.id == f"req_{number}"


@pytest.mark.parametrize("size", [3_000, 20_000, 80_000, 200_000])
def test_so_many_bytes_are_kept(size: int) -> None:
    """About all that there is room for, and never more; those that ended last."""
    ring = Ring(max_bytes=1_000_000)
    for number in range(500):
        ring.end(served(EVERY_PART, number, body=b"x" * size))
        assert ring.size <= 1_000_000
    kept = [one.summary.id for one in ring.over()]
    assert kept == [f"req_{500 - len(kept) + n}" for n in range(len(kept))]
    assert len(kept) >= 1_000_000 // (size + 2_000)


def test_a_large_one_takes_no_others_along_when_it_has_to_go() -> None:
    ring = Ring(max_bytes=1_000_000)
    for number in range(5):
        ring.end(served(EVERY_PART, number))
    ring.end(served(EVERY_PART, 5, body=b"x" * 600_000))
    for number in range(6, 10):
        ring.end(served(EVERY_PART, number))
    ring.end(served(EVERY_PART, 10, body=b"x" * 600_000))
    assert [one.summary.id for one in ring.over()] == [f"req_{n}" for n in range(6, 11)]


def test_one_that_cannot_be_written_keeps_no_others_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even if nobody has foreseen why."""
    ring, write = Ring(), ring_module._write  # pyright: ignore[reportPrivateUsage]

    def odd(record: RequestRecord, paper: bytearray) -> None:
        if record.id == "req_1":
            raise MemoryError
        write(record, paper)

    monkeypatch.setattr(ring_module, "_write", odd)
    for number in range(3):
        ring.end(served(EVERY_PART, number))
    assert [one.summary.id for one in ring.over()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1


def test_nothing_of_a_request_that_is_over_stays_as_it_was() -> None:
    """What the model said is there beside the bytes, also where there was no room for those."""
    ring = Ring()
    ring.room.left = 0
    for number in range(3):
        record = served(EVERY_PART, number)
        kept = record.capture = Kept(0.0, ring.room, key=record.id)
        kept.take(b"x" * 400_000)
        before = sys.getrefcount(record)
        ring.active[record.id] = record
        ring.end(record)
        assert sys.getrefcount(record) == before
    assert len(ring.over()) == 3


def test_there_is_no_more_than_there_is_room_for() -> None:
    flow = Flow(0.0, Room(50_000))
    for size in (10, 5000) * 100:
        flow.take(b"x" * size)
    assert 40_000 < sum(map(len, flow.pieces)) <= 50_000
    assert flow.size == 501_000
    assert [data for _, data in flow.each()] == flow.pieces


class Dripping:
    """A connection on which a reply comes piece by piece."""

    status = 200
    headers: ClassVar = {"content-type": "text/event-stream"}

    def __init__(self, piece: bytes) -> None:
        self._piece = piece

    def take(self) -> bytes:
        return self._piece


@pytest.mark.parametrize("size", [1, 30, 300, 5000])
def test_pieces_of_every_size_take_room(size: int) -> None:
    """Of what comes from a model, and of what leaves to the client."""
    room = Room(1_000_000)
    endpoint = Endpoint("up", "openai_chat", "http://127.0.0.1/v1", "", {}, UpstreamSettings())
    connection: Any = Dripping(b"x" * size)

    async def streams() -> Flow:
        response = UpstreamResponse(connection, endpoint, lambda _: None)
        heard, kept, sender = Flow(0.0, room), Kept(0.0, room), Sender(Nowhere())
        response.capture_to(heard, kept)
        sender.copy = kept
        for _ in range(200_000 // (size + 80)):
            await sender.more(await response.read_chunk(), 1.0)
        for flow in (heard, kept):
            assert 0.9 * weight_of(flow.pieces) - 3 * UNCOUNTED < flow.weight
        return heard

    flows = [asyncio.run(streams()) for _ in range(5)]
    assert room.left < 3 * UNCOUNTED
    assert flows[0].lost == 0
    assert flows[-1].lost


def test_what_leaves_at_last_takes_room() -> None:
    """Also where nothing more comes from the model."""
    nowhere = Nowhere()
    sender = Sender(nowhere)
    kept = Kept(0.0, Room(50_000))
    sender.copy = kept
    asyncio.run(sender.more(b"x" * 100_000, 1.0))
    assert (kept.pieces, kept.lost, nowhere.written) == ([], 100_000, 1)


def test_less_room_than_when_they_were_written() -> None:
    """The last that fit stay."""
    ring = Ring()
    for number in range(15):
        ring.end(served(EVERY_PART, number, body=b"x" * 2000))
    ring.resize(1000, 30_000)
    kept = [one.summary.id for one in ring.over()]
    assert len(kept) > 5
    assert kept == [f"req_{n}" for n in range(15 - len(kept), 15)]
    assert ring.size <= 30_000


def test_one_that_cannot_be_written_leaves_the_others_as_they_are() -> None:
    ring, odd = Ring(), UNWRITABLE["half a character"]
    long = Reply(parts=(Text("x" * 10_000), *odd.parts))
    for number, reply in enumerate((EVERY_PART, long, Reply(), odd, EVERY_PART)):
        ring.end(served(reply, number))
    assert [one.summary.id for one in ring.over()] == [f"req_{n}" for n in range(5)]
    assert [one.record.reply for one in ring.over()] == [EVERY_PART, long, Reply(), odd, EVERY_PART]


def test_what_cannot_be_read_hides_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """An upstream may count in ways of its own."""
    ring, odd = Ring(), Reply(usage=Usage("many"))  # pyright: ignore[reportArgumentType]
    for number, reply in enumerate((EVERY_PART, odd, EVERY_PART)):
        ring.end(served(reply, number))
    for _ in range(2):
        assert [one.summary.id for one in ring.over()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1
    assert ring.find("req_2", None)


def test_requests_as_they_are_count_with_all_that_they_hold() -> None:
    ring, held = Ring(most=10_000, max_bytes=200_000), 0
    for number in range(100):
        record = served(UNWRITABLE["half a character"], number)
        assert record.capture
        record.capture.said += [1.0, b"x" * 1500] * 10
        ring.end(record)
    for over in ring.over():
        assert over.record.capture
        held += sum(map(len, over.record.capture.pieces))
    assert 50_000 < held < 200_000


def test_one_too_large_still_says_who_answered() -> None:
    ring = Ring(max_bytes=10_000)
    record = served(EVERY_PART, body=b"x" * 20_000)
    record.first_upstream = "another"
    ring.end(record)
    [over] = ring.over()
    assert over.summary.upstream == "up"
    assert over.record.reply
    assert over.record.reply.usage == EVERY_PART.usage


def test_what_was_asked_is_known_as_soon_as_it_is_there() -> None:
    record = served(Reply())
    kept = record.capture
    assert kept
    kept.body = b""
    assert summary_of(record).asked == ""
    kept.body = b'{"messages":[{"role":"user","content":"Who?"}]}'
    assert summary_of(record).asked == "Who?"


def test_one_that_ends_while_somebody_looks_is_told_of_the_next_time() -> None:
    """With all that ended before it: whoever follows would not go back for them."""
    recorder = Recorder(Config(), MemoryStore(), is_shared=False, epoch="")
    record = served(EVERY_PART)
    assert record.capture
    ring = recorder._ring  # pyright: ignore[reportPrivateUsage]
    ring.active[record.capture.key] = record
    assert asyncio.run(recorder.summaries()) == []
    recorder.end(record)
    [told] = asyncio.run(recorder.summaries())
    assert told.is_over


def test_the_first_look_waits_for_what_others_have_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells anything while nobody looks."""
    monkeypatch.setattr(sharing, "_IDLE", 0.1)

    async def looks() -> list[list[str]]:
        store = MemoryStore()
        recorders = [Recorder(Config(), store, is_shared=True, epoch="") for _ in range(2)]
        for number, recorder in enumerate(recorders):
            recorder.start()
            recorder.end(served(EVERY_PART, number))
        await asyncio.sleep(0.3)
        found = [[one.id for one in await recorders[0].summaries()] for _ in range(2)]
        for recorder in recorders:
            recorder.stop()
        return found

    assert [sorted(ids) for ids in asyncio.run(looks())] == [["req_0", "req_1"]] * 2
