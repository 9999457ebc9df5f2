"""What to look for in a text: the markers of some dialects, put together so that one search finds
the next of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

from ..calls.toolset import NAME_PREFIXES, spelling_variants
from .template import (
    CALL_SLOTS,
    COMMON_THOUGHTS,
    JSON_SLOTS,
    OTHER_TURNS,
    RESULTS,
    Dialect,
    Form,
    Literal,
    Slot,
)

_SPECIAL = re.compile(r"<[|｜]|\[|<\w+:")
"""Control tokens, which can be taken out of any text without loss."""


class Marker(Struct, frozen=True, eq=False):
    """What may happen at a literal."""

    forms: tuple[Form, ...] = ()
    thought: str = ""
    """It opens reasoning, which ends with this."""
    ends_thought: bool = False
    """It ends reasoning that nothing in the text has opened."""
    silent: bool = False
    """It is never text."""
    inert: str = ""
    """It opens a span that ends with this, in which nothing is a call."""
    foreign: str = ""
    """It opens a span that ends with this, and that only a tool could have written."""
    last: bool = False
    """It is not text if nothing follows it."""
    answers: bool = False
    """It begins the final answer, behind which nothing is a call."""
    others: bool = False
    """It begins a turn of somebody else, behind which nothing is a call."""
    result: bool = False
    """It begins a result: behind a call of the same reply, it is the same."""
    closes: bool = False
    """It ends a call, or a value in one."""
    frames: tuple[Dialect, ...] = ()
    """It begins the header of a message in these dialects."""
    line_start: bool = False
    """It counts only at the beginning of a line."""
    word_start: bool = False
    """It counts only at the beginning of a word."""
    bare: bool = False
    """It is a bracket, which may be part of anything."""


class Markers:
    """A set of literals to search for, all at once."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals)
        self._prefixes = frozenset(
            literal[:size] for literal in self.literals for size in range(1, len(literal))
        )
        self._longest = max(map(len, self.literals), default=0)
        self._first = re.compile(_choice(sorted({literal[:1] for literal in self.literals})))
        self.pattern = re.compile(_choice(sorted(self.literals)) if self.literals else r"(?!)")

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """The first literal from `at` on, and the longest there."""
        return self.pattern.search(text, at)

    def may_grow(self, text: str, at: int) -> bool:
        """Whether `text[at:]` is the beginning of a longer literal."""
        return len(text) - at < self._longest and text[at:] in self._prefixes

    def are_far(self, text: str) -> bool:
        """Whether nothing in a text could even begin a literal."""
        return self._first.search(text) is None

    def certain(self, text: str, at: int) -> int:
        """Up to where `text[at:]` holds nothing that could become a literal."""
        for begun in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[begun.start() :] in self._prefixes:
                return begun.start()
        return len(text)


class Both:
    """Two sets of literals: one is prepared once for all, the other for the tools of a request.
    For one parser: it remembers what it found, so that neither search is ever repeated."""

    def __init__(self, one: Markers, other: Markers) -> None:
        self._sets = (one, other)
        self._text = ""
        self._found: dict[Markers, re.Match[str] | None] = {}

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """The first literal from `at` on, and the longest there."""
        if text is not self._text:
            self._text, self._found = text, {}
        for markers in self._sets:
            known = self._found.get(markers, _UNKNOWN)
            if known is _UNKNOWN or (known is not None and known.start() < at):
                self._found[markers] = markers.search(text, at)
        found = [match for match in self._found.values() if match]
        return min(found, key=lambda match: (match.start(), -match.end()), default=None)

    def are_far(self, text: str) -> bool:
        """Whether nothing in a text could even begin a literal."""
        return all(markers.are_far(text) for markers in self._sets)

    def certain(self, text: str, at: int) -> int:
        """Up to where `text[at:]` holds nothing that could become a literal."""
        return min(markers.certain(text, at) for markers in self._sets)


_UNKNOWN: Any = object()


@lru_cache(maxsize=1024)
def markers_of(literals: tuple[str, ...]) -> Markers:
    """The same set of literals is prepared only once."""
    return Markers(literals)


