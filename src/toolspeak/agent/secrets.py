"""The secrets in what tools give: kept from the model, given back to a tool if somebody says so."""

from __future__ import annotations

import json
from typing import Any, Literal

from msgspec import structs

from ..security.scrubbing import SecretUse, Vault, scrub
from ..types import Document, ToolCall, ToolResult
from .execution import changed, shortened
from .threads import in_thread

Scrub = Literal["model", "display", "both", "off"]
_MOST = 2_000_000
"""So many characters of a result are looked at; no model gets more of it."""
_LONG = 50_000
"""What is longer is scrubbed beside the event loop."""
_SHORTEST = 4
"""A value of fewer characters stands in any text."""


class Secrets:
    """What an agent does about secrets. `restore` names the tools that may get them back."""

    def __init__(self, scrub: Scrub = "model", restore: frozenset[str] = frozenset()) -> None:
        self._mode = scrub
        self._restore = restore
        self._vault = Vault() if restore else None
        self._released: dict[str, str] = {}
        """The secrets that tools were given, and the marks that stand for them."""

    def uses(self, call: ToolCall) -> tuple[SecretUse, ...]:
        """The secrets that a call would be given."""
        if self._vault is None or call.name not in self._restore:
            return ()
        return tuple(self._vault.find_uses(call.arguments))

    def restored(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call, with the secrets that it may have."""
        uses = self.uses(call)
        if self._vault is None or not uses:
            return call.arguments
        for use in uses:
            self._released[use.secret.reveal()] = use.secret.placeholder
        return self._vault.restore(call.arguments)

    async def kept_from(self, call: ToolCall, result: ToolResult) -> tuple[ToolResult, ToolResult]:
        """A result as the model gets it, and as it may be shown."""
        result = structs.replace(result, content=changed(result.content, _bounded))
        if self._mode == "off":
            return result, result
        if len(result.text) > _LONG:
            clean = await in_thread(self._clean, call, result)
        else:
            clean = self._clean(call, result)
        for_model = clean if self._mode in ("model", "both") else result
        return for_model, clean if self._mode in ("display", "both") else result

    def _clean(self, call: ToolCall, result: ToolResult) -> ToolResult:
        source = shortened(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})", 100)

        def cleaned(text: str) -> str:
            return self._without_released(scrub(text, vault=self._vault, source=source).text)

        content = changed(result.content, cleaned)
        if not isinstance(content, str):
            content = tuple(
                structs.replace(part, title=cleaned(part.title))
                if isinstance(part, Document)
                else part
                for part in content
            )
        return structs.replace(result, content=content)

    def _without_released(self, text: str) -> str:
        """A text without the secrets that some tool was given: it may repeat them anywhere."""
        for value, mark in self._released.items():
            for spelling in (value, json.dumps(value)[1:-1]):
                if len(value) >= _SHORTEST:
                    text = text.replace(spelling, mark)
        return text


def question(use: SecretUse, tool: str) -> str:
    """What somebody is asked about a secret: which it is, where it comes from, where it goes. All
    of these words may be others', so they are quoted."""
    secret, where = use.secret, _quoted(use.path)
    name = f" {_quoted(secret.name)}" if secret.name else ""
    source = f", which came from {_quoted(secret.source)}," if secret.source else ""
    return f"Give the {secret.kind}{name}{source} to {tool}, in its argument {where}?"


def _quoted(text: str) -> str:
    return json.dumps(shortened(text, 200), ensure_ascii=False)


def told(use: SecretUse) -> str:
    """The same for the audit log."""
    secret = use.secret
    return f"{secret.kind} {secret.name} from {secret.source} at {use.path}"


def scrubbed_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without the secrets in them."""
    try:
        found = json.loads(scrub(json.dumps(arguments)).text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _bounded(text: str) -> str:
    return shortened(text, _MOST)
