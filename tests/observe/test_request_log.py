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
from toolspeak.observe.inspector import recorder as recorder_module
from toolspeak.observe.inspector import request_log as log_module
from toolspeak.observe.inspector.recorder import RequestRecorder
from toolspeak.observe.inspector.request_log import (
    RequestLog,
    RequestSummary,
    summarize_request,
)
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
from toolspeak.upstream.catalog import Endpoint, UpstreamServer
from toolspeak.upstream.client import UpstreamResponse
from toolspeak.upstream.record import (
    RECOUNT_AFTER,
    AttemptRecord,
    CaptureBudget,
    RequestCapture,
    RequestRecord,
    StreamCapture,
    memory_size,
)

ROOM = CaptureBudget(2**30)


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
    kept = RequestCapture(1.0, ROOM, key=f"req_{number}", target="/v1/x?y", headers={"accept": "*"})
    kept.add(b"data: 1\n\n")
    kept.add(b"data: 2\n\n")
    kept.set_body(body)
    heard = StreamCapture(1.0, ROOM)
    heard.add(b"\xff\x00 not text")
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
    record, log = served(reply, is_last=is_last), RequestLog()
    log.finish(record)
    [over] = log.list_finished()
    assert isinstance(over.stored, bytes) == (name in WRITABLE)
    assert over.record.reply == reply
    assert over.record == record
    assert over.summary.calls == [one.name for one in reply.calls]


@pytest.mark.parametrize("name", [*WRITABLE, *UNWRITABLE])
def test_one_that_is_under_way_goes_on_without_whoever_looks(name: str) -> None:
    record, log = served({**WRITABLE, **UNWRITABLE}[name]), RequestLog()
    record.ended = 0.0
    log.active["req_0"] = record
    seen = log.snapshot_active("req_0")
    assert seen == record
    assert seen
    assert seen.capture
    assert record.capture
    record.capture.add(b"more")
    assert seen.capture.chunks == [b"data: 1\n\n", b"data: 2\n\n"]


def test_a_look_is_remembered_and_only_what_is_kept() -> None:
    log = RequestLog(max_requests=3)
    for number in range(3):
        log.finish(served(EVERY_PART, number))
    first = log.list_finished()
    log.finish(served(EVERY_PART, 3))
    second = log.list_finished()
    assert [one.summary.id for one in second] == ["req_1", "req_2", "req_3"]
    assert [one.summary for one in second[:2]] == [one.summary for one in first[1:]]
    assert second[0] is first[1]
    assert log.find_record("req_0", None) is None
    assert log.find_record("req_3", None)
    changes = [one.summary.changed_at for one in second]
    assert sorted(set(changes)) == changes


@pytest.mark.parametrize("reply", [Reply(parts=(call(x="y"),)), Reply(parts=(call(x="\ud800"),))])
def test_one_that_is_larger_than_all_that_may_be_kept(reply: Reply) -> None:
    log = RequestLog(max_bytes=20_000)
    body = b'{"messages":[{"role":"user","content":"Who?"}],"x":"' + b"x" * 30_000 + b'"}'
    log.finish(served(reply, body=body))
    [over] = log.list_finished()
    assert (over.summary.user_message, over.summary.calls) == ("Who?", ["get_weather"])
    assert over.record.capture
    assert over.record.capture.size == 18
    assert log.size < 20_000


def test_what_is_forgotten_is_forgotten_also_by_those_who_have_looked() -> None:
    log = RequestLog(max_requests=10)
    for number in range(10):
        log.finish(served(EVERY_PART, number))
    assert len(log.list_finished()) == 10
    for number in range(10, 14):
        log.finish(served(EVERY_PART, number))
    assert [one.summary.id for one in log.list_finished()] == [f"req_{n}" for n in range(4, 14)]
    log.resize(0, 0)
    assert (log.size, log.list_finished()) == (0, [])


def test_what_takes_room_is_what_is_counted() -> None:
    log, reply = RequestLog(), Reply(parts=(Text("x"),))
    records = [served(reply, number, body=b"x" * 3000) for number in range(300)]
    tracemalloc.start()
    try:
        for record in records:
            log.finish(record)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.size < held < 1.1 * log.size


