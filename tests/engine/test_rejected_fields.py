"""Fields that an upstream rejects by name: dropped or renamed, sent again once, and remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.gateway_support import CHAT, NATIVE_CALL, text_reply, weather_body
from tests.gateway.raw_clients import CLIENTS, Client, ask
from tests.gateway.running_gateway import make_config, run_gateway
from toolspeak import Event, Failure, Request
from toolspeak.engine.attempt import apply_quirks
from toolspeak.engine.plan import ModelProfile
from toolspeak.engine.recovery import rejects_all_tools
from toolspeak.engine.rejected_fields import FieldChange, find_rejected_field
from toolspeak.testing import ScriptedServer
from toolspeak.testing.scripted_server import Turn
from toolspeak.types import Quirks
from toolspeak.upstream.learned_modes import LearnedFields

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho", "reasoning_content": "Hm"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "strict": True}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 10,
    "max_completion_tokens": 10,
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "think": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "metadata": {"a": "b"},
    "user": "me",
    "store": True,
    "stop": ["x"],
    "response_format": {"type": "json_object"},
}
WORDINGS: dict[str, tuple[str, str | None]] = {
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.": ("max_tokens", "max_tokens"),
    "Unrecognized request argument supplied: max_completion_tokens": (
        "max_completion_tokens",
        None,
    ),
    "Unknown parameter: 'reasoning_effort'.": ("reasoning_effort", "reasoning_effort"),
    "unknown field `reasoning_effort`, expected one of `model`, `messages`": (
        "reasoning_effort",
        None,
    ),
    "Unsupported parameter: 'reasoning.effort' is not supported with this model.": (
        "reasoning",
        "reasoning.effort",
    ),
    "[{'type': 'extra_forbidden', 'loc': ['body', 'stream_options'], "
    "'msg': 'Extra inputs are not permitted', 'input': {'include_usage': True}}]": (
        "stream_options",
        None,
    ),
    "Unsupported value: 'temperature' does not support 0.5 with this model.": (
        "temperature",
        "temperature",
    ),
    "`temperature` is deprecated for this model.": ("temperature", None),
    "metadata: Extra inputs are not permitted": ("metadata", None),
    "property 'user' is unsupported": ("user", None),
    "Additional properties are not allowed ('store' was unexpected)": ("store", None),
    '"llama3.2" does not support thinking': ("think", None),
    "Unknown parameter: 'parallel_tool_calls'.": ("parallel_tool_calls", "parallel_tool_calls"),
    "deepseek-reasoner does not support this tool_choice": ("tool_choice", None),
    "tools.0.function.strict: Extra inputs are not permitted": ("strict", None),
    "Unknown parameter: 'tools[0].function.strict'.": ("strict", "tools[0].function.strict"),
    "'messages.1' : property 'reasoning_content' is unsupported": ("reasoning_content", None),
}
NO_WORDINGS: dict[str, str | None] = {
    "temperature must be between 0 and 2": "temperature",
    "Unsupported parameter: 'stop' is not supported with this model.": "stop",
    "Unknown parameter: 'response_format'.": "response_format",
    "Unrecognized request argument supplied: tools": None,
    '"auto" tool choice requires --enable-auto-tool-choice': None,
    "the model does not support tools": None,
    "Only user and assistant roles are supported!": None,
    "Unknown parameter: 'top_k'.": "top_k",
    "this model does not support images; the user should use another": "messages",
}


@pytest.mark.parametrize("message", WORDINGS)
@pytest.mark.parametrize("status", [400, 422])
def test_rejected_field_in_any_wording_is_found(message: str, status: int) -> None:
    name, param = WORDINGS[message]
    change = find_rejected_field(Failure("bad_request", message, status, None, param), BODY)
    assert change is not None
    assert change.name == name
    body, _ = apply_quirks(BODY, change.apply(Quirks()))
    assert find_rejected_field(Failure("bad_request", message, status, None, param), body) is None


@pytest.mark.parametrize("message", NO_WORDINGS)
def test_error_about_something_else_names_no_field(message: str) -> None:
    failure = Failure("bad_request", message, 400, None, NO_WORDINGS[message])
    body = {key: value for key, value in BODY.items() if key != "top_k"}
    assert find_rejected_field(failure, body) is None


@pytest.mark.parametrize("message", WORDINGS)
def test_rejected_field_does_not_teach_prompt_mode(message: str) -> None:
    failure = Failure("bad_request", message, 400, None, WORDINGS[message][1])
    assert not rejects_all_tools(failure)


def test_limit_that_a_quirk_renamed_is_renamed_back() -> None:
    quirks = Quirks(rename={"max_tokens": "max_completion_tokens"})
    change = FieldChange("max_completion_tokens", "body", "max_tokens")
    for given in ("max_tokens", "max_completion_tokens"):
        assert apply_quirks({given: 5}, change.apply(quirks)) == ({"max_tokens": 5}, ())


def test_renamed_field_that_is_rejected_is_dropped() -> None:
    quirks = FieldChange("random_seed").apply(Quirks(rename={"seed": "random_seed"}))
    assert apply_quirks({"seed": 5}, quirks)[0] == {}


def test_think_tags_move_reasoning_into_the_content() -> None:
    call = {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": []}
    body, notes = apply_quirks({"messages": [call]}, Quirks(think_tags=True))
    expected = {"role": "assistant", "content": "<think>\nHm\n</think>\n\n", "tool_calls": []}
    assert (body, notes) == ({"messages": [expected]}, ())


def test_learned_fields_expire() -> None:
    now = [0.0]
    learned, profile = LearnedFields(lambda: now[0]), ModelProfile(upstream="a", model="m")
    learned.add(profile, [FieldChange("user")])
    learned.add(profile, [FieldChange("store"), FieldChange("user")])
    assert learned.apply(profile).quirks.drop == ("user", "store")
    other = ModelProfile(upstream="b", model="m")
    assert learned.apply(other) is other
    now[0] = 3601.0
    assert learned.apply(profile) is profile


# Through the gateway.


def reject(server: ScriptedServer, field: str) -> Turn:
    """Return a turn that rejects a field of the body, however deep it is."""

    def respond(_: Request) -> list[Event]:
        body = server.bodies[-1]
        if f'"{field}":' in json.dumps(body):
            return [Failure("bad_request", f"Unknown parameter: '{field}'.", 400, None, None)]
        return NATIVE_CALL if body.get("tools") else text_reply("Hello.")

    return respond


def tools_with_strict() -> list[Any]:
    [tool] = weather_body(CHAT)["tools"]
    return [{**tool, "function": {**tool["function"], "strict": True}}]


FIELDS: dict[str, dict[str, Any]] = {
    "reasoning_effort": {"reasoning_effort": "low"},
    "max_completion_tokens": {"max_completion_tokens": 10},
    "max_tokens": {"max_tokens": 10},
    "metadata": {"metadata": {"a": "b"}},
    "temperature": {"temperature": 0.5},
    "user": {"user": "me"},
    "store": {"store": True},
    "parallel_tool_calls": {"parallel_tool_calls": False},
    "tool_choice": {"tool_choice": "required"},
    "strict": {"tools": tools_with_strict()},
}


@pytest.mark.parametrize("field", FIELDS)
def test_request_with_a_rejected_field_is_sent_again_without_it(field: str) -> None:
    with ScriptedServer(text_reply("")) as server:
        server.turns = [reject(server, field)]
        with run_gateway(make_config(server.url)) as gateway:
            first = ask(gateway.url, CHAT, weather_body(CHAT, **FIELDS[field]))
            again = ask(gateway.url, CHAT, weather_body(CHAT, **FIELDS[field]))
            modes = [first.headers["x-toolspeak-mode"], again.headers["x-toolspeak-mode"]]
    assert (first.status, again.status, modes) == (200, 200, ["native", "native"])
    assert "field-rejected" in first.headers["x-toolspeak-notes"]
    assert "field-rejected" not in again.headers["x-toolspeak-notes"]
    assert len(server.requests) == 3, "it is rejected once, and then remembered"
    assert all(body.get("tools") for body in server.bodies)
    limits = ["max_tokens" in body or "max_completion_tokens" in body for body in server.bodies]
    assert limits == [field.startswith("max_")] * 3


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_field_that_the_gateway_adds_is_dropped_for_every_client(client: Client) -> None:
    with ScriptedServer(text_reply("")) as server:
        server.turns = [reject(server, "stream_options")]
        with run_gateway(make_config(server.url)) as gateway:
            for _ in range(2):
                response = ask(gateway.url, client)
                assert (response.status, response.text) == (200, "Hello.")
    assert len(server.requests) == (3 if client.stream else 2)


def test_field_that_is_rejected_under_both_names_ends_the_request() -> None:
    def respond(_: Request) -> list[Event]:
        body = server.bodies[-1]
        field = next(one for one in body if one.startswith("max_"))
        return [Failure("bad_request", f"Unknown parameter: '{field}'.", 400, None, field)]

    with ScriptedServer(respond) as server, run_gateway(make_config(server.url)) as gateway:
        response = ask(gateway.url, CHAT, CHAT.body() | {"max_tokens": 5})
    assert (response.status, len(server.requests)) == (400, 2)


def test_several_rejected_fields_are_dropped_one_by_one() -> None:
    given = {"user": "me", "store": True, "temperature": 0.5}

    def respond(_: Request) -> list[Event]:
        left = [name for name in given if name in server.bodies[-1]]
        if left:
            return [Failure("bad_request", f"Unknown parameter: '{left[0]}'.", 400, None, left[0])]
        return text_reply("Hello.")

    with ScriptedServer(respond) as server, run_gateway(make_config(server.url)) as gateway:
        for _ in range(2):
            assert ask(gateway.url, CHAT, CHAT.body() | given).status == 200
    assert len(server.requests) == 5


# Images.

PIXEL = "iVBORw0KGgo="
IMAGE_URL = f"data:image/png;base64,{PIXEL}"
IMAGE_BODIES: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": IMAGE_URL}}],
            }
        ]
    },
    "openai_responses": {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE_URL}]}]
    },
    "anthropic": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    }
                ],
            }
        ]
    },
    "ollama": {"messages": [{"role": "user", "content": "What is it?", "images": [PIXEL]}]},
    "gemini": {
        "contents": [
            {
                "role": "user",
                "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}],
            }
        ]
    },
}
IMAGE_FIELDS = {"openai_responses": "input", "gemini": "contents"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "image input is not supported - hint: you may need to provide the mmproj"),
        (400, "At most 0 image(s) may be provided in one request."),
    ],
)
def test_image_for_a_text_model_is_a_400_that_names_the_field(
    client: Client, status: int, words: str
) -> None:
    turn: list[Event] = [Failure("internal", words, status)]
    with ScriptedServer(turn) as server, run_gateway(make_config(server.url)) as gateway:
        response = ask(gateway.url, client, client.body() | IMAGE_BODIES[client.wire])
    assert (response.status, len(server.requests)) == (400, 1)
    assert "cannot read images" in response.error
    assert f"`{IMAGE_FIELDS.get(client.wire, 'messages')}`" in response.error
