"""Whole conversations with tools, by the vendors' own SDKs, through the gateway to every model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway import scripted_models as conversation
from tests.gateway.scripted_models import (
    BOTH,
    CANNOT,
    DIFF,
    INTENTION,
    NOWHERE,
    PATCH,
    QUESTION,
    SKY,
    TIME,
    TITLE,
    World,
    answer,
    heard,
    system_of,
    taught,
)
from tests.gateway.sdk_conversations import (
    CLIENTS,
    Gemini,
    GeminiWithoutIds,
    Heard,
    Messages,
    Ollama,
    Responses,
    Result,
    Talk,
)
from tests.wires.scenarios import TOOLS, WEATHER
from toolspeak import DIALECTS, Request, Tool, ToolCall, ToolChoice, ToolResult, render_calls
from toolspeak.wires import WIRES

REFUSING = ["plain", "vllm", "openrouter"]
TEXTUAL = ["hermes", "coder"]
OSLO, PARIS = ("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})
CLOCK = ("now", {})
CHOOSING = [client for client in CLIENTS if client != "ollama"]
"""Ollama's API has no choice of tools."""
TAUGHT = [name for name in DIALECTS if name not in ("openai_json_echo", "content-with-tool_calls")]
"""These two are the API's own JSON, which the scripted server takes for calls in the history."""
ONE_CALL: dict[str, dict[str, Any]] = {
    "openai chat": {"parallel_tool_calls": False},
    "openai responses": {"parallel_tool_calls": False},
    "anthropic": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}
