"""Scripted models of many kinds behind every API, and one gateway in front of them.

Asked for the weather and the time, a model calls `get_weather`, then `now`, and then replies with
both results. It decides by what it receives: native tools and results, or only text.
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

from tests.gateway.running_gateway import run_gateway
from tests.gateway.sdk_conversations import CLIENTS, Conversation
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
from toolspeak.calls.resolution import new_call_id
from toolspeak.config.settings import Config, ModelSettings, UpstreamSettings
from toolspeak.dialects.render import sample_call
from toolspeak.testing import ScriptedServer
from toolspeak.wires import WIRES

QUESTION = "How is the weather in Oslo, and what time is it?"
BOTH_CITIES = "How is the weather in Oslo and in Paris?"
PATCH = "Patch the file, and find Ann."
TITLE = "Give this a title."
SKY, TIME = '{"sky": "rain, 7 °C"}', '{"time": "12:34"}'
UNKNOWN_CITY = "no such city"
CANNOT_LOOK = "I cannot look."
INTENTION = "Let me look."
DIFF = '*** Begin Patch\n-"a"\n+<b>\\n</b>\n*** End Patch\n'

FOUND = r'\{\\?"%s\\?": \\?"([^"]*?)\\?"'
"""A value in a tool's result, also where the result is JSON within JSON."""
Step = tuple[ToolCall, ...] | str
"""What a model does next: it calls tools, or it answers."""
Script = Callable[[Request], Sequence[Event]]


# The next step.


def decide(request: Request) -> Step:
    """Return what a model does next if it has the tools."""
    question, *results = list_texts(request)
    given = "\n".join(results)
    skies, times = (re.findall(FOUND % key, given) for key in ("sky", "time"))
    if any(text.endswith(TITLE) for text in (question, *results)):
        return "Oslo"
    if UNKNOWN_CITY in given:
        return f"Sorry: {UNKNOWN_CITY}."
    if question.startswith(PATCH):
        both = (make_call("apply_patch", input=DIFF), make_call("crm__find", name="Ann"))
        return "Patched, and found." if "found Ann" in given else both
    if question.startswith(BOTH_CITIES):
        both = (make_call("get_weather", city="Oslo"), make_call("get_weather", city="Paris"))
        left = both[len(skies) :]
        return left or f"Oslo: {skies[0]}. Paris: {skies[1]}."
    if not skies:
        return (make_call("get_weather", city="Oslo"),)
    return format_answer(skies[0], times[0]) if times else (make_call("now"),)


def format_answer(sky: str = "rain, 7 °C", time: str = "12:34") -> str:
    """Return the last text of a model."""
    return f"It is {time}, and the sky: {sky}."


def make_call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id=new_call_id(), name=name, arguments=arguments)


