"""Requests that are rejected before any model is asked, in the error shape of each API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct, structs

from tests.engine.gateway_support import call_reply, text_reply
from tests.gateway.raw_clients import CLIENTS, TOOL, WHOLE, Client, ask
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak.calls.schema import find_schema_problem
from toolspeak.config.settings import Config, ModelSettings
from toolspeak.testing import ScriptedServer
from toolspeak.upstream.catalog import Catalog, DiscoveredServer, UnknownModelError


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(text_reply("Hello.")) as server:
        yield server


@pytest.fixture(scope="module", params=["native", "prompt"])
def gateway(request: pytest.FixtureRequest, model: ScriptedServer) -> Iterator[RunningGateway]:
    with run_gateway(make_config(model.url, tools=request.param)) as running:
        yield running


def declare(client: Client, *tools: tuple[str, Any]) -> dict[str, Any]:
    """Return the field `tools` in the client's API."""
    match client.wire:
        case "openai_responses":
            return {"tools": [{"type": "function", "name": n, "parameters": s} for n, s in tools]}
        case "anthropic":
            return {"tools": [{"name": n, "input_schema": s} for n, s in tools]}
        case "gemini":
            declared = [{"name": n, "parametersJsonSchema": s} for n, s in tools]
            return {"tools": [{"googleSearch": {}}, {"functionDeclarations": declared}]}
        case _:
            functions = [{"name": n, "parameters": s} for n, s in tools]
            return {"tools": [{"type": "function", "function": one} for one in functions]}


NAME_PATHS = {
    "openai_chat": "tools[{}].function",
    "ollama": "tools[{}].function",
    "openai_responses": "tools[{}]",
    "anthropic": "tools[{}]",
    "gemini": "tools[1].functionDeclarations[{}]",
}
SCHEMA_FIELDS = {"anthropic": "input_schema", "gemini": "parametersJsonSchema"}


class BadTools(Struct, frozen=True):
    """Tools that are rejected, and the path that the error names."""

    tools: tuple[tuple[str, Any], ...]
    at: int
    field: str
    problem: str


GOOD = ("f", TOOL)


def nested(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"city": schema}}


BAD_TOOLS = {
    "duplicate": BadTools((GOOD, ("g", TOOL), GOOD), 2, "name", "declared twice"),
    "empty name": BadTools((GOOD, ("", TOOL)), 1, "name", "is empty"),
    "blank name": BadTools(((" ", TOOL),), 0, "name", "is empty"),
    "no object": BadTools((GOOD, ("g", {"type": "array"})), 1, "SCHEMA.type", "`type` must be"),
    "unknown type": BadTools(
        (("g", nested(type="banana")),), 0, "SCHEMA.properties.city.type", '"banana"'
    ),
    "required": BadTools(
        (("g", {**TOOL, "required": "city"}),), 0, "SCHEMA.required", "`required` cannot be"
    ),
    "reference": BadTools(
        (("g", nested(**{"$ref": "#/$defs/no"})),), 0, "SCHEMA.properties.city.$ref", "#/$defs/no"
    ),
    "pattern": BadTools(
        (("g", nested(type="string", pattern="(")),),
        0,
        "SCHEMA.properties.city.pattern",
        "regular expression",
    ),
    "no schema": BadTools(
        (("g", {"type": "object", "properties": {"city": "string"}}),),
        0,
        "SCHEMA.properties.city",
        "must be a schema",
    ),
}


def check_rejection(client: Client, response: Any, path: str, model: ScriptedServer) -> None:
    assert (response.status, model.requests) == (400, [])
    assert f"`$.{path}`" in response.error
    error = json.loads(response.raw)["error"]
    if client.wire.startswith("openai"):
        assert (error["type"], error["param"]) == ("invalid_request_error", path)
    if client.wire == "gemini":
        assert error["status"] == "INVALID_ARGUMENT"
        assert error["details"][0]["fieldViolations"][0]["field"] == path
    if client.wire == "anthropic":
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("name", BAD_TOOLS)
def test_bad_tools_are_rejected_with_the_path_of_the_clients_field(
    name: str, client: Client, gateway: RunningGateway, model: ScriptedServer
) -> None:
    bad = BAD_TOOLS[name]
    response = ask(gateway.url, client, client.body() | declare(client, *bad.tools))
    field = bad.field.replace("SCHEMA", SCHEMA_FIELDS.get(client.wire, "parameters"))
    check_rejection(client, response, NAME_PATHS[client.wire].format(bad.at) + "." + field, model)
    assert bad.problem in response.error


