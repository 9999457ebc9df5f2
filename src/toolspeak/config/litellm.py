"""Translates LiteLLM's configuration into Toolspeak's.

    - model_name: fast                       [upstreams.fast]
      litellm_params:                        provider = "groq"
        model: groq/llama-3.3-70b     ->     model = "llama-3.3-70b"
        api_key: os.environ/GROQ_KEY         key = "${GROQ_KEY}"
                                             [models.fast]
                                             upstream = "fast"

A setting that cannot be translated gives a warning that names its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from .document import ConfigDocument, ConfigProblem, escape_variables, join_path
from .providers import PROVIDERS

_PARAMETERS = {
    "api_base": "base_url",
    "base_url": "base_url",
    "api_key": "key",
    "headers": "headers",
    "extra_headers": "headers",
    "timeout": "first_byte_timeout",
    "stream_timeout": "idle_timeout",
    "num_retries": "retries",
    "max_retries": "retries",
    "max_parallel_requests": "concurrency",
}
"""`litellm_params`, and the upstream settings that they become."""
_SHARED_SETTINGS = {
    "litellm_settings": {"num_retries": "retries", "request_timeout": "first_byte_timeout"},
    "router_settings": {"num_retries": "retries", "timeout": "first_byte_timeout"},
}
"""Settings that apply to every upstream without its own."""
_SECTIONS = {
    "general_settings": ("master_key",),
    "litellm_settings": ("fallbacks", *_SHARED_SETTINGS["litellm_settings"]),
    "router_settings": ("fallbacks", "model_group_alias", *_SHARED_SETTINGS["router_settings"]),
}
"""The sections beside `model_list`, each with the settings that are translated."""
_CHAT_MODES = (None, "chat", "completion", "responses")
_MODEL_PARAMETERS = ("model", "custom_llm_provider")
_ROW_FIELDS = ("model_name", "litellm_params", "model_info")
_INFO_FIELDS = ("mode", "id", "max_input_tokens", "supports_function_calling")

_CUSTOM_PROVIDER = "custom"
_PROVIDER_PREFIXES = {
    **{name: name for name in PROVIDERS if name not in (_CUSTOM_PROVIDER, "embedded")},
    "cohere_chat": "cohere",
    "custom_openai": _CUSTOM_PROVIDER,
    "dashscope": "qwen",
    "docker_model_runner": _CUSTOM_PROVIDER,
    "fireworks_ai": "fireworks",
    "hosted_vllm": "vllm",
    "litellm_proxy": _CUSTOM_PROVIDER,
    "llamafile": "llamacpp",
    "lm_studio": "lmstudio",
    "nvidia_nim": "nvidia",
    "ollama_chat": "ollama",
    "openai_like": _CUSTOM_PROVIDER,
    "together_ai": "together",
    "xinference": _CUSTOM_PROVIDER,
}
"""LiteLLM's names for providers, and the rows of `providers.toml` for them."""
_MODEL_FAMILIES = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "command-": "cohere",
}
"""Prefixes of the models that LiteLLM knows without a provider."""
_UNSUPPORTED_PROVIDERS = frozenset(
    (
        *("azure", "azure_ai", "azure_text", "bedrock", "databricks", "oci", "predibase"),
        *("replicate", "sagemaker", "sagemaker_chat", "snowflake", "text-completion-openai"),
        *("triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"),
    )
)
"""Providers whose APIs differ from OpenAI's at any URL."""


class ProviderMatch(Struct, frozen=True):
    """A row of `providers.toml`, and the provider's name for a model."""

    row: str
    model: str
    is_guess: bool = False
    """Only the URL is known; most such servers have OpenAI's API."""


def read_litellm(source: str, data: Any) -> ConfigDocument:
    """Translate the data of a LiteLLM file."""
    return _Translation(source).translate(data)


