"""LiteLLM's configuration, said in Toolspeak's words.

    - model_name: fast                       [upstreams.fast]
      litellm_params:                        provider = "groq"
        model: groq/llama-3.3-70b     ->     model = "llama-3.3-70b"
        api_key: os.environ/GROQ_KEY         key = "${GROQ_KEY}"
                                             [models.fast]
                                             upstream = "fast"

What has no such words is a warning that names its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from .document import ConfigDocument, ConfigProblem, escape_variables, is_inside, join_path
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
_SHARED_SETTINGS = {
    "litellm_settings": {"num_retries": "retries", "request_timeout": "first_byte_timeout"},
    "router_settings": {"num_retries": "retries", "timeout": "first_byte_timeout"},
}
"""What holds for every upstream that says nothing else."""
_CHAT_MODES = (None, "chat", "completion", "responses")
_NAMING = ("model", "custom_llm_provider")
_ROW = ("model_name", "litellm_params", "model_info")
_INFO = ("mode", "id", "max_input_tokens", "supports_function_calling")


class _LiteLLMModel(Struct, frozen=True):
    """A row of `model_list` that can be served."""

    name: str
    provider: ProviderMatch
    path: str
    parameters: dict[str, Any]
    info: dict[str, Any]


def read_litellm(source: str, data: Any) -> ConfigDocument:
    """What a file of LiteLLM means."""
    return _Translation(source, data).run()


class _Translation:
    def __init__(self, source: str, data: Any) -> None:
        self._draft = ConfigDocument(source)
        self._data = self._table(data, "$")
        self._sections = {
            name: self._table(self._data.get(name), f"$.{name}")
            for name in ("general_settings", "litellm_settings", "router_settings")
        }
        self._upstreams: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, list[str]] = {}
        """The upstreams of each model, in order."""
        self._models: dict[str, dict[str, Any]] = {}

    def run(self) -> ConfigDocument:
        for entry in self._entries():
            self._add(entry)
        self._fall_back()
        self._draft.values = {
            "upstreams": self._upstreams,
            "models": self._models,
            "aliases": dict(self._aliases()),
            "server": self._server(),
        }
        self._leftovers()
        return self._draft

    def _table(self, value: Any, path: str) -> dict[str, Any]:
        if value is None or isinstance(value, dict):
            return {str(key): item for key, item in (value or {}).items()}
        self._draft.problems.append(ConfigProblem("Expected a mapping, as LiteLLM has it", path))
        return {}

    def _warn(self, message: str, path: str) -> None:
        self._draft.warnings.append(ConfigProblem(message, path))

    # Rows.

    def _entries(self) -> Iterator[_LiteLLMModel]:
        rows = self._data.get("model_list")
        if not isinstance(rows, list):
            advice = "Toolspeak's own settings are TOML"
            message = f"Expected LiteLLM's `model_list` in a YAML file; {advice}"
            self._draft.problems.append(ConfigProblem(message, "$.model_list"))
            return
        for index, row in enumerate(rows):
            if entry := self._entry(row, f"$.model_list[{index}]"):
                yield entry

    def _entry(self, value: Any, path: str) -> _LiteLLMModel | None:
        row = self._table(value, path)
        parameters = self._table(row.get("litellm_params"), join_path(path, "litellm_params"))
        info = self._table(row.get("model_info"), join_path(path, "model_info"))
        name, model = row.get("model_name"), parameters.get("model")
        if not isinstance(name, str) or not isinstance(model, str):
            message = "Expected a `model_name`, and a `model` in `litellm_params`"
            self._draft.problems.append(ConfigProblem(message, path))
            return None
        if info.get("mode") not in _CHAT_MODES:
            self._warn(f"{name!r} is left out: it is no chat model", f"{path}.model_info.mode")
            return None
        provider = match_provider(model, parameters)
        if provider is None:
            self._warn(
                f"{name!r} is left out: nothing is known of the provider of {model!r}; an upstream "
                "with its own `wire` and `base_url` could serve it",
                f"{path}.litellm_params.model",
            )
            return None
        if provider.guessed:
            message = f"{model!r} is taken for a server that speaks as OpenAI does"
            self._warn(message, f"{path}.litellm_params.model")
        self._left(row, _ROW, path)
        self._left(parameters, (*_NAMING, *_PARAMETERS), f"{path}.litellm_params")
        self._left(info, _INFO, f"{path}.model_info")
        return _LiteLLMModel(name, provider, path, parameters, info)

    def _add(self, entry: _LiteLLMModel) -> None:
        group = self._groups.setdefault(entry.name, [])
        name = f"{entry.name} ({len(group) + 1})" if group else entry.name
        group.append(name)
        self._upstreams[name] = self._upstream(entry, join_path("$.upstreams", name))
        if entry.name not in self._models:
            self._models[entry.name] = _model_settings(entry)
            path = join_path("$.models", entry.name)
            self._draft.source_paths[path] = entry.path
            self._draft.source_paths[join_path(path, "context")] = (
                f"{entry.path}.model_info.max_input_tokens"
            )

    def _upstream(self, entry: _LiteLLMModel, path: str) -> dict[str, Any]:
        place = f"{entry.path}.litellm_params"
        moved = self._draft.source_paths
        moved[path] = place
        out: dict[str, Any] = {"provider": entry.provider.row}
        if "*" not in entry.provider.model:
            out["model"] = escape_variables(entry.provider.model)
        for section, settings in _SHARED_SETTINGS.items():
            for key, field in settings.items():
                if (value := self._sections[section].get(key)) is not None:
                    out[field] = _convert_variables(value)
                    moved[join_path(path, field)] = f"$.{section}.{key}"
        for key, field in _PARAMETERS.items():
            if (value := entry.parameters.get(key)) is not None:
                out[field] = _convert_variables(value)
                moved[join_path(path, field)] = join_path(place, key)
        return out

    # What stands around the rows.

    def _server(self) -> dict[str, Any]:
        """LiteLLM's one key opens everything: to clients, and to whoever administers it."""
        key = self._sections["general_settings"].get("master_key")
        if key is None:
            return {}
        for field in ("keys[0]", "admin_key"):
            self._draft.source_paths[f"$.server.{field}"] = "$.general_settings.master_key"
        return {"keys": [_convert_variables(key)], "admin_key": _convert_variables(key)}

    def _aliases(self) -> Iterator[tuple[str, str]]:
        path = "$.router_settings.model_group_alias"
        self._draft.source_paths["$.aliases"] = path
        table = self._table(self._sections["router_settings"].get("model_group_alias"), path)
        for name, value in table.items():
            target = value
            if isinstance(value, dict):
                target = value.get("model")
                self._left(value, ("model",), join_path(path, name))
            if not isinstance(target, str) or target not in self._models:
                self._warn(
                    f"the alias is left out: {target!r} is not served", join_path(path, name)
                )
            elif name in self._models:
                self._warn(
                    "the alias is left out: a model has the same name", join_path(path, name)
                )
            else:
                yield name, escape_variables(target)

    def _fall_back(self) -> None:
        """The upstreams of a model stand in for its first, and after them those of other models.

        Models of LiteLLM may stand in for each other. Upstreams must not, so one that others fall
        back on has no fallbacks itself, and its own model begins with a copy of it.
        """
        followers = self._followers()
        leaned_on = {other for others in followers.values() for other in others}
        for name, (first, *others) in self._groups.items():
            found = dict.fromkeys([name])
            _collect_reachable(followers, name, found)
            fallbacks = others + [one for other in list(found)[1:] for one in self._groups[other]]
            if fallbacks:
                head = self._copy(first) if name in leaned_on else first
                self._upstreams[head]["fallbacks"] = [
                    escape_variables(other) for other in fallbacks
                ]
                self._models[name]["upstream"] = escape_variables(head)

    def _followers(self) -> dict[str, list[str]]:
        """The models that stand in for each."""
        followers: dict[str, list[str]] = {name: [] for name in self._groups}
        for name, other, path in self._fallbacks():
            missing = [one for one in (name, other) if one not in followers]
            if missing:
                self._warn(f"the fallback is left out: {missing[0]!r} is not served", path)
            else:
                followers[name].append(other)
        return followers

    def _copy(self, upstream: str) -> str:
        copy = f"{upstream} (first)"
        self._upstreams[copy] = dict(self._upstreams[upstream])
        old, new = join_path("$.upstreams", upstream), join_path("$.upstreams", copy)
        for path, place in list(self._draft.source_paths.items()):
            if is_inside(path, old):
                self._draft.source_paths[new + path.removeprefix(old)] = place
        return copy

    def _fallbacks(self) -> Iterator[tuple[str, str, str]]:
        """Every model that another stands in for, that other, and where it is said."""
        for section in ("router_settings", "litellm_settings"):
            path = f"$.{section}.fallbacks"
            said = self._sections[section].get("fallbacks") or []
            for index, item in enumerate(said if isinstance(said, list) else [said]):
                for name, others in self._table(item, join_path(path, index)).items():
                    for other in others if isinstance(others, list) else [others]:
                        yield name, str(other), join_path(join_path(path, index), name)

    def _leftovers(self) -> None:
        taken = {
            "general_settings": ("master_key",),
            "litellm_settings": ("fallbacks", *_SHARED_SETTINGS["litellm_settings"]),
            "router_settings": (
                "fallbacks",
                "model_group_alias",
                *_SHARED_SETTINGS["router_settings"],
            ),
        }
        for section, keys in taken.items():
            self._left(self._sections[section], keys, f"$.{section}")
        self._left(self._data, ("model_list", *taken), "$")

    def _left(self, table: dict[str, Any], taken: tuple[str, ...], path: str) -> None:
        left = [key for key, value in table.items() if key not in taken and value is not None]
        if left:
            self._warn(f"not taken over: {', '.join(left)}", path)