"""How to ask for no more than one."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with conversation.world() as made:
        yield made


streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
every_wire = pytest.mark.parametrize("wire", WIRES)
every_client = pytest.mark.parametrize("client", CLIENTS)


def made(heard: Heard) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in heard.calls]


def calls_only(talk: Talk, heard: Heard, *expected: tuple[str, object], before: str = "") -> None:
    text = heard.text.strip() if before else heard.text
    assert (made(heard), text) == (list(expected), before)
    assert heard.reason == talk.reasons["calls"]


def says_only(talk: Talk, heard: Heard, expected: str) -> None:
    assert (heard.text, heard.calls, heard.reason) == (expected, (), talk.reasons["stop"])


def converse(talk: Talk, *, once: bool = False, sky: str = SKY, before: str = "") -> Heard:
    """Three turns and two tools; the client sends its tools each time, or once."""
    later = None if once else TOOLS
    talk.say(QUESTION)
    first = talk.ask()
    calls_only(talk, first, OSLO, before=before)
    talk.give(Result(first.calls[0], sky))
    second = talk.ask(later)
    calls_only(talk, second, CLOCK, before=before)
    assert not first.calls[0].id or first.calls[0].id != second.calls[0].id
    talk.give(Result(second.calls[0], TIME))
    return talk.ask(later)


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "numbered", *REFUSING, *TEXTUAL, "constrained"])
def test_a_conversation(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    model = world.model(kind, wire)
    for once in (False, True):
        talk = world.talk(client, model, stream=stream)
        says_only(talk, converse(talk, once=once), answer())
    with_tools = [bool(request.tools) for request in world.asked(model)]
    match kind:
        case "native" | "numbered":
            assert with_tools == [True] * 6
        case "constrained":
            assert with_tools == [False] * 6
        case "hermes" | "coder":
            # After three calls in the text the gateway asks for them there.
            assert with_tools == [True] * 4 + [False] * 2
        case _:
            # It is refused once, and remembered.
            assert with_tools == [True] + [False] * 6


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["talkative", "muttering"])
def test_thoughts_and_words_before_calls(
    world: World, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = world.model(kind, wire)
    for once in (False, True):
        talk = world.talk(client, model, stream=stream)
        says_only(talk, converse(talk, once=once, before=INTENTION), answer())


@pytest.mark.parametrize("dialect", TAUGHT)
def test_every_dialect_that_can_be_taught(world: World, dialect: str) -> None:
    model = world.model(f"plain-{dialect}", "openai_chat")
    talk = world.talk("openai chat", model, stream=True)
    says_only(talk, converse(talk), answer())
    refused, *others = world.asked(model)
    assert refused.tools
    examples = {render_calls(taught(system_of(request)), [EXAMPLE], TOOLS) for request in others}
    assert examples == {render_calls(dialect, [EXAMPLE], TOOLS)}


EXAMPLE = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})


@streamed
@every_wire
@pytest.mark.parametrize("kind", ["native", "plain", "hermes"])
def test_a_client_without_ids(world: World, kind: str, wire: str, stream: bool) -> None:
    talk = world.talk(GeminiWithoutIds, world.model(kind, wire), stream=stream)
    says_only(talk, converse(talk, once=True), answer())


@streamed
@every_wire
@every_client
def test_two_conversations_do_not_mix(world: World, client: str, wire: str, stream: bool) -> None:
    model = world.model("numbered", wire)
    one, other = (world.talk(client, model, stream=stream) for _ in range(2))
    one.say(QUESTION)
    first = one.ask()
    other.say(BOTH)
    calls_only(other, other.ask([WEATHER]), OSLO, PARIS)
    one.give(Result(first.calls[0], SKY))
    calls_only(one, one.ask(None), CLOCK)


@every_wire
@every_client
def test_a_request_that_is_refused_for_its_own_tools(world: World, client: str, wire: str) -> None:
    """It is served in another way, and all others go on as before."""
    model = world.model("picky", wire)
    for tools in ((*TOOLS, OTHER), TOOLS, (*TOOLS, OTHER), TOOLS):
        talk = world.talk(client, model)
        talk.say(QUESTION)
        calls_only(talk, talk.ask(tools), OSLO)
    sent = [[tool.name for tool in request.tools or ()] for request in world.asked(model)]
    names = [tool.name for tool in TOOLS]
    assert sent == [[*names, "other"], [], names, [*names, "other"], [], names]


def test_a_model_without_tools_that_is_busy(world: World) -> None:
    talk = world.talk("openai chat", world.model("busy", "openai_chat"))
    talk.say(QUESTION)
    with pytest.raises(openai.InternalServerError, match="the model is busy"):
        talk.ask()


@streamed
@every_wire
@every_client
def test_a_history_with_calls_and_no_tools(
    world: World, client: str, wire: str, stream: bool
) -> None:
    talk = world.talk(client, world.model("native", wire), stream=stream)
    says_only(talk, converse(talk), answer())
    talk.say(TITLE)
    talk.model = world.model("plain", wire)
    says_only(talk, talk.ask(None), "Oslo")
    talk.said[-2:] = []
    talk.say(TITLE)
    talk.model = world.model("plain", wire)
    says_only(talk, talk.ask(()), "Oslo")


class TestLoops:
    """SDKs that run tools themselves."""

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_anthropics_tool_runner(self, world: World, kind: str, wire: str) -> None:
        runner = world.sdk(Messages).beta.messages.tool_runner(
            model=world.model(kind, wire),
            max_tokens=100,
            tools=[anthropic.beta_tool(get_weather), anthropic.beta_tool(now)],
            messages=[{"role": "user", "content": QUESTION}],
        )
        last = runner.until_done()
        assert [block.text for block in last.content] == [answer()]

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_googles_automatic_function_calling(self, world: World, kind: str, wire: str) -> None:
        reply = world.sdk(Gemini).models.generate_content(
            model=world.model(kind, wire), contents=QUESTION, config={"tools": [get_weather, now]}
        )
        assert reply.text == answer()

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_ollama_with_functions(self, world: World, kind: str, wire: str) -> None:
        said: list[Any] = [{"role": "user", "content": QUESTION}]
        model, functions = world.model(kind, wire), {"get_weather": get_weather, "now": now}
        for _ in range(3):
            reply = world.sdk(Ollama).chat(model=model, messages=said, tools=[get_weather, now])
            said.append(reply.message)
            for call in reply.message.tool_calls or ():
                given = functions[call.function.name](**call.function.arguments)
                said.append({"role": "tool", "tool_name": call.function.name, "content": given})
        assert said[-1].content == answer()


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: Which city.
    """
    assert city == "Oslo"
    return SKY


