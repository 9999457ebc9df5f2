"""Takes the pictures of the inspector, by hand: `python -m docs.screenshots`.

A gateway is started as users start it, before a scripted model and the one in the box; requests are
made through every API, and Chromium shows what the page makes of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from toolspeak import Event, Finish, Request, Text, TextDelta
from toolspeak.testing import ScriptedServer

IMAGES = Path(__file__).parent / "images"
CONFIG = """
default = "qwen2.5-7b"
embedded = true
[upstreams.local]
wire = "openai_chat"
base_url = "{url}/v1"
[models."qwen2.5-7b"]
upstream = "local"
tools = "prompt"
dialect = "hermes"
[models."qwen3-8b"]
upstream = "local"
tools = "prompt"
dialect = "hermes"
"""
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"name": "get_weather", "description": "The weather in a city.", "parameters": CITY}
WRAPPED = {"type": "function", "function": TOOL}
PASTED = """<think>Both cities, three days each.</think>I will look that up.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}
</tool_call>
<tool_call>
{"name": "get_weather", "arguments": {"town": "Bergen", "days": 3}}
</tool_call>"""


# What is asked, and what the model says.


def called(**arguments: Any) -> str:
    call = json.dumps({"name": "get_weather", "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def said(request: Request) -> str:
    texts = [
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text)
    ]
    if "was not run" in texts[-1]:
        return "Of course, with the city this time.\n" + called(city="Bergen", days="3")
    if "Bergen" in texts[-1]:
        return "I will look up the weather in Bergen.\n" + called(town="Bergen", days=3)
    if "both" in texts[-1]:
        thought = "<think>They want both cities, so I make two calls.</think>"
        return f"{thought}Let me see.\n{called(city='Oslo')}\n{called(city='Tromsø', days='2')}"
    if "Oslo" in texts[-1]:
        return "Let me look that up.\n" + called(city="Oslo", days="3")
    return "A fjord is a long, narrow inlet of the sea between steep cliffs, carved by a glacier."


def answer(request: Request) -> Iterator[Event]:
    text = said(request)
    for start in range(0, len(text), 7):
        yield TextDelta(text[start : start + 7])
    yield Finish("stop")


def chat(model: str, question: str, **more: Any) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": question}]
    asked = {"model": model, "messages": messages, "tools": [WRAPPED], "stream": True}
    return "/v1/chat/completions", {**asked, **more}


def requests(boxed: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Some for the scripted model, one for the one in the box; the last is looked at closely."""
    yield chat("qwen2.5-7b", "What is a fjord?", tools=[])
    yield chat(boxed, "Ada is in Oslo. How is the weather there?")
    contents = [{"role": "user", "parts": [{"text": "And in Oslo tomorrow?"}]}]
    declared = [{"functionDeclarations": [TOOL]}]
    path = "/v1beta/models/qwen3-8b:streamGenerateContent?alt=sse"
    yield path, {"contents": contents, "tools": declared}
    yield chat("qwen2.5-7b", "What is the weather in Oslo?")
    yield chat("qwen2.5-7b", "Name three fjords.", tool_choice="required")
    yield chat("gpt-4o", "And what is a skerry?", tools=[])
    responses = {"type": "function", **TOOL}
    asked = {"model": "qwen3-8b", "input": "Compare both: Oslo and Tromsø", "stream": True}
    yield "/v1/responses", {**asked, "tools": [responses]}
    messages = [{"role": "user", "content": "Is it cold in Oslo?"}]
    yield "/api/chat", {"model": "qwen2.5-7b", "messages": messages, "tools": [WRAPPED]}
    yield chat("qwen2.5-7b", "How is the weather in Oslo these days?")
    messages = [{"role": "user", "content": "What is the weather in Bergen, three days ahead?"}]
    asked = {"model": "qwen2.5-7b", "max_tokens": 400, "messages": messages, "stream": True}
    tool = {"name": "get_weather", "description": TOOL["description"], "input_schema": CITY}
    yield "/v1/messages", {**asked, "tools": [tool]}


# The gateway, and the pictures.


@contextmanager
def serving(upstream: str) -> Generator[dict[str, Any], None, None]:
    """What `toolspeak serve` tells."""
    command = [sys.executable, "-m", "toolspeak", "serve", "--port", "0", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "toolspeak.toml").write_text(CONFIG.format(url=upstream))
        process = subprocess.Popen(  # noqa: S603 - it is our own
            command, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        assert process.stdout
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def save(page: Page, name: str) -> None:
    path = IMAGES / f"{name}.png"
    page.wait_for_timeout(600)
    page.screenshot(path=path)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


def opened(browser: Browser, address: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(address)
    page.locator("a.row").first.wait_for()
    return page


def moved(page: Page, share: float) -> None:
    """Move the slider to that part of its way."""
    script = "(it, share) => { it.value = it.max * share; it.dispatchEvent(new Event('input')) }"
    page.locator(".slider").evaluate(script, share)


def pictures(browser: Browser, address: str) -> None:
    wide = {"viewport": {"width": 1360, "height": 820}}
    page = opened(browser, address, **wide)
    page.set_viewport_size({"width": 1360, "height": 480})
    save(page, "inspector-list")
    page.set_viewport_size({"width": 1360, "height": 820})
    page.locator("a.row").first.click()
    save(page, "inspector-request")
    page.evaluate("location.hash = '#/playground'")
    page.get_by_label("Model output").fill(PASTED)
    page.get_by_label("Model output").blur()
    save(page, "playground")
    page = opened(browser, address, color_scheme="dark", **wide)
    page.locator("a.row", has_text="Compare both").click()
    page.locator(".detail .card-call").first.wait_for()
    moved(page, 0.8)
    save(page, "inspector-dark")
    phone = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2}
    page = opened(browser, address, is_mobile=True, has_touch=True, **phone)
    page.locator("a.row").first.click()
    page.locator(".detail .card-call").first.wait_for()
    # What the model wrote, below the slider that stays in sight.
    script = "it => { it.scrollTop = it.querySelector('.column:nth-child(3)').offsetTop - 126 }"
    page.locator(".detail").evaluate(script)
    save(page, "inspector-phone")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with ScriptedServer(answer, pause=0.012) as model, serving(model.url) as told:
        boxed = next(name for name in told["models"] if name.startswith("embedded/"))
        for path, body in requests(boxed):
            httpx.post(told["url"] + path, json=body, timeout=120)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            pictures(browser, told["inspector"])
            browser.close()


if __name__ == "__main__":
    main()