ACCEPTED_SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": "dict", "properties": {"a": {"type": "int"}}},
    {"type": "object", "properties": None, "required": None},
    {"type": "object", "properties": []},
    nested(type="string", required=True),
    nested(type="any"),
    nested(type="number", exclusiveMinimum=True, minimum=1),
    nested(type="array", items=[{"type": "int"}]),
    nested(type="string", pattern="(?<=a+)b"),
    nested(type="string", pattern="[^]"),
    nested(type="string", pattern=r"^\p{L}+$"),
    nested(type="string", title=5),
    nested(type="string", nullable=True),
    {"$schema": "http://nowhere/x", "type": "object"},
    {"anyOf": [{"type": "object"}, {"type": "null"}]},
    {**nested(**{"$ref": "#/$defs/a%20b~1c"}), "$defs": {"a b/c": {"type": "int"}}},
    {"type": "object", "properties": {"type": {"type": "string"}, "required": {}}},
]


@pytest.mark.parametrize("schema", ACCEPTED_SCHEMAS, ids=repr)
def test_schema_whose_meaning_is_clear_has_no_problem(schema: dict[str, Any]) -> None:
    assert find_schema_problem(schema) is None


# Tool choices.

CHOICES: dict[str, Any] = {
    "openai_chat": {"tool_choice": {"type": "function", "function": {"name": "NAME"}}},
    "openai_responses": {"tool_choice": {"type": "function", "name": "NAME"}},
    "anthropic": {"tool_choice": {"type": "tool", "name": "NAME"}},
    "gemini": {
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["NAME"]}}
    },
}
CHOOSING = [client for client in CLIENTS if client.wire in CHOICES]
"""Ollama's API has no tool choice."""
CHOICE_PATHS = {"gemini": "toolConfig.functionCallingConfig"}


def choose(client: Client, name: str) -> dict[str, Any]:
    return json.loads(json.dumps(CHOICES[client.wire]).replace("NAME", name))


def require_call(client: Client) -> dict[str, Any]:
    body = client.body("Hi", required=True)
    return {key: body[key] for key in ("tool_choice", "toolConfig") if key in body}


@pytest.mark.parametrize("client", CHOOSING, ids=lambda client: client.name)
@pytest.mark.parametrize("tools", [("f",), ()], ids=["with tools", "without"])
def test_choice_of_an_undeclared_tool_is_rejected(
    tools: tuple[str, ...], client: Client, gateway: RunningGateway, model: ScriptedServer
) -> None:
    body = client.body("Hi", tools=list(tools)) | choose(client, "zz")
    response = ask(gateway.url, client, body)
    check_rejection(client, response, CHOICE_PATHS.get(client.wire, "tool_choice"), model)
    assert "'zz'" in response.error
    assert ("declared tools: f" if tools else "no tools") in response.error


@pytest.mark.parametrize("client", CHOOSING, ids=lambda client: client.name)
def test_required_call_without_tools_is_rejected(
    client: Client, gateway: RunningGateway, model: ScriptedServer
) -> None:
    for tools in ({}, {"tools": []}):
        response = ask(gateway.url, client, client.body() | tools | require_call(client))
        check_rejection(client, response, CHOICE_PATHS.get(client.wire, "tool_choice"), model)
        assert "no tools" in response.error


