"""What to look for in a text: the markers of some dialects, put together so that one search finds
the next of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

from ..calls.tools import NAME_PREFIXES, spelling_variants
from .template import (
    CODE_SLOTS,
    COMMON_REASONING_TAGS,
    JSON_SLOTS,
    OTHER_TURN_OPENERS,
    RESULT_OPENERS,
    CallForm,
    Dialect,
    LiteralText,
    Slot,
)

_SPECIAL = re.compile(r"<[|｜]|\[|<\w+:")
"""Control tokens, which can be taken out of any text without loss."""


class Marker(Struct, frozen=True, eq=False):
    """What may happen at a literal."""

    forms: tuple[CallForm, ...] = ()
    reasoning_closer: str = ""
    """It opens reasoning, which ends with this."""
    closes_reasoning: bool = False
    """It ends reasoning that nothing in the text has opened."""
    is_control_token: bool = False
    """It is never text."""
    inert_closer: str = ""
    """It opens a span that ends with this, in which nothing is a call."""
    result_closer: str = ""
    """It opens a span that ends with this, and that only a tool could have written."""
    is_trailing_token: bool = False
    """It is not text if nothing follows it."""
    opens_answer: bool = False
    """It begins the final answer, behind which nothing is a call."""
    opens_other_turn: bool = False
    """It begins a turn of somebody else, behind which nothing is a call."""
    opens_result: bool = False
    """It begins a result: behind a call of the same reply, it is the same."""
    closes_call: bool = False
    """It ends a call, or a value in one."""
    framed_dialects: tuple[Dialect, ...] = ()
    """It begins the header of a message in these dialects."""
    line_start_only: bool = False
    """It counts only at the beginning of a line."""
    word_start_only: bool = False
    """It counts only at the beginning of a word."""
    is_bracket: bool = False
    """It is a bracket, which may be part of anything."""


class MarkerSet:
    """A set of literals to search for, all at once."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals)
        self._prefixes = frozenset(
            literal[:size] for literal in self.literals for size in range(1, len(literal))
        )
        self._longest = max(map(len, self.literals), default=0)
        self._first = re.compile(
            _alternation_pattern(sorted({literal[:1] for literal in self.literals}))
        )
        self.pattern = re.compile(
            _alternation_pattern(sorted(self.literals)) if self.literals else r"(?!)"
        )

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """The first literal from `at` on, and the longest there."""
        return self.pattern.search(text, at)

    def may_continue(self, text: str, at: int) -> bool:
        """Whether `text[at:]` is the beginning of a longer literal."""
        return len(text) - at < self._longest and text[at:] in self._prefixes

    def cannot_begin_in(self, text: str) -> bool:
        """Whether nothing in a text could even begin a literal."""
        return self._first.search(text) is None

    def settled_end(self, text: str, at: int) -> int:
        """Up to where `text[at:]` holds nothing that could become a literal."""
        for begun in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[begun.start() :] in self._prefixes:
                return begun.start()
        return len(text)


class MarkerSetPair:
    """Two sets of literals: one is prepared once for all, the other for the tools of a request.
    For one parser: it remembers what it found, so that neither search is ever repeated."""

    def __init__(self, one: MarkerSet, other: MarkerSet) -> None:
        self._sets = (one, other)
        self._text = ""
        self._found: dict[MarkerSet, re.Match[str] | None] = {}

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

    def cannot_begin_in(self, text: str) -> bool:
        """Whether nothing in a text could even begin a literal."""
        return all(markers.cannot_begin_in(text) for markers in self._sets)

    def settled_end(self, text: str, at: int) -> int:
        """Up to where `text[at:]` holds nothing that could become a literal."""
        return min(markers.settled_end(text, at) for markers in self._sets)


_UNKNOWN: Any = object()


@lru_cache(maxsize=1024)
def marker_set(literals: tuple[str, ...]) -> MarkerSet:
    """The same set of literals is prepared only once."""
    return MarkerSet(literals)


