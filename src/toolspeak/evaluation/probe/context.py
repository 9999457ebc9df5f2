"""How many tokens fit into a model's context, as its upstream tells. Servers have many ways to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from ...wires.gemini.request_encoding import encode_model_path
from .asking import Asker
from .findings import Finding, Findings

_LENGTHS = (
    *("loaded_context_length", "max_model_len", "context_window", "context_length"),
    *("max_context_length", "max_input_tokens", "inputTokenLimit"),
)
"""What it is called in lists of models: by LM Studio, vLLM, Groq, OpenRouter, Anthropic, Gemini."""


async def context(asker: Asker, found: Findings) -> Finding:
    """The first number that the upstream tells, or else the configuration's."""
    for source in _SOURCES.get(asker.endpoint.wire, ()):
        told = await source(asker)
        if told:
            return Finding(*told)
    if asker.context:
        return Finding(asker.context, "as the configuration says; the upstream does not tell")
    return Finding(None, "the upstream does not tell")


_Told = tuple[int, str] | None


async def _props(asker: Asker) -> _Told:
    """llama.cpp: what each of its slots has."""
    told = await asker.look_up("/props", at_root=True)
    settings = told.get("default_generation_settings") if isinstance(told, dict) else None
    size = _number(settings, ("n_ctx",))
    return (size, "tokens for each request, as llama.cpp tells") if size else None


async def _loaded(asker: Asker) -> _Told:
    """Ollama: what a model was loaded with."""
    told = await asker.look_up("/api/ps", at_root=True)
    return _listed(asker, told, "tokens, as the model is loaded now")


async def _shown(asker: Asker) -> _Told:
    """Ollama: what a model could have."""
    told = await asker.look_up("/api/show", {"model": asker.target.model}, at_root=True)
    info = told.get("model_info") if isinstance(told, dict) else None
    names = tuple(key for key in info or () if key.endswith(".context_length"))
    size = _number(info, names)
    return (size, "tokens at most; Ollama gives it as many as its num_ctx says") if size else None


async def _lm_studio(asker: Asker) -> _Told:
    told = await asker.look_up("/api/v0/models", at_root=True)
    return _listed(asker, told, "tokens, as LM Studio tells")


async def _models(asker: Asker) -> _Told:
    told = await asker.look_up("/models")
    return _listed(asker, told, "tokens, as the list of models tells")


async def _anthropic(asker: Asker) -> _Told:
    size = _number(await asker.look_up(f"/v1/models/{asker.target.model}"), _LENGTHS)
    return (size, "tokens, as the upstream tells") if size else None


async def _gemini(asker: Asker) -> _Told:
    size = _number(await asker.look_up(f"/{encode_model_path(asker.target.model)}"), _LENGTHS)
    return (size, "tokens, as the upstream tells") if size else None


_SOURCES: dict[str, tuple[Callable[[Asker], Awaitable[_Told]], ...]] = {
    "openai_chat": (_props, _models, _loaded, _lm_studio),
    "openai_responses": (_models,),
    "ollama": (_loaded, _shown),
    "anthropic": (_anthropic,),
    "gemini": (_gemini,),
}
"""Where to look, by the API that is spoken."""


def _listed(asker: Asker, told: Any, seen: str) -> _Told:
    """The number in a model's row of a list."""
    for row in _rows(told):
        names = (row.get(key) for key in ("id", "name", "model"))
        size = _number(row, _LENGTHS)
        if size and asker.target.model in names:
            return size, seen
    return None


def _rows(told: Any) -> Iterator[dict[str, Any]]:
    lists = (told.get("data"), told.get("models")) if isinstance(told, dict) else ()
    for rows in lists:
        if isinstance(rows, list):
            yield from (row for row in rows if isinstance(row, dict))


def _number(values: Any, names: tuple[str, ...]) -> int | None:
    found = (values.get(name) for name in names) if isinstance(values, dict) else ()
    return next((number for number in found if type(number) is int and number > 0), None)