def test_allowed_tools_must_be_declared(gateway: RunningGateway, model: ScriptedServer) -> None:
    named = {"type": "function", "function": {"name": "zz"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    body = WHOLE[0].body("Hi", tools=["f"]) | {"tool_choice": allowed}
    check_rejection(WHOLE[0], ask(gateway.url, WHOLE[0], body), "tool_choice", model)


HOSTED = {
    "openai_responses": (
        {"tools": [{"type": "web_search"}], "tool_choice": "required"},
        "openai_responses",
    ),
    "anthropic": (
        {
            "tools": [{"type": "bash_20250124", "name": "bash"}],
            "tool_choice": {"type": "tool", "name": "bash"},
        },
        "anthropic",
    ),
}


@pytest.mark.parametrize("wire", HOSTED)
def test_choice_of_a_hosted_tool_is_passed_on(wire: str) -> None:
    client = next(one for one in WHOLE if one.wire == wire)
    fields, upstream = HOSTED[wire]
    server = ScriptedServer(text_reply("Hello."))
    with server, run_gateway(make_config(server.url, wire=upstream)) as running:
        assert ask(running.url, client, client.body() | fields).status == 200
    assert len(server.requests) == 1


def test_required_call_with_restored_tools_is_admitted() -> None:
    """A later turn may omit its tools; those of the earlier turn count."""
    client = WHOLE[0]
    turns = call_reply(city="Oslo"), call_reply(city="Bergen")
    with ScriptedServer(*turns) as server, run_gateway(make_config(server.url)) as running:
        first = ask(running.url, client, client.body("Weather?", tools=["get_weather"]))
        message = json.loads(first.raw)["choices"][0]["message"]
        [call] = message["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
        messages = [{"role": "user", "content": "Weather?"}, message, result]
        later = client.body() | {"messages": messages} | require_call(client)
        assert ask(running.url, client, later).status == 200
        assert ask(running.url, client, later | choose(client, "get_weather")).status == 200
        assert ask(running.url, client, later | choose(client, "zz")).status == 400


# Unknown models.

LOCAL = DiscoveredServer(
    "ollama", make_config("http://127.0.0.1:1").upstreams["scripted"], ("qwen3:8b", "llama3.2")
)


class Names(Struct, frozen=True):
    """A configuration, and what it makes of an unknown name."""

    config: Config
    serves_unknown: bool


CATALOGS = {
    "default": Names(Config(default="ollama/llama3.2"), True),
    "embedded": Names(Config(embedded=True), True),
    "gguf": Names(Config(gguf="model.gguf"), True),
    "gguf, but not embedded": Names(Config(gguf="model.gguf", embedded=False), False),
    "nothing": Names(Config(), False),
    "not embedded": Names(Config(embedded=False), False),
    "models": Names(Config(models={"local": ModelSettings("ollama", model="qwen3:8b")}), False),
}


@pytest.mark.parametrize("name", CATALOGS)
def test_unknown_model_is_served_only_if_the_default_was_chosen(name: str) -> None:
    names = CATALOGS[name]
    catalog = Catalog(names.config, {}, (LOCAL,))
    assert not catalog.resolve("").is_substitute
    for known in ("ollama/llama3.2", "qwen3:8b"):
        assert not catalog.resolve(known).is_substitute
    if names.serves_unknown:
        assert catalog.resolve("nosuch").is_substitute
    else:
        with pytest.raises(UnknownModelError, match="'nosuch' is not available"):
            catalog.resolve("nosuch")


NEAREST = {
    "qwen3-8b": "qwen3:8b",
    "olama/qwen3": "ollama/qwen3:8b",
    "llama-3.2": "llama3.2",
    "zzzzzz": "available models include",
}


@pytest.mark.parametrize("name", NEAREST)
def test_error_for_an_unknown_model_has_the_nearest_names(name: str) -> None:
    with pytest.raises(UnknownModelError) as problem:
        Catalog(Config(), {}, (LOCAL,)).resolve(name)
    assert NEAREST[name] in problem.value.failure.message
    assert (problem.value.failure.status, problem.value.failure.param) == (404, "model")


def name_model(client: Client, name: str) -> tuple[Client, dict[str, Any]]:
    if client.wire == "gemini":
        return structs.replace(client, path=client.path.replace("/m:", f"/{name}:")), client.body()
    return client, client.body() | {"model": name}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_unknown_model_without_a_default_is_a_404(client: Client) -> None:
    with ScriptedServer(text_reply("Hello.")) as server:
        config = structs.replace(make_config(server.url), default="")
        with run_gateway(config) as running:
            asking, body = name_model(client, "mm")
            response = ask(running.url, asking, body)
            assert (response.status, server.requests) == (404, [])
            assert "'mm'" in response.error
            asking, body = name_model(client, "m")
            known = ask(running.url, asking, body)
            assert (known.status, known.headers["x-toolspeak-model"]) == (200, "scripted/m")
            assert "model-substituted" not in known.headers["x-toolspeak-notes"]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_default_model_says_that_it_served_an_unknown_name(
    client: Client, model: ScriptedServer
) -> None:
    with run_gateway(make_config(model.url)) as running:
        asking, body = name_model(client, "nosuch")
        response = ask(running.url, asking, body)
    model.requests.clear()
    assert (response.status, response.headers["x-toolspeak-model"]) == (200, "scripted/m")
    assert "model-substituted" in response.headers["x-toolspeak-notes"]


def test_fallback_is_named_as_the_model_that_served() -> None:
    with ScriptedServer(text_reply("Hello.")) as server:
        config = make_config("http://127.0.0.1:1")
        other = structs.replace(make_config(server.url).upstreams["scripted"], model="größer 2")
        first = structs.replace(config.upstreams["scripted"], fallbacks=("other",))
        config = structs.replace(config, upstreams={"scripted": first, "other": other})
        with run_gateway(config) as running:
            response = ask(running.url, WHOLE[0])
    assert response.headers["x-toolspeak-model"] == "other/gr%C3%B6%C3%9Fer%202"
