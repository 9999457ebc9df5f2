"""The secrets in what tools give: kept from the model, given back to a tool if somebody says so."""

from __future__ import annotations

import json
from typing import Any, Literal

from msgspec import structs

from ..security.scrubbing import SecretUse, Vault, scrub
from ..types import Document, ToolCall, ToolResult
from .concurrency import run_in_thread
from .execution import map_text, shorten_text

ScrubMode = Literal["model", "display", "both", "off"]
_MAX_CHARACTERS = 2_000_000
"""So many characters of a result are looked at; no model gets more of it."""
_MAX_INLINE = 50_000
"""What is longer is scrubbed beside the event loop."""
_MIN_SECRET = 4
"""A value of fewer characters stands in any text."""


class SecretFilter:
    """What an agent does about secrets. `restore` names the tools that may get them back."""

    def __init__(self, scrub: ScrubMode = "model", restore: frozenset[str] = frozenset()) -> None:
        self._mode = scrub
        self._restore = restore
        self._vault = Vault() if restore else None
        self._released: dict[str, str] = {}
        """The secrets that tools were given, and the marks that stand for them."""

    def find_uses(self, call: ToolCall) -> tuple[SecretUse, ...]:
        """The secrets that a call would be given."""
        if self._vault is None or call.name not in self._restore:
            return ()
        return tuple(self._vault.find_uses(call.arguments))

    def restore_arguments(self, call: ToolCall) -> dict[str, Any]:
        """The arguments of a call, with the secrets that it may have."""
        uses = self.find_uses(call)
        if self._vault is None or not uses:
            return call.arguments
        for use in uses:
            self._released[use.secret.reveal()] = use.secret.placeholder
        return self._vault.restore(call.arguments)

    async def scrub_result(
        self, call: ToolCall, result: ToolResult
    ) -> tuple[ToolResult, ToolResult]:
        """A result as the model gets it, and as it may be shown."""
        result = structs.replace(result, content=map_text(result.content, _limit_text))
        if self._mode == "off":
            return result, result
        if len(result.text) > _MAX_INLINE:
            clean = await run_in_thread(self._scrub, call, result)
        else:
            clean = self._scrub(call, result)
        for_model = clean if self._mode in ("model", "both") else result
        return for_model, clean if self._mode in ("display", "both") else result

    def _scrub(self, call: ToolCall, result: ToolResult) -> ToolResult:
        source = shorten_text(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})", 100)

        def cleaned(text: str) -> str:
            return self._mask_released(scrub(text, vault=self._vault, source=source).text)

        content = map_text(result.content, cleaned)
        if not isinstance(content, str):
            content = tuple(
                structs.replace(part, title=cleaned(part.title))
                if isinstance(part, Document)
                else part
                for part in content
            )
        return structs.replace(result, content=content)

    def _mask_released(self, text: str) -> str:
        """A text without the secrets that some tool was given: it may repeat them anywhere."""
        for value, mark in self._released.items():
            for spelling in (value, json.dumps(value)[1:-1]):
                if len(value) >= _MIN_SECRET:
                    text = text.replace(spelling, mark)
        return text


def format_secret_question(use: SecretUse, tool: str) -> str:
    """What somebody is asked about a secret: which it is, where it comes from, where it goes. All
    of these words may be others', so they are quoted."""
    secret, where = use.secret, _quote(use.path)
    name = f" {_quote(secret.name)}" if secret.name else ""
    source = f", which came from {_quote(secret.source)}," if secret.source else ""
    return f"Give the {secret.kind}{name}{source} to {tool}, in its argument {where}?"


def _quote(text: str) -> str:
    return json.dumps(shorten_text(text, 200), ensure_ascii=False)


def describe_secret_use(use: SecretUse) -> str:
    """The same for the audit log."""
    secret = use.secret
    return f"{secret.kind} {secret.name} from {secret.source} at {use.path}"


def scrub_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without the secrets in them."""
    try:
        found = json.loads(scrub(json.dumps(arguments)).text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _limit_text(text: str) -> str:
    return shorten_text(text, _MAX_CHARACTERS)
