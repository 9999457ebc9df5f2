"""The log of finished requests: it stores them as bytes, within limits, and restores them."""

from __future__ import annotations

import asyncio
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any, ClassVar

import pytest

from tests.gateway.running_gateway import AsgiExchange
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.gateway.http import HttpResponse
from toolspeak.observe.inspector import recorder as recorder_module
from toolspeak.observe.inspector import request_log as log_module
from toolspeak.observe.inspector.recorder import RequestRecorder
from toolspeak.observe.inspector.request_log import RequestLog, RequestSummary, summarize_request
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

BUDGET = CaptureBudget(2**30)


def make_call(**arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name="get_weather", arguments=arguments, raw="<call>")


def nest(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def make_record(
    reply: Reply, number: int = 0, *, is_last: bool = True, body: bytes = b"{}"
) -> RequestRecord:
    """Return the record of a request with this reply."""
    capture = RequestCapture(
        1.0, BUDGET, key=f"req_{number}", target="/v1/x?y", headers={"accept": "*"}
    )
    capture.add(b"data: 1\n\n")
    capture.add(b"data: 2\n\n")
    capture.set_body(body)
    response = StreamCapture(1.0, BUDGET)
    response.add(b"\xff\x00 not text")
    attempt = AttemptRecord(
        UpstreamServer("up", "openai_chat", "http://127.0.0.1/v1", "key", {"x": "y"}),
        Plan("prompt", "hermes", True, ("because",)),
        path="/chat/completions",
        model="m",
        reason="invalid-call",
        started=1.5,
        request_body=b"{}",
        response_capture=response,
        headers={"traceparent": "00"},
        resends=1,
        status=200,
        is_stream=True,
        first_byte=1.6,
        ended=1.7,
        reply=reply if is_last else Reply(parts=(Text("before"),)),
        outcome="calls",
        failure=Failure("upstream", "no", 502, "code", "param", {"a": [1, None, 2.5]}),
    )
    record = RequestRecord(f"req_{number}", "POST", "/v1/x", "openai_chat", is_chat=True)
    record.attempts, record.capture = [attempt], capture
    record.retries, record.failures = ["upstream"], [("up", "timeout")]
    record.set_reply(reply, (Note("coerced", "text", "$.x"),))
    record.end(200, {"content-type": "application/json"})
    return record


EVERY_PART = Reply(
    parts=(
        Reasoning("hm", "signature", {"x": 1}),
        Text("Ünïcode \U0001f600"),
        make_call(city="Oslo", days=3, deep={"a": [{"b": None}]}, big=2**63),
        Image(data="aGk="),
        Document("text", "title"),
        ToolResult(call_id="1", name="n", content=(Text("a"), Image(url="u"), Other({"k": 1}))),
        Other({"type": "unknown"}),
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
    "empty": Reply(),
    "unusual numbers": Reply(parts=(make_call(x=float("inf"), y=-(2**63), z=1e-300),)),
}
UNWRITABLE = {
    "lone surrogate": Reply(parts=(Text("hi \ud800"),)),
    "lone surrogate in an argument": Reply(parts=(make_call(city="\udfff"),)),
    "integer of 71 bits": Reply(parts=(make_call(x=2**70),)),
    "deep nesting": Reply(parts=(make_call(x=nest(5000)),)),
}


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("name", [*WRITABLE, *UNWRITABLE])
def test_finished_record_is_restored_unchanged(name: str, is_last: bool) -> None:
    reply = {**WRITABLE, **UNWRITABLE}[name]
    record, log = make_record(reply, is_last=is_last), RequestLog()
    log.finish(record)
    [finished] = log.list_finished()
    assert isinstance(finished.stored, bytes) == (name in WRITABLE)
    assert finished.record.reply == reply
    assert finished.record == record
    assert finished.summary.calls == [call.name for call in reply.calls]


@pytest.mark.parametrize("name", [*WRITABLE, *UNWRITABLE])
def test_snapshot_of_active_record_does_not_change(name: str) -> None:
    record, log = make_record({**WRITABLE, **UNWRITABLE}[name]), RequestLog()
    record.ended = 0.0
    log.active["req_0"] = record
    snapshot = log.snapshot_active("req_0")
    assert snapshot == record
    assert snapshot
    assert snapshot.capture
    assert record.capture
    record.capture.add(b"more")
    assert snapshot.capture.chunks == [b"data: 1\n\n", b"data: 2\n\n"]


def test_list_of_finished_records_is_cached_and_limited() -> None:
    log = RequestLog(max_requests=3)
    for number in range(3):
        log.finish(make_record(EVERY_PART, number))
    first = log.list_finished()
    log.finish(make_record(EVERY_PART, 3))
    second = log.list_finished()
    assert [item.summary.id for item in second] == ["req_1", "req_2", "req_3"]
    assert [one.summary for one in second[:2]] == [one.summary for one in first[1:]]
    assert second[0] is first[1]
    assert log.find_record("req_0", None) is None
    assert log.find_record("req_3", None)
    changes = [one.summary.changed_at for one in second]
    assert sorted(set(changes)) == changes


@pytest.mark.parametrize(
    "reply", [Reply(parts=(make_call(x="y"),)), Reply(parts=(make_call(x="\ud800"),))]
)
def test_record_over_the_limit_is_stored_without_its_bytes(reply: Reply) -> None:
    log = RequestLog(max_bytes=20_000)
    body = b'{"messages":[{"role":"user","content":"Who?"}],"x":"' + b"x" * 30_000 + b'"}'
    log.finish(make_record(reply, body=body))
    [finished] = log.list_finished()
    assert (finished.summary.user_message, finished.summary.calls) == ("Who?", ["get_weather"])
    assert finished.record.capture
    assert finished.record.capture.size == 18
    assert log.size < 20_000


def test_dropped_records_leave_the_cached_list() -> None:
    log = RequestLog(max_requests=10)
    for number in range(10):
        log.finish(make_record(EVERY_PART, number))
    assert len(log.list_finished()) == 10
    for number in range(10, 14):
        log.finish(make_record(EVERY_PART, number))
    assert [item.summary.id for item in log.list_finished()] == [f"req_{n}" for n in range(4, 14)]
    log.resize(0, 0)
    assert (log.size, log.list_finished()) == (0, [])


def test_size_of_log_matches_its_memory() -> None:
    log, reply = RequestLog(), Reply(parts=(Text("x"),))
    records = [make_record(reply, number, body=b"x" * 3000) for number in range(300)]
    tracemalloc.start()
    try:
        for record in records:
            log.finish(record)
        traced, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert log.size < traced < 1.1 * log.size


@pytest.mark.parametrize("name", ["every part", "lone surrogate"])
def test_error_in_summary_is_logged_and_drops_the_record(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(record: RequestRecord) -> None:
        raise ValueError(record.id)

    monkeypatch.setattr(log_module, "summarize_request", fail)
    log = RequestLog(max_bytes=1000)
    log.finish(make_record({**WRITABLE, **UNWRITABLE}[name], body=b"x" * 5000))
    assert len(caplog.records) == 1
    assert (log.size, log.list_finished()) == (0, [])


def test_log_can_be_read_by_threads_while_it_changes() -> None:
    log = RequestLog(max_requests=50)
    has_ended = threading.Event()
    counts: list[int] = []

    def read() -> None:
        while not has_ended.is_set():
            found = log.list_finished()
            numbers = [int(one.summary.id[4:]) for one in found]
            assert numbers == sorted(numbers)
            counts.append(len(found))

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(read) for _ in range(3)]
        for number in range(2000):
            reply = UNWRITABLE["lone surrogate"] if number % 7 == 0 else EVERY_PART
            log.finish(make_record(reply, number))
            if number % 100 == 0:
                sleep(0.005)
        has_ended.set()
        for reader in readers:
            reader.result()
    assert counts
    assert len(log.list_finished()) == 50


def test_finished_request_returns_its_budget() -> None:
    log = RequestLog()
    before = log.budget.remaining
    for _ in range(50):
        record = RequestRecord()
        capture = record.capture = RequestCapture(0.0, log.budget, key="req_1")
        for size in (10, 5000, 30) * 20:
            capture.add(b"x" * size)
        capture.set_body(b"y" * 700)
        log.finish(record)
    assert log.budget.remaining == before


@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
def test_log_keeps_the_newest_requests(limit: int) -> None:
    log = RequestLog(max_requests=limit)
    for number in range(limit + 100):
        log.finish(make_record(EVERY_PART, number))
    assert [item.summary.id for item in log.list_finished()] == [
        f"req_{100 + n}" for n in range(limit)
    ]
    for number in (100, 99 + limit):
        found = log.find_record(f"req_{number}", None)
        assert found
        assert found.id == f"req_{number}"


@pytest.mark.parametrize("size", [3_000, 20_000, 80_000, 200_000])
def test_log_keeps_the_newest_bytes(size: int) -> None:
    """It uses nearly all of its limit, and never more."""
    log = RequestLog(max_bytes=1_000_000)
    for number in range(500):
        log.finish(make_record(EVERY_PART, number, body=b"x" * size))
        assert log.size <= 1_000_000
    kept_ids = [item.summary.id for item in log.list_finished()]
    assert kept_ids == [f"req_{500 - len(kept_ids) + n}" for n in range(len(kept_ids))]
    assert len(kept_ids) >= 1_000_000 // (size + 2_000)


def test_large_record_alone_is_dropped_for_another_one() -> None:
    log = RequestLog(max_bytes=1_000_000)
    for number in range(5):
        log.finish(make_record(EVERY_PART, number))
    log.finish(make_record(EVERY_PART, 5, body=b"x" * 600_000))
    for number in range(6, 10):
        log.finish(make_record(EVERY_PART, number))
    log.finish(make_record(EVERY_PART, 10, body=b"x" * 600_000))
    assert [item.summary.id for item in log.list_finished()] == [f"req_{n}" for n in range(6, 11)]


def test_unexpected_error_while_writing_drops_only_its_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, write = RequestLog(), log_module._encode_into  # pyright: ignore[reportPrivateUsage]

    def fail_for_one(record: RequestRecord, buffer: bytearray) -> None:
        if record.id == "req_1":
            raise MemoryError
        write(record, buffer)

    monkeypatch.setattr(log_module, "_encode_into", fail_for_one)
    for number in range(3):
        log.finish(make_record(EVERY_PART, number))
    assert [item.summary.id for item in log.list_finished()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1


def test_finished_record_is_not_referenced() -> None:
    """Also if its bytes were over the budget: its decoded reply is stored, not the object."""
    log = RequestLog()
    log.budget.remaining = 0
    for number in range(3):
        record = make_record(EVERY_PART, number)
        capture = record.capture = RequestCapture(0.0, log.budget, key=record.id)
        capture.add(b"x" * 400_000)
        before = sys.getrefcount(record)
        log.active[record.id] = record
        log.finish(record)
        assert sys.getrefcount(record) == before
    assert len(log.list_finished()) == 3


def test_capture_stays_within_its_budget() -> None:
    capture = StreamCapture(0.0, CaptureBudget(50_000))
    for size in (10, 5000) * 100:
        capture.add(b"x" * size)
    assert 40_000 < sum(map(len, capture.chunks)) <= 50_000
    assert capture.size == 501_000
    assert [data for _, data in capture.timed_chunks()] == capture.chunks


class RepeatingConnection:
    """A connection that sends the same chunk again and again."""

    status = 200
    headers: ClassVar = {"content-type": "text/event-stream"}

    def __init__(self, chunk: bytes) -> None:
        self._chunk = chunk

    def read_nowait(self) -> bytes:
        return self._chunk


@pytest.mark.parametrize("size", [1, 30, 300, 5000])
def test_chunks_of_every_size_use_the_budget(size: int) -> None:
    """Both the upstream's response and the response to the client are counted."""
    budget = CaptureBudget(1_000_000)
    endpoint = Endpoint("up", "openai_chat", "http://127.0.0.1/v1", "", {}, UpstreamSettings())
    connection: Any = RepeatingConnection(b"x" * size)

    async def stream() -> StreamCapture:
        response = UpstreamResponse(connection, endpoint, lambda _: None)
        received, capture = StreamCapture(0.0, budget), RequestCapture(0.0, budget)
        to_client = HttpResponse(AsgiExchange("POST", "/", {}).send)
        response.capture_to(received, capture)
        to_client.capture = capture
        for _ in range(200_000 // (size + 80)):
            await to_client.send_chunk(await response.read_chunk(), 1.0)
        for one in (received, capture):
            assert 0.9 * memory_size(one.chunks) - 3 * RECOUNT_AFTER < one.reserved
        return received

    captures = [asyncio.run(stream()) for _ in range(5)]
    assert budget.remaining < 3 * RECOUNT_AFTER
    assert captures[0].dropped == 0
    assert captures[-1].dropped


def test_last_chunk_to_the_client_is_counted() -> None:
    """Also if the upstream sends nothing more."""
    exchange = AsgiExchange("POST", "/", {})
    response = HttpResponse(exchange.send)
    capture = RequestCapture(0.0, CaptureBudget(50_000))
    response.capture = capture
    asyncio.run(response.send_chunk(b"x" * 100_000, 1.0))
    assert (capture.chunks, capture.dropped, len(exchange.sent)) == ([], 100_000, 1)


def test_log_with_a_smaller_limit_keeps_the_newest() -> None:
    log = RequestLog()
    for number in range(15):
        log.finish(make_record(EVERY_PART, number, body=b"x" * 2000))
    log.resize(1000, 30_000)
    kept_ids = [item.summary.id for item in log.list_finished()]
    assert len(kept_ids) > 5
    assert kept_ids == [f"req_{n}" for n in range(15 - len(kept_ids), 15)]
    assert log.size <= 30_000


def test_unwritable_records_are_kept_among_others() -> None:
    log, unwritable = RequestLog(), UNWRITABLE["lone surrogate"]
    long = Reply(parts=(Text("x" * 10_000), *unwritable.parts))
    for number, reply in enumerate((EVERY_PART, long, Reply(), unwritable, EVERY_PART)):
        log.finish(make_record(reply, number))
    assert [item.summary.id for item in log.list_finished()] == [f"req_{n}" for n in range(5)]
    assert [one.record.reply for one in log.list_finished()] == [
        EVERY_PART,
        long,
        Reply(),
        unwritable,
        EVERY_PART,
    ]


def test_unreadable_record_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """An upstream may report its usage as something else than a number."""
    log, unwritable = RequestLog(), Reply(usage=Usage("many"))  # pyright: ignore[reportArgumentType]
    for number, reply in enumerate((EVERY_PART, unwritable, EVERY_PART)):
        log.finish(make_record(reply, number))
    for _ in range(2):
        assert [item.summary.id for item in log.list_finished()] == ["req_0", "req_2"]
    assert len(caplog.records) == 1
    assert log.find_record("req_2", None)


def test_unwritable_records_stay_within_the_limit() -> None:
    log, held = RequestLog(max_requests=10_000, max_bytes=200_000), 0
    for number in range(100):
        record = make_record(UNWRITABLE["lone surrogate"], number)
        assert record.capture
        record.capture.entries += [1.0, b"x" * 1500] * 10
        log.finish(record)
    for finished in log.list_finished():
        assert finished.record.capture
        held += sum(map(len, finished.record.capture.chunks))
    assert 50_000 < held < 200_000


def test_record_over_the_limit_keeps_its_upstream_and_usage() -> None:
    log = RequestLog(max_bytes=10_000)
    record = make_record(EVERY_PART, body=b"x" * 20_000)
    record.first_upstream = "another"
    log.finish(record)
    [finished] = log.list_finished()
    assert finished.summary.upstream == "up"
    assert finished.record.reply
    assert finished.record.reply.usage == EVERY_PART.usage


def test_summary_of_active_request_has_the_message_once_received() -> None:
    record = make_record(Reply())
    capture = record.capture
    assert capture
    capture.body = b""
    assert summarize_request(record).user_message == ""
    capture.body = b'{"messages":[{"role":"user","content":"Who?"}]}'
    assert summarize_request(record).user_message == "Who?"


def test_request_that_ends_between_two_reads_is_listed_by_the_second() -> None:
    """A reader that asks only for changes would miss it otherwise."""
    recorder = RequestRecorder(Config(), MemoryStore(), is_shared=False, epoch="")
    record = make_record(EVERY_PART)
    assert record.capture
    log = recorder._log  # pyright: ignore[reportPrivateUsage]
    log.active[record.capture.key] = record
    assert asyncio.run(recorder.list_summaries()) == []
    recorder.end(record)
    [summary] = asyncio.run(recorder.list_summaries())
    assert summary.is_finished


def test_first_read_waits_for_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers publish nothing while nobody reads."""
    monkeypatch.setattr(recorder_module, "_IDLE_INTERVAL", 0.1)

    async def read_twice() -> list[list[str]]:
        store = MemoryStore()
        recorders = [RequestRecorder(Config(), store, is_shared=True, epoch="") for _ in range(2)]
        for number, recorder in enumerate(recorders):
            recorder.start()
            recorder.end(make_record(EVERY_PART, number))
        await asyncio.sleep(0.3)
        found = [[one.id for one in await recorders[0].list_summaries()] for _ in range(2)]
        for recorder in recorders:
            recorder.stop()
        return found

    assert [sorted(ids) for ids in asyncio.run(read_twice())] == [["req_0", "req_1"]] * 2


def test_worker_that_is_always_busy_stays_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 1000, 5))
    monkeypatch.setattr(recorder_module, "monotonic", lambda: float(next(times)))

    async def count_announcements() -> int:
        store, log = MemoryStore(), RequestLog()
        record = make_record(EVERY_PART)
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