@pytest.mark.parametrize("name", ["every part", "half a character"])
def test_the_request_was_served_whatever_goes_wrong_in_writing_it_down(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(record: RequestRecord) -> None:
        raise ValueError(record.id)

    monkeypatch.setattr(log_module, "summarize_request", odd)
    log = RequestLog(max_bytes=1000)
    log.finish(served({**WRITABLE, **UNWRITABLE}[name], body=b"x" * 5000))
    assert len(caplog.records) == 1
    assert (log.size, log.list_finished()) == (0, [])


def test_many_look_while_requests_come_and_go() -> None:
    log = RequestLog(max_requests=50)
    is_over = threading.Event()
    looks: list[int] = []

    def look() -> None:
        while not is_over.is_set():
            found = log.list_finished()
            numbers = [int(one.summary.id[4:]) for one in found]
            assert numbers == sorted(numbers)
            looks.append(len(found))

    with ThreadPoolExecutor(3) as threads:
        looking = [threads.submit(look) for _ in range(3)]
        for number in range(2000):
            reply = UNWRITABLE["half a character"] if number % 7 == 0 else EVERY_PART
            log.finish(served(reply, number))
            if number % 100 == 0:
                sleep(0.005)
        is_over.set()
        for one in looking:
            one.result()
    assert looks
    assert len(log.list_finished()) == 50


def test_room_is_given_back() -> None:
    log = RequestLog()
    before = log.budget.remaining
    for _ in range(50):
        record = RequestRecord()
        kept = record.capture = RequestCapture(0.0, log.budget, key="req_1")
        for size in (10, 5000, 30) * 20:
            kept.add(b"x" * size)
        kept.set_body(b"y" * 700)
        log.finish(record)
    assert log.budget.remaining == before


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_so_many_are_kept(most: int) -> None:
    log = RequestLog(max_requests=most)
    for number in range(most + 100):
        log.finish(served(EVERY_PART, number))
    assert [one.summary.id for one in log.list_finished()] == [
        f"req_{100 + n}" for n in range(most)
    ]
    for number in (100, 99 + most):
        found = log.find_record(f"req_{number}", None)
        assert found
        assert found.id == f"req_{number}"


@pytest.mark.parametrize("size", [3_000, 20_000, 80_000, 200_000])
def test_so_many_bytes_are_kept(size: int) -> None:
    """About all that there is room for, and never more; those that ended last."""
    log = RequestLog(max_bytes=1_000_000)
    for number in range(500):
        log.finish(served(EVERY_PART, number, body=b"x" * size))
        assert log.size <= 1_000_000
    kept = [one.summary.id for one in log.list_finished()]
    assert kept == [f"req_{500 - len(kept) + n}" for n in range(len(kept))]
    assert len(kept) >= 1_000_000 // (size + 2_000)


def test_a_large_one_takes_no_others_along_when_it_has_to_go() -> None:
    log = RequestLog(max_bytes=1_000_000)
    for number in range(5):
        log.finish(served(EVERY_PART, number))
    log.finish(served(EVERY_PART, 5, body=b"x" * 600_000))
    for number in range(6, 10):
        log.finish(served(EVERY_PART, number))
    log.finish(served(EVERY_PART, 10, body=b"x" * 600_000))
    assert [one.summary.id for one in log.list_finished()] == [f"req_{n}" for n in range(6, 11)]


def test_one_that_cannot_be_written_keeps_no_others_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even if nobody has foreseen why."""
    log, write = RequestLog(), log_module._encode_into  # pyright: ignore[reportPrivateUsage]

    def odd(record: RequestRecord, paper: bytearray) -> None:
        if record.id == "req_1":
            raise MemoryError
        write(record, paper)

    monkeypatch.setattr(log_module, "_encode_into", odd)
    for number in range(3):
        log.finish(served(EVERY_PART, number))
    assert [one.summary.id for one in log.list_finished()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1


def test_nothing_of_a_request_that_is_over_stays_as_it_was() -> None:
    """What the model said is there beside the bytes, also where there was no room for those."""
    log = RequestLog()
    log.budget.remaining = 0
    for number in range(3):
        record = served(EVERY_PART, number)
        kept = record.capture = RequestCapture(0.0, log.budget, key=record.id)
        kept.add(b"x" * 400_000)
        before = sys.getrefcount(record)
        log.active[record.id] = record
        log.finish(record)
        assert sys.getrefcount(record) == before
    assert len(log.list_finished()) == 3


def test_there_is_no_more_than_there_is_room_for() -> None:
    flow = StreamCapture(0.0, CaptureBudget(50_000))
    for size in (10, 5000) * 100:
        flow.add(b"x" * size)
    assert 40_000 < sum(map(len, flow.chunks)) <= 50_000
    assert flow.size == 501_000
    assert [data for _, data in flow.timed_chunks()] == flow.chunks


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
    room = CaptureBudget(1_000_000)
    endpoint = Endpoint("up", "openai_chat", "http://127.0.0.1/v1", "", {}, UpstreamSettings())
    connection: Any = Dripping(b"x" * size)

    async def streams() -> StreamCapture:
        response = UpstreamResponse(connection, endpoint, lambda _: None)
        heard, kept, sender = StreamCapture(0.0, room), RequestCapture(0.0, room), Sender(Nowhere())
        response.capture_to(heard, kept)
        sender.copy = kept
        for _ in range(200_000 // (size + 80)):
            await sender.more(await response.read_chunk(), 1.0)
        for flow in (heard, kept):
            assert 0.9 * memory_size(flow.chunks) - 3 * RECOUNT_AFTER < flow.reserved
        return heard

    flows = [asyncio.run(streams()) for _ in range(5)]
    assert room.remaining < 3 * RECOUNT_AFTER
    assert flows[0].dropped == 0
    assert flows[-1].dropped


def test_what_leaves_at_last_takes_room() -> None:
    """Also where nothing more comes from the model."""
    nowhere = Nowhere()
    sender = Sender(nowhere)
    kept = RequestCapture(0.0, CaptureBudget(50_000))
    sender.copy = kept
    asyncio.run(sender.more(b"x" * 100_000, 1.0))
    assert (kept.chunks, kept.dropped, nowhere.written) == ([], 100_000, 1)


def test_less_room_than_when_they_were_written() -> None:
    """The last that fit stay."""
    log = RequestLog()
    for number in range(15):
        log.finish(served(EVERY_PART, number, body=b"x" * 2000))
    log.resize(1000, 30_000)
    kept = [one.summary.id for one in log.list_finished()]
    assert len(kept) > 5
    assert kept == [f"req_{n}" for n in range(15 - len(kept), 15)]
    assert log.size <= 30_000


def test_one_that_cannot_be_written_leaves_the_others_as_they_are() -> None:
    log, odd = RequestLog(), UNWRITABLE["half a character"]
    long = Reply(parts=(Text("x" * 10_000), *odd.parts))
    for number, reply in enumerate((EVERY_PART, long, Reply(), odd, EVERY_PART)):
        log.finish(served(reply, number))
    assert [one.summary.id for one in log.list_finished()] == [f"req_{n}" for n in range(5)]
    assert [one.record.reply for one in log.list_finished()] == [
        EVERY_PART,
        long,
        Reply(),
        odd,
        EVERY_PART,
    ]


def test_what_cannot_be_read_hides_no_others(caplog: pytest.LogCaptureFixture) -> None:
    """An upstream may count in ways of its own."""
    log, odd = RequestLog(), Reply(usage=Usage("many"))  # pyright: ignore[reportArgumentType]
    for number, reply in enumerate((EVERY_PART, odd, EVERY_PART)):
        log.finish(served(reply, number))
    for _ in range(2):
        assert [one.summary.id for one in log.list_finished()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1
    assert log.find_record("req_2", None)


def test_requests_as_they_are_count_with_all_that_they_hold() -> None:
    log, held = RequestLog(max_requests=10_000, max_bytes=200_000), 0
    for number in range(100):
        record = served(UNWRITABLE["half a character"], number)
        assert record.capture
        record.capture.entries += [1.0, b"x" * 1500] * 10
        log.finish(record)
    for over in log.list_finished():
        assert over.record.capture
        held += sum(map(len, over.record.capture.chunks))
    assert 50_000 < held < 200_000


def test_one_too_large_still_says_who_answered() -> None:
    log = RequestLog(max_bytes=10_000)
    record = served(EVERY_PART, body=b"x" * 20_000)
    record.first_upstream = "another"
    log.finish(record)
    [over] = log.list_finished()
    assert over.summary.upstream == "up"
    assert over.record.reply
    assert over.record.reply.usage == EVERY_PART.usage


def test_what_was_asked_is_known_as_soon_as_it_is_there() -> None:
    record = served(Reply())
    kept = record.capture
    assert kept
    kept.body = b""
    assert summarize_request(record).user_message == ""
    kept.body = b'{"messages":[{"role":"user","content":"Who?"}]}'
    assert summarize_request(record).user_message == "Who?"


def test_one_that_ends_while_somebody_looks_is_told_of_the_next_time() -> None:
    """With all that ended before it: whoever follows would not go back for them."""
    recorder = RequestRecorder(Config(), MemoryStore(), is_shared=False, epoch="")
    record = served(EVERY_PART)
    assert record.capture
    log = recorder._log  # pyright: ignore[reportPrivateUsage]
    log.active[record.capture.key] = record
    assert asyncio.run(recorder.list_summaries()) == []
    recorder.end(record)
    [told] = asyncio.run(recorder.list_summaries())
    assert told.is_finished


def test_the_first_look_waits_for_what_others_have_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells anything while nobody looks."""
    monkeypatch.setattr(recorder_module, "_IDLE_INTERVAL", 0.1)

    async def looks() -> list[list[str]]:
        store = MemoryStore()
        recorders = [RequestRecorder(Config(), store, is_shared=True, epoch="") for _ in range(2)]
        for number, recorder in enumerate(recorders):
            recorder.start()
            recorder.end(served(EVERY_PART, number))
        await asyncio.sleep(0.3)
        found = [[one.id for one in await recorders[0].list_summaries()] for _ in range(2)]
        for recorder in recorders:
            recorder.stop()
        return found

    assert [sorted(ids) for ids in asyncio.run(looks())] == [["req_0", "req_1"]] * 2


def test_worker_that_is_always_busy_stays_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 1000, 5))
    monkeypatch.setattr(recorder_module, "monotonic", lambda: float(next(times)))

    async def count_announcements() -> int:
        store, log = MemoryStore(), RequestLog()
        record = served(EVERY_PART)
        assert record.capture
        log.active[record.capture.key] = record

        async def render(_: str) -> None:
            return None

        async def summarize() -> list[RequestSummary]:
            return []

        sharing = recorder_module.WorkerSharing(log, store, render, summarize)
        for _ in range(12):
            await sharing._publish_summaries()  # pyright: ignore[reportPrivateUsage]
        return len(await store.list_items("inspector:workers"))

    assert asyncio.run(count_announcements()) > 2
