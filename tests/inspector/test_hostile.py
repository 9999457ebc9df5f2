"""Whatever a model, a client or a server says, the page shows it as the text that it is."""

from __future__ import annotations

import json
import time

import pytest

from tests.gateway.support import Running
from toolspeak.gateway.inspector.trace import Called, Trace, Turn
from toolspeak.types import Failure, Note, Plan, Rejection

from .conftest import Opener
from .site import HTTP, TOKEN, made_up, record

ELSEWHERE = "http://evil.example"
HOSTILE = {
    "script": "<script>window.ran = 1</script>",
    "image": f"<img src={ELSEWHERE}/i.png onerror='window.ran = 2'>",
    "drawing": "<svg onload='window.ran = 3'><use href='data:image/svg+xml,x'></svg>",
    "link": "[click](javascript:window.ran=4) <a href='javascript:window.ran=5'>click</a>",
    "frame": f"<iframe srcdoc='<script>parent.ran=6</script>' src='{ELSEWHERE}'></iframe>",
    "leaving": "</textarea></title></style></script><script>window.ran = 7</script><!--",
    "template": "{{constructor.constructor('window.ran = 8')()}} ${window.ran = 9} <%= 1 %>",
    "style": f"<style>@import '{ELSEWHERE}/c.css'; *{{background:url({ELSEWHERE}/b)}}</style>",
    "style words": f"x;}} body{{display:none}} url({ELSEWHERE}/u) expression(window.ran=10)",
    "direction": "user\u202e\u2066 gnp.exe\u2069 \u200f\u061c",
    "controls": "a\x00b\x1b[31mred\x07\x7f\x9b\ufeff",
    "huge": "w" * 30_000,
    "marks": "Z̷̢̛̼͙a̴͇͌l̸̪̈́g̵̱͝o̷͕̓" * 50,
    "prototype": '{"__proto__": {"ran": 1}, "constructor": {"prototype": {"ran": 1}}}',
    "halves": "\ud83d broken \udc00",
}


def hostile_trace(text: str) -> Trace:
    """A request that says this everywhere."""
    trace = made_up(0)
    trace.key = trace.id = "req_hostile"
    trace.status, trace.failure = 500, Failure("upstream", text, 500, text, text)
    trace.model = trace.served = trace.upstream = trace.mode = trace.asked = text
    trace.target = f"/v1/{text}"
    trace.headers = trace.answered = {"user-agent": text, "content-type": text, f"x-{text}": text}
    trace.body = json.dumps({"model": text, text: {"__proto__": [text]}}).encode()
    arguments = json.dumps({text: text, "__proto__": {"ran": text}, "constructor": text})
    trace.calls = (Called(text, text, arguments, text),)
    trace.notes = (Note(text, text, text),)
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    frames = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    trace.received = [(0.002, frames)]
    sent = {"model": text, "messages": [{"role": "user", "content": text}]}
    trace.turns = [
        Turn(
            began=0.0,
            at=0.001,
            why=text,
            upstream=text,
            address=f"http://127.0.0.1/{text[:200]}",
            wire="openai_chat",
            path=text,
            model=text,
            plan=Plan(mode="prompt", dialect=text, reasons=(text,)),
            sent=json.dumps(sent).encode(),
            status=200,
            first=0.001,
            ended=0.002,
            is_stream=True,
            chunks=[(0.0015, frames)],
            outcome=text,
            calls=trace.calls,
            dialect=text,
            rejected=(Rejection(text, text, text, path=text, name=text),),
            notes=trace.notes,
            failure=trace.failure,
        )
    ]
    return trace


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


def test_it_is_text_wherever_it_stands(look: Opener, gateway: Running, hostile: str) -> None:
    record(gateway, hostile_trace(hostile.encode("utf-8", "replace").decode()))
    approval = {
        "tool": hostile,
        "arguments": {hostile: hostile, "__proto__": {"ran": 1}},
        "source": hostile,
        "agent": hostile,
        "secrets": [hostile],
        "is_echo": True,
        "expires": time.time() + 60,
    }
    asked = HTTP.post(
        f"{gateway.url}/inspector/api/approvals",
        content=json.dumps(approval),
        headers={"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
    )
    opened = look(width=390)
    opened.sees("a.row")
    if asked.status_code == 200:  # Half a character is no JSON.
        opened.sees(".card-approval")
    opened.page.locator("a.row").first.click()
    opened.sees(".detail .columns")
    opened.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    opened.page.wait_for_timeout(100)
    tags = opened.page.evaluate(
        "[...new Set([...document.querySelectorAll('*')].map(one => one.tagName))]"
    )
    assert not {"IMG", "IFRAME", "STYLE", "USE", "OBJECT", "EMBED"} & set(tags)
    # The page's own two.
    assert opened.count("script") == 2
    assert opened.page.evaluate("({}).ran ?? null") is None
    assert opened.page.evaluate("document.body.clientHeight") == 900
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    unseen = "/[\\u0000-\\u0008\\u001b\\u007f\\u202a-\\u202e\\u2066-\\u2069]/"
    assert opened.page.evaluate(f"!{unseen}.test(document.body.textContent)")
    links = opened.page.evaluate(
        "[...document.querySelectorAll('[href]')].map(one => one.getAttribute('href'))"
    )
    assert all(link.startswith(("#/", "/inspector/")) for link in links), links


def test_the_playground_reads_it_as_text(look: Opener, hostile: str) -> None:
    opened = look("#/playground")
    call = json.dumps({"name": "get_weather", "arguments": {"city": hostile}})
    text = f"{hostile}<tool_call>{call}</tool_call>"
    opened.page.get_by_label("Model output").fill(text)
    opened.sees(".card-call", "get_weather")
    assert opened.count("script") == 2
    assert opened.count("img, iframe, style") == 0
