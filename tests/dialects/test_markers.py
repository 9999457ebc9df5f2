"""The dialects by name and by model, and how several are combined."""

from __future__ import annotations

import pytest

from toolspeak import DIALECTS, Parser, UnknownDialect, UsageError, dialects_for_model, fold
from toolspeak.testing import parse

MODELS = [
    ("qwen3-coder", "qwen3_coder"),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3_coder"),
    ("qwen3-8b", "hermes"),
    ("Qwen2.5-7B-Instruct", "hermes"),
    ("NousResearch/Hermes-4-70B", "hermes"),
    ("deepseek-v3", "deepseek_v3"),
    ("deepseek-ai/DeepSeek-V3.1", "deepseek_v31"),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek_v32"),
    ("deepseek-r1:14b", "deepseek_v3"),
    ("zai-org/GLM-4.6", "glm45"),
    ("GLM-4.7-Flash", "glm47"),
    ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
    ("openai/gpt-oss-20b", "harmony"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral_json"),
    ("mistralai/Devstral-Small-2507", "mistral_args"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json"),
    ("meta-llama/Llama-3.2-3B-Instruct", "pythonic"),
    ("google/gemma-4-27b", "gemma4"),
    ("functiongemma-270m", "functiongemma"),
    ("LiquidAI/LFM2-1.2B", "lfm2"),
    ("ByteDance-Seed/Seed-OSS-36B", "seed_oss"),
    ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
    ("ibm-granite/granite-3.3-8b-instruct", "granite3"),
    ("ibm-granite/granite-20b-functioncalling", "granite_20b_fc"),
]


@pytest.mark.parametrize(("model", "dialect"), MODELS)
def test_dialect_of_a_model_comes_first(model: str, dialect: str) -> None:
    assert dialects_for_model(model)[0].name == dialect


def test_unknown_model_has_no_dialect() -> None:
    assert dialects_for_model("somebody/new-model") == ()


def test_other_dialects_count_beside_those_of_the_model() -> None:
    ours = "<tool_call>f</tool_call>"
    other = "[TOOL_CALLS]f[ARGS]{}"
    for text, dialect in ((ours, "glm47"), (other, "mistral_args")):
        assert parse([text], dialect=dialects_for_model("glm-4.7")).dialect == dialect


def test_other_dialects_are_text_if_trust_is_strict() -> None:
    text = "[TOOL_CALLS]f[ARGS]{}"
    assert parse([text], dialect="hermes", trust="strict").text == text
    assert parse([text], dialect="hermes").dialect == "mistral_args"


@pytest.mark.parametrize("name", ["hermse", "", "AUTO"])
def test_unknown_dialect_is_an_error(name: str) -> None:
    with pytest.raises(UnknownDialect, match="toolspeak dialects"):
        Parser(dialect=name)


def test_invalid_option_is_an_error() -> None:
    with pytest.raises(UsageError, match="incremental"):
        Parser(arguments="sometimes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"\$\[0\]"):
        Parser(tools=["f"])


def test_second_finish_returns_no_events() -> None:
    parser = Parser()
    assert fold(parser.feed("Hi") + parser.finish()).text == "Hi"
    assert parser.finish() == []
    with pytest.raises(UsageError, match="finished"):
        parser.feed("more")


def test_registry_has_75_dialects() -> None:
    assert len(DIALECTS) == 75
