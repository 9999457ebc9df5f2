"""Which dialects there are, and which of them a model speaks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

from ..errors import UnknownDialect
from ..types import Trust
from .catalog import ALL_DIALECTS
from .marker_table import Scope
from .template import Dialect

AUTO = "auto"
DIALECTS: dict[str, Dialect] = {}
for _dialect in ALL_DIALECTS:
    # A name may stand for several spellings: the first is the one that is written.
    DIALECTS.setdefault(_dialect.name, _dialect)


def get_dialect(name: str) -> Dialect:
    """The dialect of that name."""
    try:
        return DIALECTS[name]
    except KeyError:
        near = difflib.get_close_matches(name, DIALECTS, 3) or ["auto"]
        raise UnknownDialect(
            f"there is no dialect {name!r}; did you mean {', '.join(near)}? "
            "`toolspeak dialects` lists them all"
        ) from None


@lru_cache(maxsize=1024)
def dialects_for_model(model: str) -> tuple[Dialect, ...]:
    """The dialects that a model is known to speak, most specific first; () if it is not known."""
    model = model.lower()
    found: list[tuple[int, Dialect]] = []
    for dialect in ALL_DIALECTS:
        sizes = [len(fragment) for fragment in dialect.model_fragments if fragment in model]
        if sizes:
            found.append((max(sizes), dialect))
    found.sort(key=lambda pair: -pair[0])
    return tuple(dialect for _, dialect in found)


_PROSE_DIALECTS = ("raw-json", "bare_json_array", "pythonic", "glm4_line", "fenced_json")
"""What counts in the middle of prose where trust is lenient."""
EVERY_DIALECT = Scope(
    tuple(dialect for dialect in ALL_DIALECTS if dialect.name not in _PROSE_DIALECTS),
    in_prose=tuple(dialect for dialect in ALL_DIALECTS if dialect.name in _PROSE_DIALECTS),
)
"""Every dialect wherever it appears: too much to act on, and right to be warned of."""


def build_scope(
    dialect: str | Dialect | Sequence[Dialect], trust: Trust, *, has_tools: bool
) -> Scope:
    """What counts as a call, if this dialect is expected and the model is trusted so far."""
    if isinstance(dialect, str):
        named = _variants_named(dialect)
    else:
        named = (dialect,) if isinstance(dialect, Dialect) else tuple(dialect)
    return _cached_scope(named, trust, has_tools)


def _variants_named(name: str) -> tuple[Dialect, ...]:
    if name == AUTO:
        return ()
    known = get_dialect(name).name
    return tuple(spelling for spelling in ALL_DIALECTS if spelling.name == known)


@lru_cache(maxsize=256)
def _cached_scope(named: tuple[Dialect, ...], trust: Trust, has_tools: bool) -> Scope:
    if trust == "strict":
        marked = (
            other for other in ALL_DIALECTS if other.evidence == "marker" and other not in named
        )
        return Scope(named, tuple(marked), is_strict=True)
    others = tuple(other for other in ALL_DIALECTS if other not in named)
    prose = tuple(other for other in others if other.name in _PROSE_DIALECTS)
    return Scope(named, others, prose if trust == "lenient" and has_tools else ())
