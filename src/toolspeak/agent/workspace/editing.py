"""Changes a text in a file, exactly where it stands.

What cannot be done is told so that the next try can be right: where the text stands if it stands
there more than once, and which lines are most like it if it does not stand there at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

from .confined import Folder
from .files import LARGEST, Content, create, read, replace
from .problems import Missing, WorkspaceError, shown
from .text import FileText, cut, lines_of

_MOST = 1000
"""How often a text is looked for that should stand there once."""
_MOST_PLACES = 10
_MOST_LINES = 12
_MOST_LOOKED_AT = 10_000
_MOST_COMPARED = 50
_LONGEST_COMPARED = 200
_ALIKE = 0.6


def edit(folder: Folder, path: str, old: str, new: str, *, everywhere: bool) -> str:
    """Replace `old` by `new`; without `old`, make a new file."""
    data = _encoded(new)
    try:
        content = read(folder, path, to_change=True)
    except Missing as problem:
        if old:
            raise Missing(f"{problem} To create it, leave `old` empty.") from None
        return f"[{shown(create(folder, path, data))} was created.]"
    if old:
        return _replaced(folder, content, old, new, everywhere)
    if content.data:
        problem = "exists already. Say in `old` which text of it is to be replaced"
        raise WorkspaceError(f"{shown(content.path)} {problem}.")
    replace(folder, content, data)
    return f"[{shown(content.path)} was empty, and is written.]"


def _replaced(folder: Folder, content: Content, old: str, new: str, everywhere: bool) -> str:
    file = FileText(content)
    old, new = _plain(old), _plain(new)
    places = list(islice(_places(file.text, old, apart=everywhere), None if everywhere else _MOST))
    if not places:
        raise WorkspaceError(_not_found(file, old))
    if len(places) > 1 and not everywhere:
        raise WorkspaceError(_too_often(file, places))
    if old == new:
        raise WorkspaceError("`old` and `new` are the same: there is nothing to change.")
    _check_size(len(file.original) + len(places) * (len(new) - len(old)))
    changed = _spliced(file, places, len(old), new)
    replace(folder, content, changed.encode("utf-8", "surrogateescape"))
    return f"[{shown(file.path)} was changed in {_lines(file, places)}.]"


def _encoded(text: str) -> bytes:
    _check_size(len(text))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WorkspaceError("`new` has half a character in it: it cannot be written.") from None


def _check_size(size: int) -> None:
    """What could not be read again is not written."""
    if size > LARGEST:
        raise WorkspaceError(f"The file would become larger than {LARGEST >> 20} MB.")


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _places(text: str, old: str, *, apart: bool) -> Iterator[int]:
    """Where a text stands. Two places may share letters, unless they are to be replaced: it is not
    clear which of them is meant."""
    place = text.find(old)
    while place >= 0:
        yield place
        place = text.find(old, place + (len(old) if apart else 1))


def _spliced(file: FileText, places: list[int], length: int, new: str) -> str:
    """The file with a text in place of another; all else stays to the letter."""
    parts: list[str] = []
    done = 0
    for place in places:
        start, end = file.in_original(place), file.in_original(place + length)
        line_break = file.line_break(place, place + length)
        parts += [file.original[done:start], new.replace("\n", line_break)]
        done = end
    return "".join([*parts, file.original[done:]])


def _lines(file: FileText, places: list[int]) -> str:
    numbers = sorted({file.line_of(place) for place in places[:_MOST_PLACES]})
    more = f" and {len(places) - _MOST_PLACES} more places" if len(places) > _MOST_PLACES else ""
    word = "line" if len(numbers) == 1 and not more else "lines"
    return f"{word} {', '.join(map(str, numbers))}{more}"


def _too_often(file: FileText, places: list[int]) -> str:
    often = f"{_MOST} times or more" if len(places) == _MOST else f"{len(places)} times"
    return (
        f"`old` stands {often} in {shown(file.path)} ({_lines(file, places)}). "
        "Add lines around it until it stands there once, or set `all`."
    )


def _not_found(file: FileText, old: str) -> str:
    """What is most like a text that is not there."""
    told = f"`old` does not stand in {shown(file.path)}."
    lines, wanted = lines_of(file.shown), lines_of(old)
    near = _nearest(lines, wanted)
    if near is None:
        return f"{told} No line is like it: read the file again."
    there = lines[near : near + min(len(wanted), _MOST_LINES)]
    is_spaced = [line.split() for line in there] == [line.split() for line in wanted]
    why = " Only the spaces differ." if is_spaced else ""
    quoted = "\n".join(cut(line, _LONGEST_COMPARED) for line in there)
    return f"{told} The nearest is this, from line {near + 1} on.{why}\n{quoted}"


def _nearest(lines: list[str], wanted: list[str]) -> int | None:
    """Where the lines begin that are most like those that are wanted. The longest of them says
    most of all where that is."""
    longest = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    likeness = _Likeness(wanted[longest])
    candidates = nlargest(_MOST_COMPARED, enumerate(lines[:_MOST_LOOKED_AT]), key=likeness.at_most)
    if not candidates:
        return None
    number, line = max(candidates, key=likeness.of)
    return max(0, number - longest) if likeness.of((number, line)) >= _ALIKE else None


class _Likeness:
    """How much lines are like one line, apart from the spaces around them."""

    def __init__(self, line: str) -> None:
        self._matcher = SequenceMatcher(None)
        self._matcher.set_seq2(_compared(line))

    def at_most(self, numbered: tuple[int, str]) -> float:
        """A limit, which is found much faster."""
        self._matcher.set_seq1(_compared(numbered[1]))
        return self._matcher.quick_ratio()

    def of(self, numbered: tuple[int, str]) -> float:
        self._matcher.set_seq1(_compared(numbered[1]))
        return self._matcher.ratio()


def _compared(line: str) -> str:
    return line.strip()[:_LONGEST_COMPARED]