class _Translation:
    def __init__(self, source: str) -> None:
        self._document = ConfigDocument(source)
        self._source_paths = self._document.source_paths
        self._data: dict[str, Any] = {}
        self._sections: dict[str, dict[str, Any]] = {}
        self._upstreams: dict[str, dict[str, Any]] = {}
        self._upstreams_of: dict[str, list[str]] = {}
        """The upstreams of each model, in order."""
        self._models: dict[str, dict[str, Any]] = {}

    def translate(self, data: Any) -> ConfigDocument:
        self._data = self._table(data, "$")
        self._sections = {
            name: self._table(self._data.get(name), f"$.{name}") for name in _SECTIONS
        }
        self._add_models()
        self._add_fallbacks()
        self._document.values = {
            "upstreams": self._upstreams,
            "models": self._models,
            "aliases": dict(self._read_aliases()),
            "server": self._server_settings(),
        }
        for name, used in _SECTIONS.items():
            self._warn_about_unused(self._sections[name], used, f"$.{name}")
        self._warn_about_unused(self._data, ("model_list", *_SECTIONS), "$")
        return self._document

    def _table(self, value: Any, path: str) -> dict[str, Any]:
        if value is None or isinstance(value, dict):
            return {str(key): item for key, item in (value or {}).items()}
        self._add_problem(f"Expected a mapping, got `{type(value).__name__}`", path)
        return {}

    def _add_problem(self, message: str, path: str) -> None:
        self._document.problems.append(ConfigProblem(message, path))

    def _warn(self, message: str, path: str) -> None:
        self._document.warnings.append(ConfigProblem(message, path))

    # Models.

    def _add_models(self) -> None:
        rows = self._data.get("model_list")
        if not isinstance(rows, list):
            message = "a YAML file must have LiteLLM's `model_list`; Toolspeak's own format is TOML"
            self._add_problem(message, "$.model_list")
            return
        for index, row in enumerate(rows):
            self._add_row(row, f"$.model_list[{index}]")

    def _add_row(self, value: Any, path: str) -> None:
        """Add a row of `model_list`, or a warning if it cannot be served."""
        row = self._table(value, path)
        parameters = self._table(row.get("litellm_params"), f"{path}.litellm_params")
        info = self._table(row.get("model_info"), f"{path}.model_info")
        name, model = row.get("model_name"), parameters.get("model")
        if not isinstance(name, str) or not isinstance(model, str):
            self._add_problem("`model_name` and `litellm_params.model` are required", path)
            return
        if info.get("mode") not in _CHAT_MODES:
            self._warn(f"{name!r} is ignored: it is not a chat model", f"{path}.model_info.mode")
            return
        provider = self._find_provider(name, model, parameters, f"{path}.litellm_params.model")
        if provider is None:
            return
        self._warn_about_unused(row, _ROW_FIELDS, path)
        used = (*_MODEL_PARAMETERS, *_PARAMETERS)
        self._warn_about_unused(parameters, used, f"{path}.litellm_params")
        self._warn_about_unused(info, _INFO_FIELDS, f"{path}.model_info")
        self._add_upstream(name, provider.row, provider.model, parameters, path)
        if name not in self._models:
            self._models[name] = _model_settings(name, provider.model, info)
            model_path = join_path("$.models", name)
            self._source_paths[model_path] = path
            self._source_paths[f"{model_path}.context_window"] = (
                f"{path}.model_info.max_input_tokens"
            )

    def _find_provider(
        self, name: str, model: str, parameters: dict[str, Any], path: str
    ) -> ProviderMatch | None:
        provider = match_provider(model, parameters)
        if provider is None:
            self._warn(
                f"{name!r} is ignored: the provider of {model!r} is not supported; configure an "
                "upstream with its own `wire` and `base_url` instead",
                path,
            )
        elif provider.is_guess:
            self._warn(f"{model!r} is assumed to be on a server with OpenAI's API", path)
        return provider

    def _add_upstream(
        self, name: str, provider: str, model: str, parameters: dict[str, Any], source: str
    ) -> None:
        upstreams = self._upstreams_of.setdefault(name, [])
        upstream = f"{name} ({len(upstreams) + 1})" if upstreams else name
        upstreams.append(upstream)
        path, source = join_path("$.upstreams", upstream), f"{source}.litellm_params"
        self._source_paths[path] = source
        settings = self._upstreams[upstream] = {"provider": provider}
        if "*" not in model:
            settings["model"] = escape_variables(model)
        given = [
            (self._sections[section], f"$.{section}", keys)
            for section, keys in _SHARED_SETTINGS.items()
        ]
        for table, place, keys in (*given, (parameters, source, _PARAMETERS)):
            for key, field in keys.items():
                if (value := table.get(key)) is not None:
                    settings[field] = _convert_variables(value)
                    self._source_paths[f"{path}.{field}"] = f"{place}.{key}"

    # Other sections.

    def _server_settings(self) -> dict[str, Any]:
        """Use LiteLLM's only key for clients and for administration."""
        key = self._sections["general_settings"].get("master_key")
        if key is None:
            return {}
        for field in ("keys[0]", "admin_key"):
            self._source_paths[f"$.server.{field}"] = "$.general_settings.master_key"
        return {"keys": [_convert_variables(key)], "admin_key": _convert_variables(key)}

    def _read_aliases(self) -> Iterator[tuple[str, str]]:
        path = "$.router_settings.model_group_alias"
        self._source_paths["$.aliases"] = path
        table = self._table(self._sections["router_settings"].get("model_group_alias"), path)
        for name, value in table.items():
            target = value
            if isinstance(value, dict):
                target = value.get("model")
                self._warn_about_unused(value, ("model",), join_path(path, name))
            problem = f"{target!r} is not a supported model of `model_list`"
            if name in self._models:
                problem = "a model has the same name"
            elif isinstance(target, str) and target in self._models:
                yield name, escape_variables(target)
                continue
            self._warn(f"the alias is ignored: {problem}", join_path(path, name))

    # Fallbacks.

    def _add_fallbacks(self) -> None:
        """Make the other upstreams of a model, then those of its fallback models, fallbacks."""
        fallback_models = self._fallback_models()
        for name, (first, *others) in self._upstreams_of.items():
            reachable = dict.fromkeys([name])
            _collect_reachable(fallback_models, name, reachable)
            for model in list(reachable)[1:]:
                others += self._upstreams_of[model]
            if others:
                self._upstreams[first]["fallbacks"] = [escape_variables(one) for one in others]

    def _fallback_models(self) -> dict[str, list[str]]:
        """Return the fallback models of each model."""
        fallbacks: dict[str, list[str]] = {name: [] for name in self._upstreams_of}
        for name, other, path in self._read_fallbacks():
            missing = [one for one in (name, other) if one not in fallbacks]
            if missing:
                problem = f"{missing[0]!r} is not a supported model of `model_list`"
                self._warn(f"the fallback is ignored: {problem}", path)
            else:
                fallbacks[name].append(other)
        return fallbacks

    def _read_fallbacks(self) -> Iterator[tuple[str, str, str]]:
        """Yield a model, a fallback model of it, and the path of that setting."""
        for section in ("router_settings", "litellm_settings"):
            path = f"$.{section}.fallbacks"
            value = self._sections[section].get("fallbacks") or []
            for index, item in enumerate(value if isinstance(value, list) else [value]):
                item_path = join_path(path, index)
                for name, others in self._table(item, item_path).items():
                    for other in others if isinstance(others, list) else [others]:
                        yield name, str(other), join_path(item_path, name)

    # Settings without a counterpart.

    def _warn_about_unused(self, table: dict[str, Any], used: tuple[str, ...], path: str) -> None:
        unused = [key for key, value in table.items() if key not in used and value is not None]
        if unused:
            self._warn(
                f"these settings are not supported and are ignored: {', '.join(unused)}", path
            )