def _alternation_pattern(words: list[str]) -> str:
    """A pattern for any of the words. It begins with plain letters, which a search skips to."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[0], []).append(word[1:])
    return "|".join(re.escape(letter) + _trie_pattern(rest) for letter, rest in groups.items())


def _trie_pattern(words: list[str]) -> str:
    """A pattern for any of the words, longest first, that fails at the first wrong letter."""
    if words == [""]:
        return ""
    groups: dict[str, list[str]] = {}
    for word in words:
        if word:
            groups.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(letter) + _trie_pattern(rest) for letter, rest in groups.items()]
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
    in_prose: tuple[Dialect, ...] = ()
    """Wherever they appear too, but only for declared tools; what is none of those is prose."""
    is_strict: bool = False
    """Only what is marked counts, and only if it is closed."""


class MarkerTable(Struct, frozen=True, eq=False):
    """The markers of some dialects, and what each of them begins."""

    scope: Scope
    literals: MarkerSet
    name_literals: MarkerSet | None
    """Those that begin with the name of a tool."""
    markers: dict[str, Marker]
    bare_forms: tuple[CallForm, ...]
    """Forms that count only if the whole message consists of them."""
    initial_tokens: tuple[str, ...]
    """Literals that are silent at the very beginning, where the prompt has begun the message."""
    headless_dialects: tuple[Dialect, ...]
    """Dialects whose first header may lack its beginning, for the same reason."""
    call_openers: tuple[str, ...]
    """What to look for inside reasoning besides its end."""
    reasoning_closers: tuple[str, ...]
    control_tokens: tuple[str, ...]
    trailing_tokens: tuple[str, ...]


@lru_cache(maxsize=256)
def marker_table_for(scope: Scope, tools: tuple[str, ...] | None) -> MarkerTable:
    """What to look for, if these are the tools: their names can be markers."""
    shared = _build_shared_table(scope, tools is not None)
    forms: dict[str, list[CallForm]] = {}
    for dialect in (*scope.named, *scope.in_prose):
        spelled = _name_spellings(tools or (), embedded=dialect not in scope.named)
        for form in dialect.forms:
            for opener in _name_openers(form, spelled):
                forms.setdefault(opener, []).append(form)
    if not forms:
        return shared
    own = {opener: _marker_for_forms(found) for opener, found in forms.items()}
    for opener, marker in own.items():
        # The same text may be a marker by itself, or begin with one.
        shorter = [text for text in shared.markers if opener.startswith(text)]
        also = tuple(form for text in shorter for form in shared.markers[text].forms)
        own[opener] = structs.replace(marker, forms=(*marker.forms, *also))
    return structs.replace(
        shared,
        name_literals=MarkerSet(own),
        markers={**shared.markers, **own},
    )


@lru_cache(maxsize=64)
def without_position_rules(table: MarkerTable) -> MarkerTable:
    """The same markers wherever they stand: no span hides them, no line or word has to begin."""
    hidden = ("line_start_only", "word_start_only", "is_bracket")
    free = {"inert_closer": "", "result_closer": "", **dict.fromkeys(hidden, False)}
    meaning = {text: structs.replace(marker, **free) for text, marker in table.markers.items()}
    return structs.replace(table, markers=meaning)


@lru_cache(maxsize=64)
def _build_shared_table(scope: Scope, has_tools: bool) -> MarkerTable:
    """What does not depend on the names of the tools."""
    named, others = scope.named, scope.others
    forms, whole = _forms_by_opener(scope, has_tools)
    meaning = _build_markers(scope, forms)
    bare = {
        opener for dialect in named for form in dialect.forms for opener in _opening_brackets(form)
    }
    alone = [
        form
        for form in whole
        if (
            form.opener not in forms
            if form.opener
            else not bare.intersection(_opening_brackets(form))
        )
    ]
    return MarkerTable(
        scope=scope,
        literals=MarkerSet(meaning),
        name_literals=None,
        markers=meaning,
        bare_forms=_deduplicate_forms(alone),
        initial_tokens=tuple(text for dialect in named for text in dialect.initial_tokens),
        headless_dialects=_tool_frames_first(
            d for d in (*named, *others) if d.message_frame and d.message_frame.first_opener
        ),
        call_openers=tuple(
            text for text, found in meaning.items() if found.forms and len(text) > 3
        ),
        reasoning_closers=_reasoning_closers(named, others),
        control_tokens=tuple(text for text, marker in meaning.items() if marker.is_control_token),
        trailing_tokens=tuple(text for text, marker in meaning.items() if marker.is_trailing_token),
    )


def _forms_by_opener(
    scope: Scope, has_tools: bool
) -> tuple[dict[str, list[CallForm]], list[CallForm]]:
    """The forms by what opens them, and those that count only as a whole message."""
    forms: dict[str, list[CallForm]] = {}
    whole: list[CallForm] = []
    for dialect in (*scope.named, *scope.in_prose):
        for form in dialect.forms:
            for opener in _literal_openers(form):
                forms.setdefault(opener, []).append(form)
    for dialect in scope.others:
        for form in dialect.forms:
            certain = dialect.evidence == "marker" or _SPECIAL.match(form.opener)
            if certain and form.opener and form.opener != "<":
                forms.setdefault(form.opener, []).append(form)
            elif scope.is_strict or dialect.evidence == "prose":
                continue
            elif has_tools or not _begins_with_name(form):
                whole.append(form)
    if scope.is_strict and not scope.named:
        forms = {opener: _prefer_closed_forms(found) for opener, found in forms.items()}
    return forms, whole


def _build_markers(scope: Scope, forms: dict[str, list[CallForm]]) -> dict[str, Marker]:
    """What each marker may begin; where one is the beginning of another, what both may."""
    longest_first = sorted(forms, key=len, reverse=True)
    meaning = {
        opener: _marker_for_forms(
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
        _add_dialect_tokens(dialect, meaning, everything=dialect in scope.named)
    for literal in OTHER_TURN_OPENERS:
        _add_turn_opener(meaning, literal, opens_other_turn=True)
    for literal in RESULT_OPENERS:
        _add_turn_opener(meaning, literal, opens_result=True)
    for literal, marker in meaning.items():
        shorter = [other for other in meaning if literal.startswith(other)]
        frames = dict.fromkeys(
            dialect for other in shorter for dialect in meaning[other].framed_dialects
        )
        meaning[literal] = structs.replace(marker, framed_dialects=_tool_frames_first(frames))
    return meaning


def _tool_frames_first(dialects: Iterable[Dialect]) -> tuple[Dialect, ...]:
    """Where headers look the same, those are tried first that can say that a message is a call."""
    return tuple(
        sorted(dialects, key=lambda d: not (d.message_frame and d.message_frame.tool_pattern))
    )


def _prefer_closed_forms(forms: list[CallForm]) -> list[CallForm]:
    """Where some dialect closes its calls, the same one without an end is not complete."""
    closed = {(form.header, _body_kind(form)) for form in forms if form.closer}
    return [form for form in forms if form.closer or (form.header, _body_kind(form)) not in closed]


def _body_kind(form: CallForm) -> str:
    return "json" if form.body in JSON_SLOTS else form.body


def _marker_for_forms(forms: list[CallForm]) -> Marker:
    """A marker that begins these forms; a bare program is what is left if nothing else fits."""
    first = forms[0]
    named = not first.opener and bool(first.header)
    return Marker(
        forms=tuple(sorted(forms, key=lambda form: form.body == "code")),
        line_start_only=named or first.dialect.line_start_only or first.opener.startswith("````"),
        word_start_only=not first.opener and first.body in CODE_SLOTS,
        is_bracket=bool(_opening_brackets(first)),
    )


_BRACKETS_BY_BODY = {
    "object": ("{",),
    "list": ("[", "{"),
    "lines": ("{",),
    "echo": ("{",),
    "content": ("{",),
    "python": ("[",),
}


def _begins_with_name(form: CallForm) -> bool:
    """Without tools, a name is a word like any other."""
    return not form.opener and (bool(form.header) or form.body in {"single", "statements"})


def _literal_openers(form: CallForm) -> tuple[str, ...]:
    """The literals at which a form of a named dialect may begin, whatever the tools."""
    return (form.opener,) if form.opener and form.opener != "<" else _opening_brackets(form)


def _opening_brackets(form: CallForm) -> tuple[str, ...]:
    """The brackets at which a form without markers may begin."""
    return () if form.opener or form.header else _BRACKETS_BY_BODY.get(form.body, ())


def _name_openers(form: CallForm, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same for forms that begin with the name of a tool: every declared name is a marker."""
    if form.opener and form.opener != "<":
        return ()
    if form.body in {"single", "statements", "python"} and not form.opener:
        return tuple(f"{name}(" for name in names)
    after = ""
    for part in form.header:
        if isinstance(part, LiteralText):
            after = part.text
            break
        if not isinstance(part, Slot) or part.kind != "name":
            return ()
    return tuple(f"{form.opener}{name}{after}" for name in names) if form.header else ()


