"""Text of models, clients and servers: the page shows it as text, never as a part of itself."""

from __future__ import annotations

import json
import time

from tests.gateway.running_gateway import RunningGateway
from toolspeak.types import Failure, Note, Plan, Rejection, Reply, ToolCall
from toolspeak.upstream.catalog import UpstreamServer
from toolspeak.upstream.record import AttemptRecord, CaptureBudget, RequestRecord, StreamCapture

from .conftest import OpenInspector
from .inspector_page import InspectorPage, add_records, make_record, request_approval

OTHER_HOST = "http://evil.example"
HOSTILE = {
    "script": "<script>window.executed = 1</script>",
    "image": f"<img src={OTHER_HOST}/i.png onerror='window.executed = 2'>",
    "svg": "<svg onload='window.executed = 3'><use href='data:image/svg+xml,x'></svg>",
    "link": "[x](javascript:window.executed=4) <a href='javascript:window.executed=5'>x</a>",
    "frame": f"<iframe srcdoc='<script>parent.executed=6</script>' src='{OTHER_HOST}'></iframe>",
    "end tags": "</textarea></title></style></script><script>window.executed = 7</script><!--",
    "template": "{{constructor.constructor('window.executed=8')()}} ${window.executed=9} <%= 1 %>",
    "style": f"<style>@import '{OTHER_HOST}/c.css'; *{{background:url({OTHER_HOST}/b)}}</style>",
    "declarations": f"x;}} body{{display:none}} url({OTHER_HOST}/u) expression(window.executed=10)",
    "direction": "user\u202e\u2066 gnp.exe\u2069 \u200f\u061c",
    "control characters": "a\x00b\x1b[31mred\x07\x7f\x9b\ufeff",
    "long word": "w" * 30_000,
    "combining marks": "Z̷̢̛̼͙a̴͇͌l̸̪̈́g̵̱͝o̷͕̓" * 50,
    "prototype": '{"__proto__": {"executed": 1}, "constructor": {"prototype": {"executed": 1}}}',
    "lone surrogates": "\ud83d broken \udc00",
}


def build_key(name: str) -> str:
    return f"req_{name.replace(' ', '_')}"


def make_hostile_record(name: str, text: str) -> RequestRecord:
    """Return a record with this text in every field that has text."""
    headers = {"user-agent": text, "content-type": text, f"x-{text}": text}
    arguments = {text: text, "__proto__": {"executed": text}, "constructor": text}
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
    body = {"model": text, "messages": [{"role": "user", "content": text}]}
    record = make_record(0)
    capture = record.capture
    assert capture
    record.id = capture.key = build_key(name)
    record.model = record.upstream_model = record.first_upstream = record.mode = (
        capture.user_message
    ) = text
    record.replaced_reply, record.notes, record.failure = reply, notes, failure
    record.status = 500
    record.response_headers = capture.headers = headers
    capture.target = f"/v1/{text}"
    capture.body = json.dumps({"model": text, text: {"__proto__": [text]}}).encode()
    capture.budget, response = CaptureBudget(2**20), StreamCapture(0.0, CaptureBudget(2**20))
    capture.add(frames)
    response.add(frames)
    server = UpstreamServer(
        name=text,
        wire="openai_chat",
        base_url=f"http://127.0.0.1/{text[:200]}",
        key="",
        headers={},
    )
    attempt = AttemptRecord(
        server,
        Plan(mode="prompt", dialect=text, reasons=(text,)),
        path=text,
        model=text,
        reason=text,
        started=0.001,
        request_body=json.dumps(body).encode(),
        response_capture=response,
        is_stream=True,
        status=200,
        first_byte=0.001,
        ended=0.002,
        outcome=text,
        reply=reply,
        failure=failure,
    )
    record.attempts = [attempt]
    return record


def add_hostile_request(gateway: RunningGateway, name: str, text: str) -> None:
    """Add a request and an approval with this text in every field that has text."""
    add_records(gateway, make_hostile_record(name, text))
    request_approval(
        gateway,
        tool=text,
        arguments={text: text, "__proto__": {"executed": 1}},
        source=text,
        agent=text,
        secrets=[text],
        is_echo=True,
        can_always=False,
        expires_at=time.time() + 600,
    )


def assert_is_text(inspector: InspectorPage, name: str) -> None:
    """Check that no hostile text has become a part of the page."""
    found = inspector.page.evaluate(
        """() => ({
          tags: [...new Set([...document.querySelectorAll("*")].map((element) => element.tagName))],
          links: [...document.querySelectorAll("[href]")].map((link) => link.getAttribute("href")),
          scripts: document.scripts.length,
          hasControls: /[\\0-\\b\\x1b\\x7f\\u202e\\u2066-\\u2069]/.test(document.body.textContent),
          isPolluted: "executed" in {} || "executed" in Object.prototype,
          height: document.body.clientHeight,
          isTooWide: document.documentElement.scrollWidth > innerWidth,
        })"""
    )
    links = [link for link in found.pop("links") if not link.startswith(("#/", "inspector/"))]
    tags = {"IMG", "IFRAME", "STYLE", "USE", "OBJECT", "EMBED", "BASE"} & set(found.pop("tags"))
    assert (name, links, tags) == (name, [], set())
    # The page has two scripts of its own.
    expected = {
        "scripts": 2,
        "hasControls": False,
        "isPolluted": False,
        "height": 900,
        "isTooWide": False,
    }
    assert (name, found) == (name, expected)


def test_hostile_text_in_every_field_stays_text(
    open_inspector: OpenInspector, gateway: RunningGateway
) -> None:
    for name, text in HOSTILE.items():
        add_hostile_request(gateway, name, text.encode("utf-8", "replace").decode())
    inspector = open_inspector(width=390)
    inspector.wait_until(
        "count => document.querySelectorAll('.card-approval').length === count", len(HOSTILE)
    )
    assert_is_text(inspector, "approvals")
    inspector.page.get_by_role("button", name="Hide").click()
    inspector.wait_for("a.row")
    assert_is_text(inspector, "list")
    for name in HOSTILE:
        inspector.navigate(f"#/requests/{build_key(name)}")
        inspector.wait_until(
            "key => document.querySelector('.detail-meta').textContent.includes(key)",
            build_key(name),
        )
        inspector.page.evaluate(
            "for (const details of document.querySelectorAll('details')) details.open = true"
        )
        assert_is_text(inspector, name)
    assert inspector.page.evaluate("window.executed ?? null") is None


def test_hostile_text_in_the_playground_stays_text(open_inspector: OpenInspector) -> None:
    inspector = open_inspector("#/playground", width=390)
    for name, text in HOSTILE.items():
        call = json.dumps({"name": "get_weather", "arguments": {"city": name, text: text}})
        text = f"{text}<tool_call>{call}</tool_call>"
        inspector.page.get_by_label("Model output").fill(text)
        inspector.wait_for(".card-call", f'"{name}"')
        assert_is_text(inspector, name)