def _collect_reachable(edges: dict[str, list[str]], name: str, reachable: dict[str, None]) -> None:
    for other in edges[name]:
        if other not in reachable:
            reachable[other] = None
            _collect_reachable(edges, other, reachable)


def _model_settings(name: str, model: str, info: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"upstream": escape_variables(name)}
    if "*" in model:
        settings["model"] = escape_variables(model)
    if info.get("supports_function_calling") is False:
        settings["tools"] = "prompt"
    if (context_window := info.get("max_input_tokens")) is not None:
        settings["context_window"] = context_window
    return settings


def _convert_variables(value: Any) -> Any:
    """Convert `os.environ/NAME` to `${NAME}` in all strings of a value."""
    if isinstance(value, dict):
        return {str(key): _convert_variables(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    name = value.removeprefix("os.environ/")
    return f"${{{name}}}" if name != value else escape_variables(value)


# Providers.


def match_provider(model: str, parameters: dict[str, Any]) -> ProviderMatch | None:
    """Return the provider of a model: `together_ai/…`, `gpt-4o`, or `openai/…` at another URL.

    None if there is no row for it and no URL either.
    """
    prefix, name = _split_model(model, parameters.get("custom_llm_provider"))
    families = (row for start, row in _MODEL_FAMILIES.items() if name.startswith(start))
    row = _PROVIDER_PREFIXES.get(prefix) if prefix else next(families, None)
    url = parameters.get("api_base") or parameters.get("base_url")
    if url and row in (None, "openai"):
        if prefix in _UNSUPPORTED_PROVIDERS:
            return None
        known = "openai" if _is_openai_url(url) else _CUSTOM_PROVIDER
        return ProviderMatch(known, name, is_guess=row is None)
    if row == "huggingface" and not url:
        name = _huggingface_name(name)
    return ProviderMatch(row, name) if row else None


def _split_model(model: str, provider: Any) -> tuple[str, str]:
    """Return the provider's prefix, which may be empty, and the model's name."""
    prefix, slash, rest = model.partition("/")
    if provider is not None:
        return str(provider), rest if prefix == provider else model
    return (prefix, rest) if slash else ("", model)


def _is_openai_url(url: Any) -> bool:
    own = PROVIDERS["openai"].base_url
    return isinstance(url, str) and url.rstrip("/") in (own, own.removesuffix("/v1"))


def _huggingface_name(name: str) -> str:
    """Convert LiteLLM's `together/org/model` to `org/model:together`, as the router expects."""
    server, _, model = name.partition("/")
    return f"{model}:{server}" if "/" in model else name
