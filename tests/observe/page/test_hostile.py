"""Whatever a model, a client or a server says, the page shows it as the text that it is."""

from __future__ import annotations

import json
import time

from tests.gateway.running_gateway import Running
from toolspeak.types import Failure, Note, Plan, Rejection, Reply, ToolCall
from toolspeak.upstream.catalog import UpstreamServer
from toolspeak.upstream.record import AttemptRecord, CaptureBudget, RequestRecord, StreamCapture

from .conftest import Opener
from .site import HTTP, TOKEN, Opened, made_up, record

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


def key_of(name: str) -> str:
    return f"req_{name.replace(' ', '_')}"


def hostile_request(name: str, text: str) -> RequestRecord:
    """A request that says this wherever it can."""
    headers = {"user-agent": text, "content-type": text, f"x-{text}": text}
    arguments = {text: text, "__proto__": {"ran": text}, "constructor": text}
    notes = (Note(text, text, text),)
    failure = Failure("upstream", text, 500, text, text)
    reply = Reply(
        parts=(ToolCall(id=text, name=text, arguments=arguments, raw=text),),
        rejected=(Rejection(text, text, text, path=text, name=text),),
        notes=notes,
        dialect=text,
    )
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    frames = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    sent = {"model": text, "messages": [{"role": "user", "content": text}]}
    served = made_up(0)
    kept = served.capture
    assert kept
    served.id = kept.key = key_of(name)
    served.model = served.upstream_model = served.first_upstream = served.mode = (
        kept.user_message
    ) = text
    served.replaced_reply, served.notes, served.failure = (
        reply,
        notes,
        failure,
    )
    served.status = 500
    served.response_headers = kept.headers = headers
    kept.target = f"/v1/{text}"
    kept.body = json.dumps({"model": text, text: {"__proto__": [text]}}).encode()
    kept.budget, heard = CaptureBudget(2**20), StreamCapture(0.0, CaptureBudget(2**20))
    kept.add(frames)
    heard.add(frames)
    server = UpstreamServer(
        name=text,
        wire="openai_chat",
        base_url=f"http://127.0.0.1/{text[:200]}",
        key="",
        headers={},
    )
    question = AttemptRecord(
        server,
        Plan(mode="prompt", dialect=text, reasons=(text,)),
        path=text,
        model=text,
        reason=text,
        started=0.001,
        request_body=json.dumps(sent).encode(),
        response_capture=heard,
        is_stream=True,
        status=200,
        first_byte=0.001,
        ended=0.002,
        outcome=text,
        reply=reply,
        failure=failure,
    )
    served.attempts = [question]
    return served


def asked_everywhere(gateway: Running, name: str, text: str) -> None:
    """A request, and a question to somebody, that say this wherever they can."""
    record(gateway, hostile_request(name, text))
    approval = {
        "tool": text,
        "arguments": {text: text, "__proto__": {"ran": 1}},
        "source": text,
        "agent": text,
        "secrets": [text],
        "is_echo": True,
        "expires_at": time.time() + 60,
    }
    url = f"{gateway.url}/inspector/api/approvals"
    assert HTTP.post(url, json=approval, headers={"authorization": f"Bearer {TOKEN}"}).is_success


def assert_it_is_text(opened: Opened, name: str) -> None:
    """Nothing of it has become a part of the page."""
    about = opened.page.evaluate(
        """() => ({
          tags: [...new Set([...document.querySelectorAll("*")].map((one) => one.tagName))],
          links: [...document.querySelectorAll("[href]")].map((one) => one.getAttribute("href")),
          scripts: document.scripts.length,
          unseen: /[\\0-\\b\\x1b\\x7f\\u202e\\u2066-\\u2069]/.test(document.body.textContent),
          polluted: "ran" in {} || "ran" in Object.prototype,
          height: document.body.clientHeight,
          isTooWide: document.documentElement.scrollWidth > innerWidth,
        })"""
    )
    links = [link for link in about.pop("links") if not link.startswith(("#/", "/inspector/"))]
    tags = {"IMG", "IFRAME", "STYLE", "USE", "OBJECT", "EMBED", "BASE"} & set(about.pop("tags"))
    assert (name, links, tags) == (name, [], set())
    # The scripts are the page's own two.
    expected = {"scripts": 2, "unseen": False, "polluted": False, "height": 900, "isTooWide": False}
    assert (name, about) == (name, expected)


def test_it_is_text_wherever_it_stands(look: Opener, gateway: Running) -> None:
    for name, text in HOSTILE.items():
        asked_everywhere(gateway, name, text.encode("utf-8", "replace").decode())
    opened = look(width=390)
    opened.until(
        "count => document.querySelectorAll('.card-approval').length === count", len(HOSTILE)
    )
    assert_it_is_text(opened, "approvals")
    opened.page.get_by_role("button", name="Hide").click()
    opened.sees("a.row")
    assert_it_is_text(opened, "list")
    for name in HOSTILE:
        opened.go(f"#/requests/req_{name.replace(' ', '_')}")
        opened.until(
            "key => document.querySelector('.detail-meta').textContent.includes(key)",
            f"req_{name.replace(' ', '_')}",
        )
        opened.page.evaluate(
            "for (const it of document.querySelectorAll('details')) it.open = true"
        )
        assert_it_is_text(opened, name)
    assert opened.page.evaluate("window.ran ?? null") is None


def test_the_playground_reads_it_as_text(look: Opener) -> None:
    opened = look("#/playground", width=390)
    for name, text in HOSTILE.items():
        call = json.dumps({"name": "get_weather", "arguments": {"city": name, text: text}})
        pasted = f"{text}<tool_call>{call}</tool_call>"
        opened.page.get_by_label("Model output").fill(pasted)
        opened.sees(".card-call", f'"{name}"')
        assert_it_is_text(opened, name)
