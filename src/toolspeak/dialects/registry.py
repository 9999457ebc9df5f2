"""Which dialects there are, and which of them a model speaks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..errors import UnknownDialect
from .catalog import ALL
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


def dialects_for(
    dialect: str | Dialect | Sequence[Dialect],
) -> tuple[tuple[Dialect, ...], tuple[Dialect, ...]]:
    """Dialects that count wherever they appear, and those that count by their evidence.

    One dialect stands alone. Several, as `for_model` gives them, come first among all.
    """
    if dialect == AUTO:
        return (), ALL
    if isinstance(dialect, str):
        name = get(dialect).name
        return tuple(spelling for spelling in ALL if spelling.name == name), ()
    if isinstance(dialect, Dialect):
        return (dialect,), ()
    first = tuple(dialect)
    return first, tuple(other for other in ALL if other not in first)
