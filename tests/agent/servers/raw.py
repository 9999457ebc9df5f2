"""A server without an SDK: it starts fast, knows only the older protocol, and does what no SDK lets
a server do. `python raw.py` speaks over stdio; `RawServer` answers for one over HTTP."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

PAGE = 3
NAMES = (
    *("a.b", "a_b", "a b", "x" * 80, "twice", "twice", "old_code", "promise", "nonsense"),
    *("change", "deaf", "noise", "pid", "link", "blob", "mute", "variable", "slow"),
    *("add", "wait", "meet", "fail", "die", "papers"),
)
CONCURRENT = ("wait", "meet")
"""Tools that run in threads; any other call blocks the server."""
MEETING = threading.Barrier(5, timeout=60)
HINTS = {
    "pid": {"readOnlyHint": True, "idempotentHint": True},
    "link": {"readOnlyHint": True},
    "blob": {"idempotentHint": True},
}
BLOB = {"uri": "file:///a.png", "mimeType": "image/png", "blob": "AAAA"}
LINK = {"type": "resource_link", "uri": "file:///b", "name": "b", "description": "the rest"}
PAPER = {"uri": "file:///a.txt", "text": "api_key=sk-abcdefghijklmnop1234"}
CONTENT: dict[str, Any] = {
    "papers": {"type": "resource", "resource": PAPER},
    "link": LINK,
    "blob": {"type": "resource", "resource": BLOB},
    "mute": {"type": "text", "text": ""},
}


def declare_tool(name: str) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
    if name == "add":
        about["inputSchema"]["properties"] = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    if name == "promise":
        about["outputSchema"] = {"type": "object", "required": ["a"]}
    if name in HINTS:
        about["annotations"] = HINTS[name]
    return about


def run_tool(name: str, given: dict[str, Any]) -> str:
    match name:
        case "add":
            return f"{given['a']} + {given['b']} = {given['a'] + given['b']}"
        case "wait":
            if "begun" in given:
                Path(given["begun"]).touch()
            time.sleep(given["seconds"])
            return f"waited {given['seconds']:g}"
        case "meet":
            MEETING.wait()
            return "met"
        case "die":
            os._exit(3)
        case "pid":
            return str(os.getpid())
        case "variable":
            return f"{os.environ.get(given['name'], '(not set)')} in {os.getcwd()}"
        case _:
            return f"{name} was called"


class RawServer:
    """Answers messages."""

    def __init__(self) -> None:
        self.names = list(NAMES)
        self.called: list[str] = []

    def answer(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if "id" not in message:
            return []
        method, params = message.get("method"), message.get("params") or {}
        match method:
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "raw", "version": "1"},
                }
            case "tools/list":
                result = self.page(int(params.get("cursor") or 0))
            case "tools/call":
                return self.call(params["name"], params.get("arguments") or {}, message["id"])
            case _:
                problem = {"code": -32601, "message": f"no method {method}"}
                return [{"jsonrpc": "2.0", "id": message["id"], "error": problem}]
        return [{"jsonrpc": "2.0", "id": message["id"], "result": result}]

    def page(self, start: int) -> dict[str, Any]:
        page: dict[str, Any] = {
            "tools": [declare_tool(name) for name in self.names[start : start + PAGE]]
        }
        if start + PAGE < len(self.names):
            page["nextCursor"] = str(start + PAGE)
        return page

    def call(self, name: str, given: dict[str, Any], identity: Any) -> list[dict[str, Any]]:
        self.called.append(name)
        before: list[dict[str, Any]] = []
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": identity}
        match name:
            case "old_code":
                answer["error"] = {"code": -32000, "message": "the disk is full"}
            case "nonsense":
                answer["result"] = {"content": "this is no list"}
            case "change":
                self.names.append("late")
                before.append({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                answer["result"] = {"content": [{"type": "text", "text": "changed"}]}
            case "fail":
                content = [{"type": "text", "text": given["why"]}]
                answer["result"] = {"content": content, "isError": True}
            case "deaf":
                time.sleep(600)
            case "noise":
                print("This is no JSON.", flush=True)
                answer["result"] = {"content": [{"type": "text", "text": "noisy"}]}
            case _ if name in CONTENT:
                answer["result"] = {"content": [CONTENT[name]]}
            case _:
                answer["result"] = {"content": [{"type": "text", "text": run_tool(name, given)}]}
        return [*before, answer]


def serve_stdio() -> None:
    raw, lock = RawServer(), threading.Lock()

    def respond(message: dict[str, Any]) -> None:
        answers = raw.answer(message)
        with lock:
            for answer in answers:
                print(json.dumps(answer), flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if message.get("params", {}).get("name") in CONCURRENT:
            threading.Thread(target=respond, args=(message,), daemon=True).start()
        else:
            respond(message)


if __name__ == "__main__":
    print("raw is awake", file=sys.stderr, flush=True)
    serve_stdio()
