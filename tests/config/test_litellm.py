"""LiteLLM's files: what is translated, and the warnings about the rest."""

from __future__ import annotations

import pytest

from tests.config.config_files import load_invalid, load_text
from toolspeak.config.settings import find_model_or_default

LITELLM = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/MY_KEY
      rpm: 480
      timeout: 30
      extra_headers: {X-Team: "${not} a variable"}
  - model_name: gpt-4o
    litellm_params:
      model: openrouter/openai/gpt-4o
      api_key: sk-or-0123456789abc
      max_parallel_requests: 3
  - model_name: claude
    litellm_params: {model: claude-sonnet-4-5, api_key: sk-ant}
    model_info: {max_input_tokens: 200000, base_model: x}
  - model_name: local
    litellm_params: {model: ollama_chat/llama3, api_base: "http://10.0.0.5:11434"}
    model_info: {supports_function_calling: false}
  - model_name: "groq/*"
    litellm_params: {model: "groq/*", api_key: sk-groq}
  - model_name: cloud
    litellm_params: {model: azure/deployment, api_base: "https://x.openai.azure.com"}
  - model_name: embed
    litellm_params: {model: openai/text-embedding-3-small}
    model_info: {mode: embedding}
litellm_settings:
  drop_params: true
  num_retries: 5
  fallbacks: [{claude: [gpt-4o, cloud]}]
router_settings:
  routing_strategy: least-busy
  model_group_alias: {gpt-4: gpt-4o, hidden: {model: local, hidden: true}, gone: cloud}
  fallbacks: [{gpt-4o: [claude]}]
general_settings:
  master_key: sk-master-0123456789
  database_url: postgres://hunter2@h
