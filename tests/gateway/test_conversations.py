"""Conversations with tools by the vendors' SDKs, with every kind of model behind every API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.scripted_models import (
    BOTH_CITIES,
    CANNOT_LOOK,
    DIFF,
    INTENTION,
    PATCH,
    QUESTION,
    SKY,
    TIME,
    TITLE,
    UNKNOWN_CITY,
    ScriptedGateway,
    find_taught_dialect,
    format_answer,
    list_texts,
    read_system_text,
    start_scripted_gateway,
)
from tests.gateway.sdk_conversations import (
    CLIENTS,
    Conversation,
    Gemini,
    GeminiWithoutIds,
    Messages,
    Ollama,
    Responses,
    Result,
    SdkReply,
)
from tests.wires.scenarios import TOOLS, WEATHER
from toolspeak import DIALECTS, Request, Tool, ToolCall, ToolChoice, ToolResult, render_calls
from toolspeak.wires import WIRES

REJECTING = ["plain", "vllm", "openrouter"]
TEXTUAL = ["hermes", "coder"]
OSLO, PARIS = ("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Paris"})
CLOCK = ("now", {})
CHOOSING = [client for client in CLIENTS if client != "ollama"]
"""Ollama's API has no tool choice."""
TAUGHT = [name for name in DIALECTS if name not in ("openai_json_echo", "content-with-tool_calls")]
"""The scripted server takes the other two, JSON of the API, for calls in the history."""
ONE_CALL: dict[str, dict[str, Any]] = {
    "openai chat": {"parallel_tool_calls": False},
    "openai responses": {"parallel_tool_calls": False},
    "anthropic": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}
