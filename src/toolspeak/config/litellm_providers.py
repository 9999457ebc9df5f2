"""Which provider LiteLLM means: `together_ai/…`, `gpt-4o`, or `openai/…` at another address."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .providers import PROVIDERS

_CUSTOM = "custom"
_PREFIXES = {
    **{name: name for name in PROVIDERS if name not in (_CUSTOM, "embedded")},
    "cohere_chat": "cohere",
    "custom_openai": _CUSTOM,
    "dashscope": "qwen",
    "docker_model_runner": _CUSTOM,
    "fireworks_ai": "fireworks",
    "hosted_vllm": "vllm",
    "litellm_proxy": _CUSTOM,
    "llamafile": "llamacpp",
    "lm_studio": "lmstudio",
    "nvidia_nim": "nvidia",
    "ollama_chat": "ollama",
    "openai_like": _CUSTOM,
    "together_ai": "together",
    "xinference": _CUSTOM,
}
"""LiteLLM's names for providers, and the rows of `providers.toml` that they are."""
_FAMILIES = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "command-": "cohere",
}
"""How the models begin that LiteLLM knows without a provider."""
_OTHERWISE = frozenset(
    (
        *("azure", "azure_ai", "azure_text", "bedrock", "databricks", "oci", "predibase"),
        *("replicate", "sagemaker", "sagemaker_chat", "snowflake", "text-completion-openai"),
        *("triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text"),
    )
)
"""Providers whose APIs are not OpenAI's, wherever they are."""


class Provider(Struct, frozen=True):
    """A row of `providers.toml`, and its name for the model."""

    row: str
    model: str
    guessed: bool = False
    """Nothing is known but the address; most servers speak as OpenAI does."""


def provider_of(model: str, parameters: dict[str, Any]) -> Provider | None:
    """Who has a model; None if that has no row, and no address of its own either."""
    prefix, name = _parts(model, parameters.get("custom_llm_provider"))
    row = _PREFIXES.get(prefix) if prefix else _family(name)
    address = parameters.get("api_base") or parameters.get("base_url")
    if address and row in (None, "openai"):
        if prefix in _OTHERWISE:
            return None
        known = "openai" if _is_openai(address) else _CUSTOM
        return Provider(known, name, guessed=row is None)
    if row == "huggingface" and not address:
        name = _routed(name)
    return Provider(row, name) if row else None


def _parts(model: str, said: Any) -> tuple[str, str]:
    """The provider and the model; the first may be empty."""
    prefix, slash, rest = model.partition("/")
    if said is not None:
        return str(said), rest if prefix == said else model
    return (prefix, rest) if slash else ("", model)


def _family(model: str) -> str | None:
    return next((row for start, row in _FAMILIES.items() if model.startswith(start)), None)


def _is_openai(address: Any) -> bool:
    own = PROVIDERS["openai"].base_url
    return isinstance(address, str) and address.rstrip("/") in (own, own.removesuffix("/v1"))


def _routed(name: str) -> str:
    """Hugging Face's router has behind the model who shall serve it, LiteLLM before."""
    who, _, model = name.partition("/")
    return f"{model}:{who}" if "/" in model else name
