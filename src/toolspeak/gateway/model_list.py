"""The list of models in the format of each API."""

from __future__ import annotations

from typing import Any

from ..upstream.catalog import Catalog, UnknownModelError

OLLAMA_VERSION = "0.13.5"
"""Clients of Ollama ask for the version to know which features they can use."""
_CREATED = 1_700_000_000
_CREATED_TEXT = "2023-11-14T22:13:20Z"
_OLLAMA_DETAILS = {"format": "gguf", "family": "", "parameter_size": "", "quantization_level": ""}
_CODEX_INSTRUCTIONS = (
    "You are a coding agent in a terminal. Work in the user's folder with your tools. Look before "
    "you change anything. Make the smallest change that does what was asked. If there are tests, "
    "run them. Keep going until the task is done. Ask before you do anything that cannot be "
    "undone. At the end, say briefly what you did."
)
_GEMINI_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]


class ModelList:
    """Describes the models of a catalog; unknown names raise `UnknownModelError`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def openai_list(self) -> dict[str, Any]:
        """Return OpenAI's list, with the array that Codex reads."""
        names = self._names()
        models = [self.openai_model(name) for name in names]
        codex_models = [self._codex_model(name) for name in names]
        return {"object": "list", "data": models, "models": codex_models}

    def openai_model(self, name: str) -> dict[str, Any]:
        owner = self._catalog.resolve(name).endpoint.name
        return {"id": name, "object": "model", "created": _CREATED, "owned_by": owner}

    def anthropic_list(self) -> dict[str, Any]:
        models = [self.anthropic_model(name) for name in self._names()]
        first, last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
        return {"data": models, "has_more": False, "first_id": first, "last_id": last}

    def anthropic_model(self, name: str) -> dict[str, Any]:
        self._catalog.resolve(name)
        return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_TEXT}

    def gemini_list(self) -> dict[str, Any]:
        return {"models": [self.gemini_model(name) for name in self._names()]}

    def gemini_model(self, name: str) -> dict[str, Any]:
        context_window = self._catalog.resolve(name).context_window
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": _GEMINI_METHODS,
            **({"inputTokenLimit": context_window} if context_window else {}),
        }

    def ollama_list(self) -> dict[str, Any]:
        return {"models": [_ollama_tag(name) for name in self._names()]}

    def ollama_model(self, name: str) -> dict[str, Any]:
        """Return Ollama's details of a model. The gateway gives each the capability `tools`."""
        context_window = self._catalog.resolve(name).context_window
        info: dict[str, Any] = {"general.architecture": "toolspeak"}
        if context_window:
            info["toolspeak.context_length"] = context_window
        return {
            "modelfile": "",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _OLLAMA_DETAILS,
            "model_info": info,
            "capabilities": ["completion", "tools"],
            "modified_at": _CREATED_TEXT,
        }

    def _codex_model(self, name: str) -> dict[str, Any]:
        """Return a model for Codex, which rejects the whole list if a field is missing."""
        context_window = self._catalog.resolve(name).context_window
        return {
            "slug": name,
            "display_name": name,
            "description": None,
            "supported_reasoning_levels": [],
            "shell_type": "shell_command",
            "visibility": "list",
            "supported_in_api": True,
            "priority": 1,
            "support_verbosity": False,
            "truncation_policy": {"mode": "tokens", "limit": 10_000},
            "experimental_supported_tools": [],
            "supports_parallel_tool_calls": True,
            "base_instructions": _CODEX_INSTRUCTIONS,
            **({"context_window": context_window} if context_window else {}),
        }

    def _names(self) -> list[str]:
        """Return the models that can be served now, the default one first."""
        names: list[str] = []
        default = self._catalog.default_model
        for name in dict.fromkeys((*([default] if default else ()), *self._catalog.list_names())):
            try:
                self._catalog.resolve(name)
            except UnknownModelError:
                continue
            names.append(name)
        return names


def _ollama_tag(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": _CREATED_TEXT,
        "size": 0,
        "digest": "",
        "details": _OLLAMA_DETAILS,
    }
