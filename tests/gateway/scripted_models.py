"""Models of many kinds behind every API, and one gateway before them all.

Asked about the weather and the time, a model calls `get_weather`, then `now`, and then says what
both gave. It goes by what it sees: structures, if it has tools of its own, or else text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

from msgspec import structs

from tests.gateway.running_gateway import running
from tests.gateway.sdk_conversations import CLIENTS, Talk
from tests.wires.scenarios import USAGE
from toolspeak import (
    DIALECTS,
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    Failure,
    Finish,
    Part,
    ReasoningDelta,
    Request,
    Started,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolResult,
    render_calls,
)
from toolspeak.calls.drafts import new_call_id
from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.dialects.render import sample_call
from toolspeak.testing import ScriptedServer
from toolspeak.wires import WIRES

QUESTION = "How is the weather in Oslo, and what time is it?"
BOTH = "How is the weather in Oslo and in Paris?"
PATCH = "Patch the file, and find Ann."
TITLE = "Give this a title."
SKY, TIME = '{"sky": "rain, 7 °C"}', '{"time": "12:34"}'
NOWHERE = "no such city"
CANNOT = "I cannot look."
INTENTION = "Let me look."
DIFF = '*** Begin Patch\n-"a"\n+<b>\\n</b>\n*** End Patch\n'

FOUND = r'\{\\?"%s\\?": \\?"([^"]*?)\\?"'
"""What a tool has found, also where that is JSON within JSON."""
Move = tuple[ToolCall, ...] | str
"""What a model does: it calls, or it answers."""
Script = Callable[[Request], Sequence[Event]]


# The models.


def move(request: Request) -> Move:
    """What a model does next, if it may."""
    question, *results = heard(request)
    given = "\n".join(results)
    skies, times = (re.findall(FOUND % key, given) for key in ("sky", "time"))
    if any(said.endswith(TITLE) for said in (question, *results)):
        return "Oslo"
    if NOWHERE in given:
        return f"Sorry: {NOWHERE}."
    if question.startswith(PATCH):
        both = (call("apply_patch", input=DIFF), call("crm__find", name="Ann"))
        return "Patched, and found." if "found Ann" in given else both
    if question.startswith(BOTH):
        both = (call("get_weather", city="Oslo"), call("get_weather", city="Paris"))
        left = both[len(skies) :]
        return left or f"Oslo: {skies[0]}. Paris: {skies[1]}."
    if not skies:
        return (call("get_weather", city="Oslo"),)
    return answer(skies[0], times[0]) if times else (call("now"),)


def answer(sky: str = "rain, 7 °C", time: str = "12:34") -> str:
    """What a model says in the end."""
    return f"It is {time}, and the sky: {sky}."


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id=new_call_id(), name=name, arguments=arguments)


def says(text: str) -> Sequence[Event]:
    # In pieces, so that streams have several.
    size = max(9, len(text) // 5)
    pieces = [TextDelta(text[at : at + size]) for at in range(0, len(text), size)]
    return (Started(), *pieces, Finish("stop", usage=USAGE))


def calls(made: Sequence[ToolCall]) -> Sequence[Event]:
    events: list[Event] = [Started()]
    for index, one in enumerate(made):
        start = CallStart(index, one.id, one.name, None, one.namespace, one.freeform)
        half = len(one.input) // 2
        pieces = (ArgumentsDelta(index, piece) for piece in (one.input[:half], one.input[half:]))
        events += (start, *pieces, CallEnd(index, one))
    return (*events, Finish("calls", usage=USAGE))


# What a model sees.


def heard(request: Request) -> list[str]:
    """What was said to a model, be it by the user or by tools, as structures or in words. Results
    stand in the order of their calls."""
    parts = [part for message in request.messages for part in message.parts]
    made = [part.id for part in parts if isinstance(part, ToolCall)]
    results = [part for part in parts if isinstance(part, ToolResult)]
    texts = ["".join(map(_said, one.parts)) for one in request.messages if one.role == "user"]
    found = sorted(results, key=lambda result: made.index(result.call_id))
    return [*texts, *(result.text for result in found)]


def _said(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""


def system_of(request: Request) -> str:
    """What a model was told beforehand."""
    messages = [message for message in request.messages if message.role == "system"]
    return "\n".join(_said(part) for message in messages for part in message.parts)


def offered(request: Request) -> list[Tool]:
    """The tools that a model may call, as the API or the prompt says."""
    choice = request.tool_choice
    if request.tools is None:
        return listed(system_of(request))
    named = [tool for tool in request.tools if tool.name in choice.names]
    return [] if choice.mode == "none" else named or list(request.tools)


def may(request: Request) -> Move:
    """What a model does next, of all that it may."""
    step, tools = move(request), {written(tool): tool for tool in offered(request)}
    if isinstance(step, str):
        return step
    fitting = tuple(one for one in step if one.name in tools)
    return fitting or (tuple(map(call, list(tools)[:1])) or CANNOT)


def written(tool: Tool) -> str:
    """A tool's name, with that of the namespace where the API has such."""
    return f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name