def _name_spellings(names: tuple[str, ...], *, embedded: bool) -> tuple[str, ...]:
    """The names as they may stand in the text; in prose, in more ways than declared."""
    if not embedded:
        return names
    spelled = [spelling for name in names for spelling in (name, *spelling_variants(name))]
    return tuple(dict.fromkeys((*spelled, *(f"{p}{s}" for p in NAME_PREFIXES for s in spelled))))


def _reasoning_closers(named: tuple[Dialect, ...], others: tuple[Dialect, ...]) -> tuple[str, ...]:
    """What may close reasoning that the prompt has opened; nothing where headers tell."""
    if named and all(dialect.message_frame for dialect in named) and not others:
        return ()
    tags = (closer for dialect in (*named, *others) for _, closer in dialect.reasoning_tags)
    return tuple(dict.fromkeys((*tags, *(closer for _, closer in COMMON_REASONING_TAGS))))


def _deduplicate_forms(forms: list[CallForm]) -> tuple[CallForm, ...]:
    """One form for each way to read: many dialects differ only in how they write."""
    found: dict[object, CallForm] = {}
    for form in forms:
        found.setdefault((form.opener, form.header, _body_kind(form)), form)
    return tuple(found.values())


def _add_reasoning(dialect: Dialect, meaning: dict[str, Marker]) -> None:
    for opener, closer in (*dialect.reasoning_tags, *COMMON_REASONING_TAGS):
        if opener:
            _add_property(meaning, opener, reasoning_closer=closer)
        if closer not in dialect.control_tokens:
            _add_property(meaning, closer, closes_reasoning=True)


