"""Which models there are, in the shape of each API that asks."""

from __future__ import annotations

from typing import Any

from ..upstream.catalog import Catalog, ResolvedModel, UnknownModelError

_CREATED = 1_700_000_000
_WHEN = "2023-11-14T22:13:20Z"
_OLLAMA_VERSION = "0.13.5"
"""What Ollama's clients are told: they ask so that they know what may be used."""
_DETAILS = {"format": "gguf", "family": "", "parameter_size": "", "quantization_level": ""}
_CODEX_INSTRUCTIONS = (
    "You are a coding agent in a terminal. Work in the user's folder with the tools that you "
    "have: look before you change anything, make the smallest change that does what was asked, "
    "run the tests where there are any, and say briefly what you did. Keep going until the task "
    "is done. Ask before anything that cannot be undone."
)
_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]


class ModelList:
    """Lists the models of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def openai(self) -> dict[str, Any]:
        """OpenAI's list, with the array that Codex reads."""
        names = self._names()
        models = [self.openai_one(name) for name in names]
        return {"object": "list", "data": models, "models": [self._codex(name) for name in names]}

    def openai_one(self, name: str) -> dict[str, Any]:
        """One model of OpenAI's list."""
        owner = self._served(name).endpoint.name
        return {"id": name, "object": "model", "created": _CREATED, "owned_by": owner}

    def anthropic(self) -> dict[str, Any]:
        """Anthropic's list."""
        models = [self.anthropic_one(name) for name in self._names()]
        first, last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
        return {"data": models, "has_more": False, "first_id": first, "last_id": last}

    def anthropic_one(self, name: str) -> dict[str, Any]:
        """One model of Anthropic's list."""
        self._served(name)
        return {"type": "model", "id": name, "display_name": name, "created_at": _WHEN}

    def gemini(self) -> dict[str, Any]:
        """Gemini's list."""
        return {"models": [self.gemini_one(name) for name in self._names()]}

    def gemini_one(self, name: str) -> dict[str, Any]:
        """One model of Gemini's list."""
        context = self._served(name).context
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": _METHODS,
            **({"inputTokenLimit": context} if context else {}),
        }

    def ollama(self) -> dict[str, Any]:
        """Ollama's list."""
        return {"models": [self._tag(name) for name in self._names()]}

    def ollama_show(self, name: str) -> dict[str, Any]:
        """What Ollama tells about one model. Every model has tools here."""
        context = self._served(name).context
        info: dict[str, Any] = {"general.architecture": "toolspeak"}
        if context:
            info["toolspeak.context_length"] = context
        return {
            "modelfile": "",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _DETAILS,
            "model_info": info,
            "capabilities": ["completion", "tools"],
            "modified_at": _WHEN,
        }

    def ollama_version(self) -> dict[str, Any]:
        """The version of Ollama whose words we know."""
        return {"version": _OLLAMA_VERSION}

    def _codex(self, name: str) -> dict[str, Any]:
        """One model as Codex wants to know it. It refuses the list if a field is missing."""
        context = self._served(name).context
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
            **({"context_window": context} if context else {}),
        }

    def _tag(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "model": name,
            "modified_at": _WHEN,
            "size": 0,
            "digest": "",
            "details": _DETAILS,
        }

    def _names(self) -> list[str]:
        """The models that can be served now, the default one first."""
        names: list[str] = []
        default = self._catalog.default_model
        for name in dict.fromkeys((*([default] if default else ()), *self._catalog.list_names())):
            try:
                self._catalog.resolve(name)
            except UnknownModelError:
                continue
            names.append(name)
        return names

    def _served(self, name: str) -> ResolvedModel:
        return self._catalog.resolve(name)