def listed(told: str) -> list[Tool]:
    """The tools that a prompt tells of."""
    found = re.finditer(r'\{"name": "[^"]+", "description"', told)
    return [Tool(**json.JSONDecoder().raw_decode(told, one.start())[0]) for one in found]


@lru_cache(maxsize=256)
def taught(told: str) -> str:
    """The dialect in which a prompt says how to call."""
    tools = listed(told)
    samples = [sample_call(tool, "call_1") for tool in tools]
    examples = {
        render_calls(name, [sample], tools): name
        for name in reversed(("tagged", *DIALECTS))
        for sample in samples
    }
    return examples[max((text for text in examples if text in told), key=len)]


def check_results(request: Request) -> None:
    """Every result is that of a call, and every call has one."""
    made: dict[str, str] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                made[part.id] = part.name
            elif isinstance(part, ToolResult):
                assert made.pop(part.call_id) == part.name
    assert not made


# The kinds of models.


def native(request: Request) -> Sequence[Event]:
    """Calls in the API's own words."""
    check_results(request)
    step = may(request)
    if isinstance(step, str):
        return says(step)
    tools = {written(tool): tool for tool in offered(request)}
    return calls([_meant(one, tools[one.name]) for one in step])


def _meant(call: ToolCall, tool: Tool) -> ToolCall:
    return structs.replace(call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform)