def _add_dialect_tokens(dialect: Dialect, meaning: dict[str, Marker], *, everything: bool) -> None:
    for opener, closer in dialect.inert_spans:
        _add_property(meaning, opener, inert_closer=closer)
    for opener, closer in dialect.result_spans:
        _add_property(
            meaning, opener, result_closer=closer, line_start_only=dialect.line_start_only
        )
    for token in dialect.trailing_tokens:
        _add_property(meaning, token, is_trailing_token=True)
    for token in dialect.answer_openers if everything else ():
        _add_property(meaning, token, opens_answer=True)
    for token in dialect.closing_tags:
        _add_property(meaning, token, closes_call=True)
    for token in dialect.control_tokens:
        if everything or _SPECIAL.match(token):
            _add_property(meaning, token, is_control_token=True)
    for opener in dialect.message_frame.openers if dialect.message_frame else ():
        known = meaning.get(opener, Marker())
        meaning[opener] = structs.replace(known, framed_dialects=(*known.framed_dialects, dialect))


def _add_turn_opener(meaning: dict[str, Marker], literal: str, **what: bool) -> None:
    """A turn of somebody else; what is said of the token that it begins with holds for it too."""
    tokens = [known for known in meaning if literal.startswith(known)]
    known = meaning[max(tokens, key=len)] if tokens else Marker()
    meaning[literal] = structs.replace(known, **what)


def _add_property(meaning: dict[str, Marker], literal: str, **more: Any) -> None:
    """Say one more thing about a literal; what was said first stays."""
    known = meaning.get(literal, Marker())
    missing = {key: value for key, value in more.items() if not getattr(known, key)}
    meaning[literal] = structs.replace(known, **missing)