"""


def test_litellm_file_gives_upstreams_models_and_aliases() -> None:
    result = load_text(LITELLM, {"MY_KEY": "sk-mine"}, "litellm.yaml")
    config = result.config
    assert config.server.keys == (config.server.admin_key,) == ("sk-master-0123456789",)
    assert config.aliases == {"gpt-4": "gpt-4o", "hidden": "local"}
    first = config.upstreams["gpt-4o"]
    assert (first.provider, first.model, first.key) == ("openai", "gpt-4o", "sk-mine")
    assert (first.first_byte_timeout, first.retries) == (30.0, 5)
    assert first.headers == {"X-Team": "${not} a variable"}
    assert config.upstreams["gpt-4o (2)"].concurrency == 3
    assert config.upstreams["local"].wire == "ollama"
    assert config.models["local"].tools == "prompt"
    assert config.models["claude"].context_window == 200000
    assert set(config.models) == {"gpt-4o", "claude", "local", "groq/*"}


@pytest.mark.parametrize(
    ("requested", "attempts"),
    [
        (
            "gpt-4o",
            ["openai: gpt-4o", "openrouter: openai/gpt-4o", "anthropic: claude-sonnet-4-5"],
        ),
        (
            "claude",
            ["anthropic: claude-sonnet-4-5", "openai: gpt-4o", "openrouter: openai/gpt-4o"],
        ),
        ("groq/llama-3", ["groq: llama-3"]),
        ("hidden", ["ollama: llama3"]),
    ],
)
def test_litellm_models_have_their_fallbacks(requested: str, attempts: list[str]) -> None:
    config = load_text(LITELLM, {"MY_KEY": "sk-mine"}, "litellm.yml").config
    target = find_model_or_default(config, requested)
    assert target
    locations = [
        f"{config.upstreams[one.upstream].provider}: {one.model}" for one in target.locations
    ]
    assert locations == attempts


def test_litellm_unsupported_settings_give_warnings() -> None:
    warnings = "\n".join(load_text(LITELLM, {"MY_KEY": "sk-mine"}, "litellm.conf").warnings)
    for fragment in (
        "not supported and are ignored: rpm - at `$.model_list[0].litellm_params`",
        "not supported and are ignored: base_model - at `$.model_list[2].model_info`",
        "'cloud' is ignored: the provider of 'azure/deployment' is not supported",
        "'embed' is ignored: it is not a chat model - at `$.model_list[6].model_info.mode`",
        "the alias is ignored: 'cloud' is not a supported model of `model_list` - at `$.router_",
        "the fallback is ignored: 'cloud' is not a supported model of `model_list` - at `$.lite",
        "not supported and are ignored: hidden - at `$.router_settings.model_group_alias.hidden`",
        "not supported and are ignored: drop_params - at `$.litellm_settings`",
        "not supported and are ignored: routing_strategy - at `$.router_settings`",
        "not supported and are ignored: database_url - at `$.general_settings`",
    ):
        assert fragment in warnings
    assert "hunter2" not in warnings


@pytest.mark.parametrize(
    ("parameters", "provider", "model"),
    [
        ("model: openai/gpt-4o", "openai", "gpt-4o"),
        ("model: openai/x, api_base: 'http://h/v1'", "custom", "x"),
        ("model: openai/x, api_base: 'https://api.openai.com/v1'", "openai", "x"),
        ("model: gpt-4.1, api_base: 'http://h/v1'", "custom", "gpt-4.1"),
        ("model: o3-mini", "openai", "o3-mini"),
        ("model: anthropic/claude-3", "anthropic", "claude-3"),
        ("model: ollama/llama3:8b", "ollama", "llama3:8b"),
        ("model: gemini/gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("model: mistral/mistral-large", "mistral", "mistral-large"),
        ("model: hosted_vllm/org/m, api_base: 'http://h/v1'", "vllm", "org/m"),
        ("model: together_ai/org/m", "together", "org/m"),
        ("model: fireworks_ai/accounts/f/models/m", "fireworks", "accounts/f/models/m"),
        ("model: deepseek/deepseek-chat", "deepseek", "deepseek-chat"),
        ("model: xai/grok-4", "xai", "grok-4"),
        ("model: cohere_chat/command-r", "cohere", "command-r"),
        ("model: nvidia_nim/meta/m", "nvidia", "meta/m"),
        ("model: huggingface/together/org/m", "huggingface", "org/m:together"),
        ("model: huggingface/org/m", "huggingface", "org/m"),
        ("model: sambanova/m", "sambanova", "m"),
        ("model: deepinfra/org/m", "deepinfra", "org/m"),
        ("model: lm_studio/m", "lmstudio", "m"),
        ("model: org/m, custom_llm_provider: groq", "groq", "org/m"),
        ("model: groq/m, custom_llm_provider: groq", "groq", "m"),
        ("model: siliconflow/org/m, api_base: 'https://h/v1'", "custom", "org/m"),
    ],
)
def test_litellm_model_gives_its_provider(parameters: str, provider: str, model: str) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{{parameters}}}}}]"
    upstream = load_text(text, name="a.yaml").config.upstreams["m"]
    assert (upstream.provider, upstream.model) == (provider, model)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("a: 1", "must have LiteLLM's `model_list`"),
        ("- 1", "Expected a mapping"),
        ("", "LiteLLM's `model_list`"),
        ("model_list: 3", "`$.model_list`"),
        ("model_list: [3]", "`$.model_list[0]`"),
        ("model_list: [{model_name: a}]", "`$.model_list[0]`"),
        ("model_list: []\nrouter_settings: x", "`$.router_settings`"),
        ("model_list: []\ngeneral_settings: {master_key: ''}", "`$.general_settings.master_key`"),
        ("model_list: []\ngeneral_settings: {master_key: 3}", "Expected `str`, got `int`"),
        (
            "model_list: [{model_name: a, litellm_params: {model: ollama/a}, "
            "model_info: {max_input_tokens: many}}]",
            "`$.model_list[0].model_info.max_input_tokens`",
        ),
        ("model_list: [\n{a", "a.yaml, line 2: not valid YAML"),
        ("model_list: 2001-99-99", "a.yaml: not valid YAML"),
    ],
)
def test_litellm_file_with_problem_reports_it(text: str, fragment: str) -> None:
    assert fragment in str(load_invalid(text, name="a.yaml"))


@pytest.mark.parametrize(
    ("parameters", "fragment"),
    [
        ("api_key: os.environ/NO", "the variable NO is not set"),
        ("api_key: os.environ/NO", "`$.model_list[0].litellm_params.api_key`"),
        ("api_base: 'http://[::1'", "`$.model_list[0].litellm_params.api_base`"),
        ("api_base: h", "`$.model_list[0].litellm_params.api_base`"),
        ("timeout: soon", "`$.model_list[0].litellm_params.timeout`"),
        ("extra_headers: {A: 1}", "`$.model_list[0].litellm_params.extra_headers.A`"),
    ],
)
def test_litellm_problem_has_the_path_in_its_file(parameters: str, fragment: str) -> None:
    text = f"model_list: [{{model_name: m, litellm_params: {{model: ollama/m, {parameters}}}}}]"
    error = load_invalid(text, name="a.yaml")
    assert fragment in str(error)
    assert len(error.problems) == 1