def plain(refusal: Failure) -> Script:
    """Has never heard of tools: what it is sent has to be plain chat, and teach it to call."""

    def script(request: Request) -> Sequence[Event]:
        kinds = {type(part) for message in request.messages for part in message.parts}
        if request.tools or kinds & {ToolCall, ToolResult}:
            return (refusal,)
        roles = [message.role for message in request.messages if message.role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        step = may(request)
        if isinstance(step, str):
            return says(step)
        return says(render_calls(taught(system_of(request)), _counted(step), offered(request)))

    return script


def speaks(dialect: str) -> Script:
    """Takes tools, and writes calls into its text, however it is told to."""

    def script(request: Request) -> Sequence[Event]:
        check_results(request)
        step = may(request)
        if isinstance(step, str):
            return says(step)
        return says(render_calls(dialect, step, offered(request)))

    return script


def talkative(request: Request) -> Sequence[Event]:
    """Thinks, and says what it will do, before it does it. It has tools of its own."""
    started, *rest = native(request)
    thoughts = (ReasoningDelta("Hm, "), ReasoningDelta("a question."))
    intends = any(isinstance(event, CallStart) for event in rest)
    return (started, *thoughts, *([TextDelta(f"{INTENTION}\n\n")] if intends else []), *rest)


def muttering(request: Request) -> Sequence[Event]:
    """The same in its text, of a model that has never heard of tools."""
    script = MODELS["plain"](request)
    if isinstance(script[0], Failure):
        return script
    intends = not isinstance(may(request), str)
    said = "<think>\nHm, a question.\n</think>\n\n" + (f"{INTENTION}\n\n" if intends else "")
    return (script[0], TextDelta(said), *script[1:])


def numbered(request: Request) -> Sequence[Event]:
    """Has tools of its own, and counts the calls of each reply: many have the same id."""
    step = may(request)
    if isinstance(step, str):
        return says(step)
    return calls(_counted(step))


def _counted(made: Sequence[ToolCall]) -> list[ToolCall]:
    return [structs.replace(one, id=f"call_{number}") for number, one in enumerate(made, 1)]


def picky(request: Request) -> Sequence[Event]:
    """Has tools of its own, but takes none that is called `other`."""
    if any(tool.name == "other" for tool in request.tools or ()):
        return (Failure("bad_request", "Invalid schema for function 'other'", 400),)
    if request.tools is None:
        return MODELS["plain"](request)
    return native(request)


def busy(request: Request) -> Sequence[Event]:
    """Has no tools, and no time."""
    failure = Failure("overloaded", "the model is busy", 503)
    return MODELS["plain"](request) if request.tools else (failure,)


def wilful(request: Request) -> Sequence[Event]:
    """Has tools of its own, and does the opposite of what a choice says."""
    if request.tools is None:
        return MODELS["plain"](request)
    match request.tool_choice.mode:
        case "required":
            return says("I would rather not.")
        case "none":
            return calls([call("get_weather", city="Oslo")])
        case "auto":
            return native(request)


def constrained(request: Request) -> Sequence[Event]:
    """Says what a schema lets it say."""
    assert not request.tools
    step = may(request)
    if request.response_format is None:
        return says(str(step))
    schema = request.response_format.schema or {}
    branches = schema.get("anyOf", [schema])
    tools = [branch["properties"].get("tool", {}).get("const") for branch in branches]
    if isinstance(step, str):
        assert None in tools
        return says(json.dumps({"answer": step}))
    assert step[0].name in tools
    said = {"tool": step[0].name, "arguments": step[0].arguments}
    return says(json.dumps(said, ensure_ascii=False))


NO_AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
MODELS: dict[str, Script] = {
    "native": native,
    "plain": plain(Failure("bad_request", "this model does not support tools", 400)),
    "vllm": plain(Failure("internal", NO_AUTO, 500)),
    "openrouter": plain(Failure("not_found", "No endpoints found that support tool use.", 404)),
    "hermes": speaks("hermes"),
    "coder": speaks("qwen3_coder"),
    "talkative": talkative,
    "muttering": muttering,
    "numbered": numbered,
    "picky": picky,
    "busy": busy,
    "wilful": wilful,
    "constrained": constrained,
}
"""By the beginning of the name that an upstream is asked for."""


# The gateway between.


class World:
    """One gateway before one server, which has every kind of model in every API."""

    def __init__(self, url: str, server: ScriptedServer) -> None:
        self.url = url
        self._server = server
        self._numbers = count(1)
        self._open: dict[type[Talk], Any] = {}

    def model(self, kind: str, wire: str) -> str:
        """The name of a model that nobody has talked to yet."""
        return f"{kind}-{next(self._numbers)}.{wire}"

    def asked(self, model: str) -> list[Request]:
        """What the upstream was asked, under the name of this model."""
        problems, self._server.problems = self._server.problems, []
        assert problems == []
        name, _, _ = model.rpartition(".")
        return [request for request in self._server.requests if request.model == name]

    def talk(self, client: str | type[Talk], model: str, *, stream: bool = False) -> Talk:
        """A new conversation by an SDK."""
        kind = CLIENTS[client] if isinstance(client, str) else client
        return kind(self.sdk(kind), model, stream)

    def sdk(self, kind: type[Talk]) -> Any:
        """The client of an SDK, which is made only once: that takes longer than a conversation."""
        if kind not in self._open:
            self._open[kind] = kind.connect(self.url)
        return self._open[kind]

    def close(self) -> None:
        for sdk in self._open.values():
            sdk.close()


def _speak(request: Request) -> Sequence[Event]:
    return MODELS[request.model.partition("-")[0]](request)


@contextmanager
def world() -> Generator[World]:
    with ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(_speak))
        bases = {"gemini": "/v1beta", "openai_chat": "/v1", "openai_responses": "/v1"}
        upstreams = {
            wire: UpstreamSettings(wire=wire, base_url=server.url + bases.get(wire, ""), retries=0)
            for wire in WIRES
        }
        models = {f"*.{wire}": ModelSettings(wire, model="*") for wire in WIRES}
        models |= {
            f"plain-{name}-*.openai_chat": ModelSettings(
                "openai_chat", f"plain-{name}-*", dialect=name
            )
            for name in DIALECTS
        }
        models |= {
            f"constrained-*.{wire}": ModelSettings(wire, model="constrained-*", tools="constrained")
            for wire in WIRES
        }
        gateway = stack.enter_context(running(Config(upstreams=upstreams, models=models)))
        made = World(gateway.url, server)
        stack.callback(made.close)
        yield made
