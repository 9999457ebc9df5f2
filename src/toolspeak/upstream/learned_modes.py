"""Remembers which mode works for a model and which fields its upstream rejects, so that not every
request has to find out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from msgspec import structs

from ..engine.pipeline import ModeEvidence
from ..engine.plan import ModelProfile
from ..engine.rejected_fields import FieldChange
from ..store.base import Store, hash_key

_LEARNED_SECONDS = 3600.0
_OBSERVED_CALLS = 10
"""How many of a model's last calls are remembered as text calls or native calls."""
_TEXT_CALLS_FOR_PROMPT = 3
"""With this many text calls among the last ones, a native model gets its tools in the prompt."""

_MAX_MODELS = 1000


class LearnedModes:
    """Remembers for an hour which mode works for a model."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, upstream: str, model: str) -> str | None:
        mode = await self._store.get(hash_key("mode", upstream, model))
        return None if mode is None else mode.decode()

    async def set(self, upstream: str, model: str, mode: str) -> None:
        await self._store.put(hash_key("mode", upstream, model), mode.encode(), _LEARNED_SECONDS)

    async def learn(self, evidence: ModeEvidence) -> None:
        """Remember what a request has shown; enough of it makes `prompt` the learned mode."""
        upstream, model, is_text = evidence.upstream, evidence.model, evidence.is_text_call
        if evidence.needs_prompt and not await self._has_called_natively(upstream, model):
            await self.set(upstream, model, "prompt")
        if is_text is not None:
            text_calls = await self.add_call(upstream, model, is_text=is_text)
            if text_calls >= _TEXT_CALLS_FOR_PROMPT:
                await self.set(upstream, model, "prompt")

    async def add_call(self, upstream: str, model: str, *, is_text: bool) -> int:
        """Remember a call of a native model; return how many of its last calls were in the text."""
        key, value = hash_key("calls", upstream, model), b"1" if is_text else b"0"
        await self._store.push(key, value, max_items=_OBSERVED_CALLS, seconds=_LEARNED_SECONDS)
        return (await self._store.list_items(key)).count(b"1")

    async def _has_called_natively(self, upstream: str, model: str) -> bool:
        return b"0" in await self._store.list_items(hash_key("calls", upstream, model))


class LearnedFields:
    """Remembers for an hour which fields the upstream of a model rejects.

    It is kept in this process, so that no request has to wait for the store.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._learned: dict[tuple[str, str], tuple[float, tuple[FieldChange, ...]]] = {}

    def apply(self, profile: ModelProfile) -> ModelProfile:
        """Return the profile with the quirks that were learned."""
        key = profile.upstream, profile.model
        if not self._learned or key not in self._learned:
            return profile
        expires, changes = self._learned[key]
        if self._clock() > expires:
            del self._learned[key]
            return profile
        quirks = profile.quirks
        for change in changes:
            quirks = change.apply(quirks)
        return structs.replace(profile, quirks=quirks)

    def add(self, profile: ModelProfile, changes: Sequence[FieldChange]) -> None:
        """Remember changes that have made an upstream take a request."""
        key = profile.upstream, profile.model
        _, known = self._learned.pop(key, (0.0, ()))
        if len(self._learned) >= _MAX_MODELS:
            self._learned.clear()
        merged = tuple(dict.fromkeys((*known, *changes)))
        self._learned[key] = self._clock() + _LEARNED_SECONDS, merged