def _choice(words: list[str]) -> str:
    """A pattern for any of the words. It begins with plain letters, which a search skips to."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[0], []).append(word[1:])
    return "|".join(re.escape(letter) + _trie(rest) for letter, rest in groups.items())


def _trie(words: list[str]) -> str:
    """A pattern for any of the words, longest first, that fails at the first wrong letter."""
    if words == [""]:
        return ""
    groups: dict[str, list[str]] = {}
    for word in words:
        if word:
            groups.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(letter) + _trie(rest) for letter, rest in groups.items()]
    choice = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    if len(branches) > 1:
        choice = f"(?=[{''.join(map(re.escape, groups))}]){choice}"
    return f"(?:{choice})?" if "" in words else choice


class Scope(Struct, frozen=True, gc=False):
    """Which dialects count, and where."""

    named: tuple[Dialect, ...] = ()
    """Wherever they appear."""
    others: tuple[Dialect, ...] = ()
    """By their evidence."""
    embedded: tuple[Dialect, ...] = ()
    """Wherever they appear too, but only for declared tools; what is none of those is prose."""
    strict: bool = False
    """Only what is marked counts, and only if it is closed."""


class Grammar(Struct, frozen=True, eq=False):
    """The markers of some dialects, and what each of them begins."""

    scope: Scope
    markers: Markers
    names: Markers | None
    """Those that begin with the name of a tool."""
    meaning: dict[str, Marker]
    whole: tuple[Form, ...]
    """Forms that count only if the whole message consists of them."""
    start: tuple[str, ...]
    """Literals that are silent at the very beginning, where the prompt has begun the message."""
    frames: tuple[Dialect, ...]
    """Dialects whose first header may lack its beginning, for the same reason."""
    thoughts: tuple[str, ...]
    """What to look for inside reasoning besides its end."""
    ends_thought: tuple[str, ...]
    silent: tuple[str, ...]
    last: tuple[str, ...]


@lru_cache(maxsize=256)
def grammar_of(scope: Scope, tools: tuple[str, ...] | None) -> Grammar:
    """What to look for, if these are the tools: their names can be markers."""
    shared = _shared_grammar(scope, tools is not None)
    forms: dict[str, list[Form]] = {}
    for dialect in (*scope.named, *scope.embedded):
        spelled = _spelled(tools or (), embedded=dialect not in scope.named)
        for form in dialect.forms:
            for opener in _openers_with_names(form, spelled):
                forms.setdefault(opener, []).append(form)
    if not forms:
        return shared
    own = {opener: _beginning_of(found) for opener, found in forms.items()}
    for opener, marker in own.items():
        # The same text may be a marker by itself, or begin with one.
        shorter = [text for text in shared.meaning if opener.startswith(text)]
        also = tuple(form for text in shorter for form in shared.meaning[text].forms)
        own[opener] = structs.replace(marker, forms=(*marker.forms, *also))
    return structs.replace(
        shared,
        names=Markers(own),
        meaning={**shared.meaning, **own},
    )


@lru_cache(maxsize=64)
def unconditional(grammar: Grammar) -> Grammar:
    """The same markers wherever they stand: no span hides them, no line or word has to begin."""
    hidden = ("line_start", "word_start", "bare")
    free = {"inert": "", "foreign": "", **dict.fromkeys(hidden, False)}
    meaning = {text: structs.replace(marker, **free) for text, marker in grammar.meaning.items()}
    return structs.replace(grammar, meaning=meaning)


@lru_cache(maxsize=64)
def _shared_grammar(scope: Scope, has_tools: bool) -> Grammar:
    """What does not depend on the names of the tools."""
    named, others = scope.named, scope.others
    forms, whole = _forms(scope, has_tools)
    meaning = _meaning(scope, forms)
    bare = {opener for dialect in named for form in dialect.forms for opener in _bare(form)}
    alone = [
        form
        for form in whole
        if (form.opener not in forms if form.opener else not bare.intersection(_bare(form)))
    ]
    return Grammar(
        scope=scope,
        markers=Markers(meaning),
        names=None,
        meaning=meaning,
        whole=_distinct(alone),
        start=tuple(text for dialect in named for text in dialect.start),
        frames=_tools_first(d for d in (*named, *others) if d.frame and d.frame.first),
        thoughts=tuple(text for text, found in meaning.items() if found.forms and len(text) > 3),
        ends_thought=_ends_of_thought(named, others),
        silent=tuple(text for text, marker in meaning.items() if marker.silent),
        last=tuple(text for text, marker in meaning.items() if marker.last),
    )


def _forms(scope: Scope, has_tools: bool) -> tuple[dict[str, list[Form]], list[Form]]:
    """The forms by what opens them, and those that count only as a whole message."""
    forms: dict[str, list[Form]] = {}
    whole: list[Form] = []
    for dialect in (*scope.named, *scope.embedded):
        for form in dialect.forms:
            for opener in _literal_openers(form):
                forms.setdefault(opener, []).append(form)
    for dialect in scope.others:
        for form in dialect.forms:
            certain = dialect.evidence == "marker" or _SPECIAL.match(form.opener)
            if certain and form.opener and form.opener != "<":
                forms.setdefault(form.opener, []).append(form)
            elif scope.strict or dialect.evidence == "prose":
                continue
            elif has_tools or not _begins_with_name(form):
                whole.append(form)
    if scope.strict and not scope.named:
        forms = {opener: _closed_if_any(found) for opener, found in forms.items()}
    return forms, whole


def _meaning(scope: Scope, forms: dict[str, list[Form]]) -> dict[str, Marker]:
    """What each marker may begin; where one is the beginning of another, what both may."""
    longest_first = sorted(forms, key=len, reverse=True)
    meaning = {
        opener: _beginning_of(
            [
                form
                for prefix in longest_first
                if opener.startswith(prefix)
                for form in forms[prefix]
            ]
        )
        for opener in forms
    }
    for dialect in (*scope.named, *scope.others):
        _add_reasoning(dialect, meaning)
        _add_frame(dialect, meaning, everything=dialect in scope.named)
    for literal in OTHER_TURNS:
        _add_turn(meaning, literal, others=True)
    for literal in RESULTS:
        _add_turn(meaning, literal, result=True)
    for literal, marker in meaning.items():
        shorter = [other for other in meaning if literal.startswith(other)]
        frames = dict.fromkeys(dialect for other in shorter for dialect in meaning[other].frames)
        meaning[literal] = structs.replace(marker, frames=_tools_first(frames))
    return meaning


def _tools_first(dialects: Iterable[Dialect]) -> tuple[Dialect, ...]:
    """Where headers look the same, those are tried first that can say that a message is a call."""
    return tuple(sorted(dialects, key=lambda d: not (d.frame and d.frame.tools)))


def _closed_if_any(forms: list[Form]) -> list[Form]:
    """Where some dialect closes its calls, the same one without an end is not complete."""
    closed = {(form.header, _body_kind(form)) for form in forms if form.closer}
    return [form for form in forms if form.closer or (form.header, _body_kind(form)) not in closed]


def _body_kind(form: Form) -> str:
    return "json" if form.body in JSON_SLOTS else form.body


def _beginning_of(forms: list[Form]) -> Marker:
    """A marker that begins these forms; a bare program is what is left if nothing else fits."""
    first = forms[0]
    named = not first.opener and bool(first.header)
    return Marker(
        forms=tuple(sorted(forms, key=lambda form: form.body == "code")),
        line_start=named or first.dialect.own_line or first.opener.startswith("````"),
        word_start=not first.opener and first.body in CALL_SLOTS,
        bare=bool(_bare(first)),
    )


_BARE = {
    "object": ("{",),
    "list": ("[", "{"),
    "lines": ("{",),
    "echo": ("{",),
    "content": ("{",),
    "python": ("[",),
}


def _begins_with_name(form: Form) -> bool:
    """Without tools, a name is a word like any other."""
    return not form.opener and (bool(form.header) or form.body in {"single", "statements"})


def _literal_openers(form: Form) -> tuple[str, ...]:
    """The literals at which a form of a named dialect may begin, whatever the tools."""
    return (form.opener,) if form.opener and form.opener != "<" else _bare(form)


def _bare(form: Form) -> tuple[str, ...]:
    """The brackets at which a form without markers may begin."""
    return () if form.opener or form.header else _BARE.get(form.body, ())


def _openers_with_names(form: Form, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same for forms that begin with the name of a tool: every declared name is a marker."""
    if form.opener and form.opener != "<":
        return ()
    if form.body in {"single", "statements", "python"} and not form.opener:
        return tuple(f"{name}(" for name in names)
    after = ""
    for part in form.header:
        if isinstance(part, Literal):
            after = part.text
            break
        if not isinstance(part, Slot) or part.kind != "name":
            return ()
    return tuple(f"{form.opener}{name}{after}" for name in names) if form.header else ()


