"""Event channels and threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from toolspeak.agent.concurrency import EventChannel


def test_cancellation_during_stream_close_is_not_lost() -> None:
    async def work(relay: EventChannel[int]) -> None:
        try:
            await relay.send(1)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.2)

    async def run() -> None:
        relay = EventChannel[int]()
        events = relay.stream(work(relay))
        assert await anext(events) == 1
        async with asyncio.timeout(0.05):
            await events.aclose()

    with pytest.raises(TimeoutError):
        asyncio.run(run())


def test_endless_thread_does_not_block_exit(tmp_path: Path) -> None:
    source = """
import time
from toolspeak import ToolCall
from toolspeak.agent import Agent, tool
@tool(timeout=0.1)
def slow() -> None: time.sleep(60)
said = iter([[ToolCall(id="a", name="slow", arguments={})], "Done."])
print(Agent(lambda _: next(said), [slow], approval="full").run_sync("Go.").text)
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, timeout=30, text=True
    )
    assert done.stdout == "Done.\n"