def now() -> str:
    """The time."""
    return TIME


@streamed
@every_wire
@pytest.mark.parametrize("client", CHOOSING)
@pytest.mark.parametrize("kind", ["native", "plain", "hermes", "wilful", "constrained"])
def test_a_choice(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    model = world.model(kind, wire)

    def asked(choice: ToolChoice) -> Heard:
        talk.say(QUESTION)
        return talk.ask(choice=choice)

    talk = world.talk(client, model, stream=stream)
    calls_only(talk, asked(ToolChoice("required")), OSLO)
    talk = world.talk(client, model, stream=stream)
    calls_only(talk, asked(ToolChoice("required", ("now",))), CLOCK)
    talk = world.talk(client, model, stream=stream)
    refused = asked(ToolChoice("none"))
    assert (refused.calls, refused.reason) == ((), talk.reasons["stop"])
    # Ollama's API has no choice: there no tools are sent, and nothing is ignored.
    ignores = kind == "wilful" and wire != "ollama"
    assert ("get_weather" in refused.text) if ignores else (refused.text == CANNOT)
    assert len(world.asked(model)) == {"plain": 4}.get(kind, 5 if ignores else 3)


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", *TEXTUAL])
def test_calls_at_once(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    model = world.model(kind, wire)
    talk = world.talk(client, model, stream=stream)
    talk.say(BOTH)
    first = talk.ask()
    calls_only(talk, first, OSLO, PARIS)
    results = [
        Result(first.calls[0], '{"sky": "rain"}'),
        Result(first.calls[1], '{"sky": "sun"}'),
    ]
    ids = {call.id for call in first.calls}
    if client != "ollama":
        # Only Ollama's SDK knows results by their order.
        assert len(ids) == 2
        results.reverse()
    talk.give(*results)
    says_only(talk, talk.ask(), "Oslo: rain. Paris: sun.")


@streamed
@every_wire
@pytest.mark.parametrize("client", ONE_CALL)
@pytest.mark.parametrize("kind", ["native", "plain", *TEXTUAL, "constrained"])
def test_one_call_at_a_time(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    talk = world.talk(client, world.model(kind, wire), stream=stream)
    talk.more = ONE_CALL[client]
    talk.say(BOTH)
    for city, sky in ((OSLO, "rain"), (PARIS, "sun")):
        heard = talk.ask()
        calls_only(talk, heard, city)
        talk.give(Result(heard.calls[0], f'{{"sky": "{sky}"}}'))
    says_only(talk, talk.ask(), "Oslo: rain. Paris: sun.")


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
def test_a_result_that_is_an_error(
    world: World, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = world.model(kind, wire)
    talk = world.talk(client, model, stream=stream)
    talk.say(QUESTION)
    first = talk.ask()
    talk.give(Result(first.calls[0], NOWHERE, is_error=True))
    says_only(talk, talk.ask(), f"Sorry: {NOWHERE}.")
    *_, last = world.asked(model)
    flagged = client in ("anthropic", "google-genai")
    if kind in ("plain", "constrained"):
        assert (f"Error: {NOWHERE}" in heard(last)[-1]) is flagged
    elif wire in ("anthropic", "gemini"):
        assert [result.is_error for result in results_in(last)] == [flagged]


def results_in(request: Request) -> list[ToolResult]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


LONG = "Ünïcödé ☔ 天气 \U0001f327\u2028 \\n </tool_call> & <b>; " * 900
"""50 KB and more, with what JSON, HTML, Unicode and templates find hard."""


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "constrained"])
def test_a_long_result(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    model = world.model(kind, wire)
    talk = world.talk(client, model, stream=stream)
    sky = f'{{"sky": "{LONG}"}}'
    says_only(talk, converse(talk, sky=sky), answer(LONG))
    *_, last = world.asked(model)
    if kind == "native":
        assert [result.text for result in results_in(last)] == [sky, TIME]


@streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "constrained"])
def test_a_side_request(world: World, kind: str, client: str, wire: str, stream: bool) -> None:
    model = world.model(kind, wire)
    talk = world.talk(client, model, stream=stream)
    talk.say(QUESTION)
    first = talk.ask()

    def title(*history: object) -> None:
        """The client asks for a title, and gives no tools."""
        aside = world.talk(client, model, stream=stream)
        aside.said = list(history)
        aside.say(TITLE)
        says_only(aside, aside.ask(None), "Oslo")
        *_, last = world.asked(model)
        assert (last.tools, system_of(last)) == (None, "")

    title()
    talk.give(Result(first.calls[0], SKY))
    title(*talk.said)
    second = talk.ask(None)
    calls_only(talk, second, CLOCK)
    talk.give(Result(second.calls[0], TIME))
    says_only(talk, talk.ask(None), answer())
    title(*talk.said)


class TestResponses:
    """What only the Responses API has."""

    def talk(self, world: World, model: str, stream: bool) -> Responses:
        talk = world.talk("openai responses", model, stream=stream)
        assert isinstance(talk, Responses)
        return talk

    @streamed
    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_it_goes_on_from_a_response(
        self, world: World, kind: str, wire: str, stream: bool
    ) -> None:
        talk = self.talk(world, world.model(kind, wire), stream)
        talk.say(QUESTION)
        first = talk.ask()
        calls_only(talk, first, OSLO)
        second = self.after(talk, Result(first.calls[0], SKY))
        calls_only(talk, second, CLOCK)
        last = self.after(talk, Result(second.calls[0], TIME))
        says_only(talk, last, answer())
        kept = talk.sdk.responses.retrieve(talk.response.id)
        assert (kept.output_text, kept.status) == (answer(), "completed")
        assert [item.id for item in kept.output] == [item.id for item in talk.response.output]
        talk.sdk.responses.delete(talk.response.id)
        with pytest.raises(openai.NotFoundError):
            talk.sdk.responses.retrieve(talk.response.id)

    def after(self, talk: Responses, result: Result) -> Heard:
        """The client sends only what is new."""
        talk.said = []
        talk.more = {"previous_response_id": talk.response.id, "store": True}
        talk.give(result)
        return talk.ask(None)

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain"])
    def test_what_is_not_stored_is_not_there(self, world: World, kind: str, wire: str) -> None:
        talk = self.talk(world, world.model(kind, wire), False)
        talk.more = {"store": False}
        talk.say(QUESTION)
        talk.ask()
        with pytest.raises(openai.NotFoundError):
            talk.sdk.responses.retrieve(talk.response.id)

    @streamed
    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes"])
    def test_tools_that_take_text_and_tools_in_namespaces(
        self, world: World, kind: str, wire: str, stream: bool
    ) -> None:
        model = world.model(kind, wire)
        talk = self.talk(world, model, stream)
        talk.say(PATCH)
        tools = (
            Tool(name="apply_patch", description="Patch files.", freeform=True),
            Tool(name="find", description="Find a person.", namespace="crm", parameters=PERSON),
        )
        first = talk.ask(tools)
        assert [(call.freeform, call.namespace, *one) for call, one in both(first)] == [
            (True, None, "apply_patch", {"input": DIFF}),
            (False, "crm", "find", {"name": "Ann"}),
        ]
        patch, find = first.calls
        talk.give(Result(patch, "Done."), Result(find, "found Ann"))
        says_only(talk, talk.ask(None), "Patched, and found.")


OTHER = Tool(name="other", description="Another tool.", parameters=TOOLS[1].parameters)
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def both(heard: Heard) -> Iterator[tuple[ToolCall, tuple[str, object]]]:
    return zip(heard.calls, made(heard), strict=True)