def _collect_reachable(followers: dict[str, list[str]], name: str, found: dict[str, None]) -> None:
    for other in followers[name]:
        if other not in found:
            found[other] = None
            _collect_reachable(followers, other, found)


def _model_settings(entry: _LiteLLMModel) -> dict[str, Any]:
    out: dict[str, Any] = {"upstream": escape_variables(entry.name)}
    if "*" in entry.provider.model:
        out["model"] = escape_variables(entry.provider.model)
    if entry.info.get("supports_function_calling") is False:
        out["tools"] = "prompt"
    if (context := entry.info.get("max_input_tokens")) is not None:
        out["context"] = context
    return out


def _convert_variables(value: Any) -> Any:
    """A value with LiteLLM's way to name a variable in Toolspeak's own."""
    if isinstance(value, dict):
        return {str(key): _convert_variables(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    name = value.removeprefix("os.environ/")
    return f"${{{name}}}" if name != value else escape_variables(value)


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
"""LiteLLM's names for providers, and the rows of `providers.toml` that they are."""
_MODEL_FAMILIES = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "command-": "cohere",
}
"""How the models begin that LiteLLM knows without a provider."""
_UNSUPPORTED_PROVIDERS = frozenset(
    (
        *("azure", "azure_ai", "azure_text", "bedrock", "databricks", "oci", "predibase"),
        *("replicate", "sagemaker", "sagemaker_chat", "snowflake", "text-completion-openai"),
        *("triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"),
    )
)
"""Providers whose APIs are not OpenAI's, wherever they are."""


class ProviderMatch(Struct, frozen=True):
    """A row of `providers.toml`, and its name for the model."""

    row: str
    model: str
    guessed: bool = False
    """Nothing is known but the address; most servers speak as OpenAI does."""


def match_provider(model: str, parameters: dict[str, Any]) -> ProviderMatch | None:
    """Who has a model; None if that has no row, and no address of its own either."""
    prefix, name = _split_model(model, parameters.get("custom_llm_provider"))
    row = _PROVIDER_PREFIXES.get(prefix) if prefix else _find_family(name)
    address = parameters.get("api_base") or parameters.get("base_url")
    if address and row in (None, "openai"):
        if prefix in _UNSUPPORTED_PROVIDERS:
            return None
        known = "openai" if _is_openai_url(address) else _CUSTOM_PROVIDER
        return ProviderMatch(known, name, guessed=row is None)
    if row == "huggingface" and not address:
        name = _huggingface_name(name)
    return ProviderMatch(row, name) if row else None


def _split_model(model: str, said: Any) -> tuple[str, str]:
    """The provider and the model; the first may be empty."""
    prefix, slash, rest = model.partition("/")
    if said is not None:
        return str(said), rest if prefix == said else model
    return (prefix, rest) if slash else ("", model)


def _find_family(model: str) -> str | None:
    return next((row for start, row in _MODEL_FAMILIES.items() if model.startswith(start)), None)


def _is_openai_url(address: Any) -> bool:
    own = PROVIDERS["openai"].base_url
    return isinstance(address, str) and address.rstrip("/") in (own, own.removesuffix("/v1"))


def _huggingface_name(name: str) -> str:
    """Hugging Face's router has behind the model who shall serve it, LiteLLM before."""
    who, _, model = name.partition("/")
    return f"{model}:{who}" if "/" in model else name
