"""Which dialects there are, and which of them a model speaks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

from ..calls.validation import Trust
from ..errors import UnknownDialect
from .catalog import ALL
from .grammar import Scope
from .template import Dialect

AUTO = "auto"
DIALECTS: dict[str, Dialect] = {}
for _dialect in ALL:
    # A name may stand for several spellings: the first is the one that is written.
    DIALECTS.setdefault(_dialect.name, _dialect)


def get(name: str) -> Dialect:
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
def for_model(model: str) -> tuple[Dialect, ...]:
    """The dialects that a model is known to speak, most specific first; () if it is not known."""
    model = model.lower()
    found: list[tuple[int, Dialect]] = []
    for dialect in ALL:
        sizes = [len(fragment) for fragment in dialect.models if fragment in model]
        if sizes:
            found.append((max(sizes), dialect))
    found.sort(key=lambda pair: -pair[0])
    return tuple(dialect for _, dialect in found)


_IN_PROSE = ("raw-json", "bare_json_array", "pythonic", "glm4_line", "fenced_json")
"""What counts in the middle of prose where trust is lenient."""
EVERYTHING = Scope(
    tuple(dialect for dialect in ALL if dialect.name not in _IN_PROSE),
    embedded=tuple(dialect for dialect in ALL if dialect.name in _IN_PROSE),
)
"""Every dialect wherever it appears: too much to act on, and right to be warned of."""


def scope_of(dialect: str | Dialect | Sequence[Dialect], trust: Trust, *, has_tools: bool) -> Scope:
    """What counts as a call, if this dialect is expected and the model is trusted so far."""
    if isinstance(dialect, str):
        named = _spellings(dialect)
    else:
        named = (dialect,) if isinstance(dialect, Dialect) else tuple(dialect)
    return _scope(named, trust, has_tools)


def _spellings(name: str) -> tuple[Dialect, ...]:
    if name == AUTO:
        return ()
    known = get(name).name
    return tuple(spelling for spelling in ALL if spelling.name == known)


@lru_cache(maxsize=256)
def _scope(named: tuple[Dialect, ...], trust: Trust, has_tools: bool) -> Scope:
    if trust == "strict":
        marked = (other for other in ALL if other.evidence == "marker" and other not in named)
        return Scope(named, tuple(marked), strict=True)
    others = tuple(other for other in ALL if other not in named)
    prose = tuple(other for other in others if other.name in _IN_PROSE)
    return Scope(named, others, prose if trust == "lenient" and has_tools else ())