def _spelled(names: tuple[str, ...], *, embedded: bool) -> tuple[str, ...]:
    """The names as they may stand in the text; in prose, in more ways than declared."""
    if not embedded:
        return names
    spelled = [spelling for name in names for spelling in (name, *spelling_variants(name))]
    return tuple(dict.fromkeys((*spelled, *(f"{p}{s}" for p in NAME_PREFIXES for s in spelled))))


def _ends_of_thought(named: tuple[Dialect, ...], others: tuple[Dialect, ...]) -> tuple[str, ...]:
    """What may close reasoning that the prompt has opened; nothing where headers tell."""
    if named and all(dialect.frame for dialect in named) and not others:
        return ()
    tags = (closer for dialect in (*named, *others) for _, closer in dialect.reasoning)
    return tuple(dict.fromkeys((*tags, *(closer for _, closer in COMMON_THOUGHTS))))


def _distinct(forms: list[Form]) -> tuple[Form, ...]:
    """One form for each way to read: many dialects differ only in how they write."""
    found: dict[object, Form] = {}
    for form in forms:
        found.setdefault((form.opener, form.header, _body_kind(form)), form)
    return tuple(found.values())


def _add_reasoning(dialect: Dialect, meaning: dict[str, Marker]) -> None:
    for opener, closer in (*dialect.reasoning, *COMMON_THOUGHTS):
        if opener:
            _add(meaning, opener, thought=closer)
        if closer not in dialect.silent:
            _add(meaning, closer, ends_thought=True)