"""Fields that limit a reply to one call."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[ScriptedGateway]:
    with start_scripted_gateway() as gateway:
        yield gateway


whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
every_wire = pytest.mark.parametrize("wire", WIRES)
every_client = pytest.mark.parametrize("client", CLIENTS)


def list_calls(reply: SdkReply) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in reply.calls]


def check_calls(
    talk: Conversation, reply: SdkReply, *expected: tuple[str, object], text: str = ""
) -> None:
    """Check that a reply has exactly these calls and this text."""
    actual_text = reply.text.strip() if text else reply.text
    assert (list_calls(reply), actual_text) == (list(expected), text)
    assert reply.reason == talk.reasons["calls"]


def check_text(talk: Conversation, reply: SdkReply, expected: str) -> None:
    """Check that a reply has exactly this text and no calls."""
    assert (reply.text, reply.calls, reply.reason) == (expected, (), talk.reasons["stop"])


def converse(
    talk: Conversation, *, sends_tools_once: bool = False, sky: str = SKY, text: str = ""
) -> SdkReply:
    """Make the requests of a conversation with two calls; return the last reply."""
    later = None if sends_tools_once else TOOLS
    talk.add_question(QUESTION)
    first = talk.ask()
    check_calls(talk, first, OSLO, text=text)
    talk.add_results(Result(first.calls[0], sky))
    second = talk.ask(later)
    check_calls(talk, second, CLOCK, text=text)
    assert not first.calls[0].id or first.calls[0].id != second.calls[0].id
    talk.add_results(Result(second.calls[0], TIME))
    return talk.ask(later)


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "reused_ids", *REJECTING, *TEXTUAL, "constrained"])
def test_conversation_with_two_calls_ends_with_the_answer(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    for once in (False, True):
        talk = gateway.start_conversation(client, model, stream=stream)
        check_text(talk, converse(talk, sends_tools_once=once), format_answer())
    with_tools = [bool(request.tools) for request in gateway.list_requests(model)]
    match kind:
        case "native" | "reused_ids":
            assert with_tools == [True] * 6
        case "constrained":
            assert with_tools == [False] * 6
        case "hermes" | "coder":
            # After three calls in the text, the gateway uses a prompt.
            assert with_tools == [True] * 4 + [False] * 2
        case _:
            # The model rejects tools once, and the gateway remembers it.
            assert with_tools == [True] + [False] * 6


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["thinking", "thinking_in_text"])
def test_reasoning_and_text_before_calls_are_kept_apart(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    for once in (False, True):
        talk = gateway.start_conversation(client, model, stream=stream)
        check_text(talk, converse(talk, sends_tools_once=once, text=INTENTION), format_answer())


@pytest.mark.parametrize("dialect", TAUGHT)
def test_prompt_teaches_the_configured_dialect(gateway: ScriptedGateway, dialect: str) -> None:
    model = gateway.name_model(f"plain-{dialect}", "openai_chat")
    talk = gateway.start_conversation("openai chat", model, stream=True)
    check_text(talk, converse(talk), format_answer())
    rejected, *others = gateway.list_requests(model)
    assert rejected.tools
    examples = {
        render_calls(find_taught_dialect(read_system_text(request)), [EXAMPLE], TOOLS)
        for request in others
    }
    assert examples == {render_calls(dialect, [EXAMPLE], TOOLS)}


EXAMPLE = ToolCall(id="call_1", name="get_weather", arguments={"city": "Oslo"})


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("kind", ["native", "plain", "hermes"])
def test_client_without_ids_gets_its_calls_matched(
    gateway: ScriptedGateway, kind: str, wire: str, stream: bool
) -> None:
    talk = gateway.start_conversation(
        GeminiWithoutIds, gateway.name_model(kind, wire), stream=stream
    )
    check_text(talk, converse(talk, sends_tools_once=True), format_answer())


@whole_and_streamed
@every_wire
@every_client
def test_two_conversations_with_equal_ids_do_not_mix(
    gateway: ScriptedGateway, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model("reused_ids", wire)
    one, other = (gateway.start_conversation(client, model, stream=stream) for _ in range(2))
    one.add_question(QUESTION)
    first = one.ask()
    other.add_question(BOTH_CITIES)
    check_calls(other, other.ask([WEATHER]), OSLO, PARIS)
    one.add_results(Result(first.calls[0], SKY))
    check_calls(one, one.ask(None), CLOCK)


@every_wire
@every_client
def test_request_rejected_for_its_own_tools_changes_no_other(
    gateway: ScriptedGateway, client: str, wire: str
) -> None:
    model = gateway.name_model("picky", wire)
    for tools in ((*TOOLS, OTHER), TOOLS, (*TOOLS, OTHER), TOOLS):
        talk = gateway.start_conversation(client, model)
        talk.add_question(QUESTION)
        check_calls(talk, talk.ask(tools), OSLO)
    sent = [[tool.name for tool in request.tools or ()] for request in gateway.list_requests(model)]
    names = [tool.name for tool in TOOLS]
    assert sent == [[*names, "other"], [], names, [*names, "other"], [], names]


def test_busy_model_without_tools_fails_with_its_error(gateway: ScriptedGateway) -> None:
    talk = gateway.start_conversation("openai chat", gateway.name_model("busy", "openai_chat"))
    talk.add_question(QUESTION)
    with pytest.raises(openai.InternalServerError, match="the model is busy"):
        talk.ask()


@whole_and_streamed
@every_wire
@every_client
def test_history_with_calls_needs_no_tools_in_the_request(
    gateway: ScriptedGateway, client: str, wire: str, stream: bool
) -> None:
    talk = gateway.start_conversation(client, gateway.name_model("native", wire), stream=stream)
    check_text(talk, converse(talk), format_answer())
    talk.add_question(TITLE)
    talk.model = gateway.name_model("plain", wire)
    check_text(talk, talk.ask(None), "Oslo")
    talk.messages[-2:] = []
    talk.add_question(TITLE)
    talk.model = gateway.name_model("plain", wire)
    check_text(talk, talk.ask(()), "Oslo")


class TestToolLoops:
    """Functions of SDKs that run tools themselves."""

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_tool_runner_of_anthropic_ends_with_the_answer(
        self, gateway: ScriptedGateway, kind: str, wire: str
    ) -> None:
        runner = gateway.get_sdk(Messages).beta.messages.tool_runner(
            model=gateway.name_model(kind, wire),
            max_tokens=100,
            tools=[anthropic.beta_tool(get_weather), anthropic.beta_tool(now)],
            messages=[{"role": "user", "content": QUESTION}],
        )
        last = runner.until_done()
        assert [block.text for block in last.content] == [format_answer()]

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_automatic_function_calling_of_google_ends_with_the_answer(
        self, gateway: ScriptedGateway, kind: str, wire: str
    ) -> None:
        reply = gateway.get_sdk(Gemini).models.generate_content(
            model=gateway.name_model(kind, wire),
            contents=QUESTION,
            config={"tools": [get_weather, now]},
        )
        assert reply.text == format_answer()

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_functions_as_tools_of_ollama_end_with_the_answer(
        self, gateway: ScriptedGateway, kind: str, wire: str
    ) -> None:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        model, functions = gateway.name_model(kind, wire), {"get_weather": get_weather, "now": now}
        for _ in range(3):
            reply = gateway.get_sdk(Ollama).chat(
                model=model, messages=messages, tools=[get_weather, now]
            )
            messages.append(reply.message)
            for call in reply.message.tool_calls or ():
                result = functions[call.function.name](**call.function.arguments)
                messages.append(
                    {"role": "tool", "tool_name": call.function.name, "content": result}
                )
        assert messages[-1].content == format_answer()


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


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("client", CHOOSING)
@pytest.mark.parametrize("kind", ["native", "plain", "hermes", "ignores_choice", "constrained"])
def test_tool_choice_is_enforced(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)

    def ask(choice: ToolChoice) -> SdkReply:
        talk.add_question(QUESTION)
        return talk.ask(choice=choice)

    talk = gateway.start_conversation(client, model, stream=stream)
    reply = ask(ToolChoice("none"))
    assert (reply.calls, reply.reason) == ((), talk.reasons["stop"])
    # Ollama's API has no tool choice: the gateway sends no tools, so that nothing is ignored.
    is_ignored = kind == "ignores_choice" and wire != "ollama"
    assert ("get_weather" in reply.text) if is_ignored else (reply.text == CANNOT_LOOK)
    talk = gateway.start_conversation(client, model, stream=stream)
    check_calls(talk, ask(ToolChoice("required")), OSLO)
    talk = gateway.start_conversation(client, model, stream=stream)
    check_calls(talk, ask(ToolChoice("required", ("now",))), CLOCK)
    # A model that ignored a required choice has its tools in the prompt from then on.
    assert len(gateway.list_requests(model)) == (4 if kind == "plain" or is_ignored else 3)


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", *TEXTUAL])
def test_parallel_calls_get_their_own_results(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    talk = gateway.start_conversation(client, model, stream=stream)
    talk.add_question(BOTH_CITIES)
    first = talk.ask()
    check_calls(talk, first, OSLO, PARIS)
    results = [
        Result(first.calls[0], '{"sky": "rain"}'),
        Result(first.calls[1], '{"sky": "sun"}'),
    ]
    ids = {call.id for call in first.calls}
    if client != "ollama":
        # Only Ollama's API matches results by their order.
        assert len(ids) == 2
        results.reverse()
    talk.add_results(*results)
    check_text(talk, talk.ask(), "Oslo: rain. Paris: sun.")


@whole_and_streamed
@every_wire
@pytest.mark.parametrize("client", ONE_CALL)
@pytest.mark.parametrize("kind", ["native", "plain", *TEXTUAL, "constrained"])
def test_single_call_limit_splits_parallel_calls(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    talk = gateway.start_conversation(client, gateway.name_model(kind, wire), stream=stream)
    talk.extra_fields = ONE_CALL[client]
    talk.add_question(BOTH_CITIES)
    for city, sky in ((OSLO, "rain"), (PARIS, "sun")):
        reply = talk.ask()
        check_calls(talk, reply, city)
        talk.add_results(Result(reply.calls[0], f'{{"sky": "{sky}"}}'))
    check_text(talk, talk.ask(), "Oslo: rain. Paris: sun.")


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
def test_error_result_is_marked_for_the_model(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    talk = gateway.start_conversation(client, model, stream=stream)
    talk.add_question(QUESTION)
    first = talk.ask()
    talk.add_results(Result(first.calls[0], UNKNOWN_CITY, is_error=True))
    check_text(talk, talk.ask(), f"Sorry: {UNKNOWN_CITY}.")
    *_, last = gateway.list_requests(model)
    is_marked = client in ("anthropic", "google-genai")
    if kind in ("plain", "constrained"):
        assert (f"Error: {UNKNOWN_CITY}" in list_texts(last)[-1]) is is_marked
    elif wire in ("anthropic", "gemini"):
        assert [result.is_error for result in list_results(last)] == [is_marked]


def list_results(request: Request) -> list[ToolResult]:
    parts = [part for message in request.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


LONG_TEXT = "Ünïcödé ☔ 天气 \U0001f327\u2028 \\n </tool_call> & <b>; " * 900
"""More than 50 KB, with characters that JSON, HTML and templates have to escape."""


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "constrained"])
def test_long_result_reaches_the_model_unchanged(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    talk = gateway.start_conversation(client, model, stream=stream)
    sky = f'{{"sky": "{LONG_TEXT}"}}'
    check_text(talk, converse(talk, sky=sky), format_answer(LONG_TEXT))
    *_, last = gateway.list_requests(model)
    if kind == "native":
        assert [result.text for result in list_results(last)] == [sky, TIME]


@whole_and_streamed
@every_wire
@every_client
@pytest.mark.parametrize("kind", ["native", "plain", "constrained"])
def test_side_request_without_tools_gets_no_tools(
    gateway: ScriptedGateway, kind: str, client: str, wire: str, stream: bool
) -> None:
    model = gateway.name_model(kind, wire)
    talk = gateway.start_conversation(client, model, stream=stream)
    talk.add_question(QUESTION)
    first = talk.ask()

    def request_title(*history: object) -> None:
        """Ask for a title without tools."""
        side_talk = gateway.start_conversation(client, model, stream=stream)
        side_talk.messages = list(history)
        side_talk.add_question(TITLE)
        check_text(side_talk, side_talk.ask(None), "Oslo")
        *_, last = gateway.list_requests(model)
        assert (last.tools, read_system_text(last)) == (None, "")

    request_title()
    talk.add_results(Result(first.calls[0], SKY))
    request_title(*talk.messages)
    second = talk.ask(None)
    check_calls(talk, second, CLOCK)
    talk.add_results(Result(second.calls[0], TIME))
    check_text(talk, talk.ask(None), format_answer())
    request_title(*talk.messages)


class TestResponses:
    """Features that only the Responses API has."""

    def start_conversation(self, gateway: ScriptedGateway, model: str, stream: bool) -> Responses:
        talk = gateway.start_conversation("openai responses", model, stream=stream)
        assert isinstance(talk, Responses)
        return talk

    @whole_and_streamed
    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes", "constrained"])
    def test_conversation_continues_from_a_stored_response(
        self, gateway: ScriptedGateway, kind: str, wire: str, stream: bool
    ) -> None:
        talk = self.start_conversation(gateway, gateway.name_model(kind, wire), stream)
        talk.add_question(QUESTION)
        first = talk.ask()
        check_calls(talk, first, OSLO)
        second = self.continue_with(talk, Result(first.calls[0], SKY))
        check_calls(talk, second, CLOCK)
        last = self.continue_with(talk, Result(second.calls[0], TIME))
        check_text(talk, last, format_answer())
        stored = talk.sdk.responses.retrieve(talk.response.id)
        assert (stored.output_text, stored.status) == (format_answer(), "completed")
        assert [item.id for item in stored.output] == [item.id for item in talk.response.output]
        talk.sdk.responses.delete(talk.response.id)
        with pytest.raises(openai.NotFoundError):
            talk.sdk.responses.retrieve(talk.response.id)

    def continue_with(self, talk: Responses, result: Result) -> SdkReply:
        """Send only the new result."""
        talk.messages = []
        talk.extra_fields = {"previous_response_id": talk.response.id, "store": True}
        talk.add_results(result)
        return talk.ask(None)

    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain"])
    def test_response_with_store_false_is_not_stored(
        self, gateway: ScriptedGateway, kind: str, wire: str
    ) -> None:
        talk = self.start_conversation(gateway, gateway.name_model(kind, wire), False)
        talk.extra_fields = {"store": False}
        talk.add_question(QUESTION)
        talk.ask()
        with pytest.raises(openai.NotFoundError):
            talk.sdk.responses.retrieve(talk.response.id)

    @whole_and_streamed
    @every_wire
    @pytest.mark.parametrize("kind", ["native", "plain", "hermes"])
    def test_freeform_tools_and_namespaces_are_restored(
        self, gateway: ScriptedGateway, kind: str, wire: str, stream: bool
    ) -> None:
        model = gateway.name_model(kind, wire)
        talk = self.start_conversation(gateway, model, stream)
        talk.add_question(PATCH)
        tools = (
            Tool(name="apply_patch", description="Patch files.", freeform=True),
            Tool(name="find", description="Find a person.", namespace="crm", parameters=PERSON),
        )
        first = talk.ask(tools)
        assert [(call.freeform, call.namespace, *pair) for call, pair in pair_calls(first)] == [
            (True, None, "apply_patch", {"input": DIFF}),
            (False, "crm", "find", {"name": "Ann"}),
        ]
        patch, find = first.calls
        talk.add_results(Result(patch, "Done."), Result(find, "found Ann"))
        check_text(talk, talk.ask(None), "Patched, and found.")


OTHER = Tool(name="other", description="Another tool.", parameters=TOOLS[1].parameters)
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def pair_calls(reply: SdkReply) -> Iterator[tuple[ToolCall, tuple[str, object]]]:
    """Yield each call with its name and arguments."""
    return zip(reply.calls, list_calls(reply), strict=True)
