"""Scrubs secrets from tool results, and restores them in the arguments of tools on an allowlist."""

from __future__ import annotations

import json
from typing import Any, Literal

from msgspec import structs

from ..security.scrubbing import SecretUse, Vault, scrub
from ..types import Document, ToolCall, ToolResult
from .concurrency import run_in_thread
from .execution import cut_middle, map_text

ScrubMode = Literal["model", "display", "both", "off"]
_MAX_CHARACTERS = 2_000_000
"""Characters of a result that are scrubbed; the rest is dropped: no model reads that much."""
_MAX_INLINE = 50_000
"""Longer results are scrubbed in a thread."""
_MIN_SECRET = 4
"""Shorter values occur in any text, so they are not masked."""


class SecretFilter:
    """Scrubs results. Tools named in `restore` may get the real values back in their arguments."""

    def __init__(self, mode: ScrubMode = "model", restore: frozenset[str] = frozenset()) -> None:
        self._mode = mode
        self._restore = restore
        self._vault = Vault() if restore else None
        self._released: dict[str, str] = {}
        """The secrets that tools received, with their placeholders."""

    def find_uses(self, call: ToolCall) -> tuple[SecretUse, ...]:
        """Return the secrets that a call receives if it runs."""
        if self._vault is None or call.name not in self._restore:
            return ()
        return tuple(self._vault.find_uses(call.arguments))

    def restore_arguments(self, call: ToolCall) -> dict[str, Any]:
        """Return the arguments with placeholders replaced by the secrets that the call may use."""
        uses = self.find_uses(call)
        if self._vault is None or not uses:
            return call.arguments
        for use in uses:
            self._released[use.secret.reveal()] = use.secret.placeholder
        return self._vault.restore(call.arguments)

    async def scrub_result(
        self, call: ToolCall, result: ToolResult
    ) -> tuple[ToolResult, ToolResult]:
        """Return a result as the model receives it, and as it is displayed."""
        content = map_text(result.content, lambda text: cut_middle(text, _MAX_CHARACTERS))
        result = structs.replace(result, content=content)
        if self._mode == "off":
            return result, result
        if len(result.text) > _MAX_INLINE:
            scrubbed = await run_in_thread(self._scrub, call, result)
        else:
            scrubbed = self._scrub(call, result)
        for_model = scrubbed if self._mode in ("model", "both") else result
        return for_model, scrubbed if self._mode in ("display", "both") else result

    def _scrub(self, call: ToolCall, result: ToolResult) -> ToolResult:
        source = cut_middle(f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})", 100)

        def scrub_text(text: str) -> str:
            return self._mask_released(scrub(text, vault=self._vault, source=source).text)

        content = map_text(result.content, scrub_text)
        if not isinstance(content, str):
            content = tuple(
                structs.replace(part, title=scrub_text(part.title))
                if isinstance(part, Document)
                else part
                for part in content
            )
        return structs.replace(result, content=content)

    def _mask_released(self, text: str) -> str:
        """Mask the secrets that a tool received: it may repeat them anywhere."""
        for value, placeholder in self._released.items():
            for spelling in (value, json.dumps(value)[1:-1]):
                if len(value) >= _MIN_SECRET:
                    text = text.replace(spelling, placeholder)
        return text


def describe_secret_use(use: SecretUse) -> str:
    """Return the use of a secret as a phrase, for the audit log."""
    secret = use.secret
    return f"{secret.kind} {secret.name} from {secret.source} at {use.path}"


def scrub_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without secrets; {} if they cannot be scrubbed."""
    try:
        scrubbed = json.loads(scrub(json.dumps(arguments)).text)
    except (ValueError, RecursionError):
        return {}
    return scrubbed if isinstance(scrubbed, dict) else {}