def make_text_reply(text: str) -> Sequence[Event]:
    # Streams have several deltas.
    size = max(9, len(text) // 5)
    pieces = [TextDelta(text[at : at + size]) for at in range(0, len(text), size)]
    return (Started(), *pieces, Finish("stop", usage=USAGE))


def make_call_reply(calls: Sequence[ToolCall]) -> Sequence[Event]:
    events: list[Event] = [Started()]
    for index, call in enumerate(calls):
        start = CallStart(index, call.id, call.name, None, call.namespace, call.freeform)
        half = len(call.input) // 2
        pieces = (ArgumentsDelta(index, piece) for piece in (call.input[:half], call.input[half:]))
        events += (start, *pieces, CallEnd(index, call))
    return (*events, Finish("calls", usage=USAGE))


# What a model receives.


def list_texts(request: Request) -> list[str]:
    """Return the texts of the user, then the tools' results in the order of their calls."""
    parts = [part for message in request.messages for part in message.parts]
    call_ids = [part.id for part in parts if isinstance(part, ToolCall)]
    results = [part for part in parts if isinstance(part, ToolResult)]
    texts = [
        "".join(map(_read_text, message.parts))
        for message in request.messages
        if message.role == "user"
    ]
    found = sorted(results, key=lambda result: call_ids.index(result.call_id))
    return [*texts, *(result.text for result in found)]


def _read_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""


def read_system_text(request: Request) -> str:
    messages = [message for message in request.messages if message.role == "system"]
    return "\n".join(_read_text(part) for message in messages for part in message.parts)


def list_offered_tools(request: Request) -> list[Tool]:
    """Return the tools that a model may call, by the API or by the prompt."""
    choice = request.tool_choice
    if request.tools is None:
        return parse_prompt_tools(read_system_text(request))
    named = [tool for tool in request.tools if tool.name in choice.names]
    return [] if choice.mode == "none" else named or list(request.tools)


def decide_with_offered_tools(request: Request) -> Step:
    """Return what a model does next with the tools that it is offered."""
    step, tools = (
        decide(request),
        {qualify_name(tool): tool for tool in list_offered_tools(request)},
    )
    if isinstance(step, str):
        return step
    fitting = tuple(call for call in step if call.name in tools)
    return fitting or (tuple(map(make_call, list(tools)[:1])) or CANNOT_LOOK)


def qualify_name(tool: Tool) -> str:
    """Return a tool's name with its namespace."""
    return f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name


def parse_prompt_tools(prompt: str) -> list[Tool]:
    """Return the tools that a prompt lists."""
    found = re.finditer(r'\{"name": "[^"]+", "description"', prompt)
    return [Tool(**json.JSONDecoder().raw_decode(prompt, match.start())[0]) for match in found]


@lru_cache(maxsize=256)
def find_taught_dialect(prompt: str) -> str:
    """Return the dialect of the example in a prompt."""
    tools = parse_prompt_tools(prompt)
    samples = [sample_call(tool, "call_1") for tool in tools]
    examples = {
        render_calls(name, [sample], tools): name
        for name in reversed(("tagged", *DIALECTS))
        for sample in samples
    }
    return examples[max((text for text in examples if text in prompt), key=len)]


def check_results(request: Request) -> None:
    """Check that each call has one result, and each result has a call."""
    open_calls: dict[str, str] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                open_calls[part.id] = part.name
            elif isinstance(part, ToolResult):
                assert open_calls.pop(part.call_id) == part.name
    assert not open_calls


# Kinds of models.


def reply_natively(request: Request) -> Sequence[Event]:
    """Reply as a model with native tools."""
    check_results(request)
    step = decide_with_offered_tools(request)
    if isinstance(step, str):
        return make_text_reply(step)
    tools = {qualify_name(tool): tool for tool in list_offered_tools(request)}
    return make_call_reply([_use_api_name(call, tools[call.name]) for call in step])


def _use_api_name(call: ToolCall, tool: Tool) -> ToolCall:
    return structs.replace(call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform)


def make_plain_model(refusal: Failure) -> Script:
    """Return a model without tools: it rejects them, and has to be taught to call by a prompt."""

    def script(request: Request) -> Sequence[Event]:
        kinds = {type(part) for message in request.messages for part in message.parts}
        if request.tools or kinds & {ToolCall, ToolResult}:
            return (refusal,)
        roles = [message.role for message in request.messages if message.role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        step = decide_with_offered_tools(request)
        if isinstance(step, str):
            return make_text_reply(step)
        return make_text_reply(
            render_calls(
                find_taught_dialect(read_system_text(request)),
                _number_calls(step),
                list_offered_tools(request),
            )
        )

    return script


def make_dialect_model(dialect: str) -> Script:
    """Return a model that takes native tools, and writes calls into its text in this dialect."""

    def script(request: Request) -> Sequence[Event]:
        check_results(request)
        step = decide_with_offered_tools(request)
        if isinstance(step, str):
            return make_text_reply(step)
        return make_text_reply(render_calls(dialect, step, list_offered_tools(request)))

    return script


def reply_with_reasoning(request: Request) -> Sequence[Event]:
    """Reply with reasoning and an announcement before native calls."""
    started, *rest = reply_natively(request)
    thoughts = (ReasoningDelta("Hm, "), ReasoningDelta("a question."))
    has_calls = any(isinstance(event, CallStart) for event in rest)
    return (started, *thoughts, *([TextDelta(f"{INTENTION}\n\n")] if has_calls else []), *rest)


def reply_with_reasoning_in_text(request: Request) -> Sequence[Event]:
    """Reply with reasoning and an announcement in the text, as a model without tools."""
    script = MODELS["plain"](request)
    if isinstance(script[0], Failure):
        return script
    has_calls = not isinstance(decide_with_offered_tools(request), str)
    text = "<think>\nHm, a question.\n</think>\n\n" + (f"{INTENTION}\n\n" if has_calls else "")
    return (script[0], TextDelta(text), *script[1:])


def reply_with_reused_ids(request: Request) -> Sequence[Event]:
    """Reply with native calls whose ids are the same in each reply."""
    step = decide_with_offered_tools(request)
    if isinstance(step, str):
        return make_text_reply(step)
    return make_call_reply(_number_calls(step))


def _number_calls(calls: Sequence[ToolCall]) -> list[ToolCall]:
    return [structs.replace(call, id=f"call_{number}") for number, call in enumerate(calls, 1)]


def reject_other_tool(request: Request) -> Sequence[Event]:
    """Reply with native calls, but reject requests with a tool named `other`."""
    if any(tool.name == "other" for tool in request.tools or ()):
        return (Failure("bad_request", "Invalid schema for function 'other'", 400),)
    if request.tools is None:
        return MODELS["plain"](request)
    return reply_natively(request)


def reject_as_busy(request: Request) -> Sequence[Event]:
    """Reject tools, and fail without them."""
    failure = Failure("overloaded", "the model is busy", 503)
    return MODELS["plain"](request) if request.tools else (failure,)


def ignore_choice(request: Request) -> Sequence[Event]:
    """Do the opposite of the tool choice."""
    if request.tools is None:
        return MODELS["plain"](request)
    match request.tool_choice.mode:
        case "required":
            return make_text_reply("I would rather not.")
        case "none":
            return make_call_reply([make_call("get_weather", city="Oslo")])
        case "auto":
            return reply_natively(request)


def reply_constrained(request: Request) -> Sequence[Event]:
    """Reply with JSON of the requested schema."""
    assert not request.tools
    step = decide_with_offered_tools(request)
    if request.response_format is None:
        return make_text_reply(str(step))
    schema = request.response_format.schema or {}
    branches = schema.get("anyOf", [schema])
    tools = [branch["properties"].get("tool", {}).get("const") for branch in branches]
    if isinstance(step, str):
        assert None in tools
        return make_text_reply(json.dumps({"answer": step}))
    assert step[0].name in tools
    text = {"tool": step[0].name, "arguments": step[0].arguments}
    return make_text_reply(json.dumps(text, ensure_ascii=False))


NO_AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
MODELS: dict[str, Script] = {
    "native": reply_natively,
    "plain": make_plain_model(Failure("bad_request", "this model does not support tools", 400)),
    "vllm": make_plain_model(Failure("internal", NO_AUTO, 500)),
    "openrouter": make_plain_model(
        Failure("not_found", "No endpoints found that support tool use.", 404)
    ),
    "hermes": make_dialect_model("hermes"),
    "coder": make_dialect_model("qwen3_coder"),
    "thinking": reply_with_reasoning,
    "thinking_in_text": reply_with_reasoning_in_text,
    "reused_ids": reply_with_reused_ids,
    "picky": reject_other_tool,
    "busy": reject_as_busy,
    "ignores_choice": ignore_choice,
    "constrained": reply_constrained,
}
"""By the beginning of a model's name at the upstream."""


# The gateway.


class ScriptedGateway:
    """One gateway in front of one server with every kind of model in every API."""

    def __init__(self, url: str, server: ScriptedServer) -> None:
        self.url = url
        self._server = server
        self._numbers = count(1)
        self._open: dict[type[Conversation], Any] = {}

    def name_model(self, kind: str, wire: str) -> str:
        """Return the name of a model without any earlier request."""
        return f"{kind}-{next(self._numbers)}.{wire}"

    def list_requests(self, model: str) -> list[Request]:
        """Return the requests for this model that the upstream has received."""
        problems, self._server.problems = self._server.problems, []
        assert problems == []
        name, _, _ = model.rpartition(".")
        return [request for request in self._server.requests if request.model == name]

    def start_conversation(
        self, client: str | type[Conversation], model: str, *, stream: bool = False
    ) -> Conversation:
        """Start a conversation by an SDK."""
        kind = CLIENTS[client] if isinstance(client, str) else client
        return kind(self.get_sdk(kind), model, stream)

    def get_sdk(self, kind: type[Conversation]) -> Any:
        """Return the client of an SDK; to create one takes longer than a conversation."""
        if kind not in self._open:
            self._open[kind] = kind.connect(self.url)
        return self._open[kind]

    def close(self) -> None:
        for sdk in self._open.values():
            sdk.close()


def _reply(request: Request) -> Sequence[Event]:
    return MODELS[request.model.partition("-")[0]](request)


@contextmanager
def start_scripted_gateway() -> Generator[ScriptedGateway]:
    with ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(_reply))
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
        gateway = stack.enter_context(run_gateway(Config(upstreams=upstreams, models=models)))
        scripted_gateway = ScriptedGateway(gateway.url, server)
        stack.callback(scripted_gateway.close)
        yield scripted_gateway