def _add_frame(dialect: Dialect, meaning: dict[str, Marker], *, everything: bool) -> None:
    for opener, closer in dialect.inert:
        _add(meaning, opener, inert=closer)
    for opener, closer in dialect.foreign:
        _add(meaning, opener, foreign=closer, line_start=dialect.own_line)
    for token in dialect.last:
        _add(meaning, token, last=True)
    for token in dialect.answers if everything else ():
        _add(meaning, token, answers=True)
    for token in dialect.closers:
        _add(meaning, token, closes=True)
    for token in dialect.silent:
        if everything or _SPECIAL.match(token):
            _add(meaning, token, silent=True)
    for opener in dialect.frame.openers if dialect.frame else ():
        known = meaning.get(opener, Marker())
        meaning[opener] = structs.replace(known, frames=(*known.frames, dialect))


def _add_turn(meaning: dict[str, Marker], literal: str, **what: bool) -> None:
    """A turn of somebody else; what is said of the token that it begins with holds for it too."""
    tokens = [known for known in meaning if literal.startswith(known)]
    known = meaning[max(tokens, key=len)] if tokens else Marker()
    meaning[literal] = structs.replace(known, **what)


def _add(meaning: dict[str, Marker], literal: str, **more: Any) -> None:
    """Say one more thing about a literal; what was said first stays."""
    known = meaning.get(literal, Marker())
    missing = {key: value for key, value in more.items() if not getattr(known, key)}
    meaning[literal] = structs.replace(known, **missing)
