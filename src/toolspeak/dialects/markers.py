"""The dialects by name, and the markers at which their calls may begin.

    build_scope("hermes", "standard", has_tools=True)    the dialects to recognize in a reply
    marker_table_for(scope, ("get_weather",))            the literals to search for in its text

A marker is a literal together with everything that it may mean. All markers of a table are found by
one search. The names of tools are markers too, if a dialect has calls that begin with one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from typing import Literal as OneOf

from msgspec import Struct, structs

from ..calls.tools import NAME_PREFIXES, spelling_variants
from ..errors import UnknownDialect
from ..types import Trust
from .catalog import ALL_DIALECTS
from .template import (
    CODE_SLOTS,
    COMMON_REASONING_TAGS,
    JSON_SLOTS,
    NEXT_REPLY_OPENERS,
    OTHER_TURN_OPENERS,
    RESULT_OPENERS,
    CallForm,
    Dialect,
    LiteralText,
    MessageToUser,
    Slot,
)

AUTO = "auto"
_PROSE_DIALECTS = ("raw-json", "bare_json_array", "pythonic", "glm4_line", "fenced_json")
"""The dialects that are recognized within prose if trust is lenient."""
_CONTROL_TOKEN = re.compile(r"<[|｜]|\[|<\w+:")
"""The beginning of tokens that never occur in ordinary text."""
_BRACKETS_BY_BODY = {
    "object": ("{",),
    "list": ("[", "{"),
    "lines": ("{",),
    "echo": ("{",),
    "content": ("{",),
    "python": ("[",),
}


# Dialects.


def _index_dialects() -> dict[str, Dialect]:
    dialects: dict[str, Dialect] = {}
    for dialect in ALL_DIALECTS:
        # A name may have several variants: the first is the one that is rendered.
        dialects.setdefault(dialect.name, dialect)
    return dialects


DIALECTS = _index_dialects()


def get_dialect(name: str) -> Dialect:
    try:
        return DIALECTS[name]
    except KeyError:
        near = difflib.get_close_matches(name, DIALECTS, 3)
        suggestion = f"did you mean {', '.join(near)}? " if near else ""
        raise UnknownDialect(
            f"there is no dialect {name!r}; {suggestion}`toolspeak dialects` lists all dialects"
        ) from None


@lru_cache(maxsize=1024)
def dialects_for_model(model: str) -> tuple[Dialect, ...]:
    """Return the dialects that a model is known to use, most specific first."""
    fragments = [
        (fragment, dialect)
        for dialect in ALL_DIALECTS
        for fragment in dialect.model_fragments
        if fragment in model.lower()
    ]
    fragments.sort(key=lambda found: -len(found[0]))
    return tuple(dict.fromkeys(dialect for _, dialect in fragments))


def find_taught_dialect(model: str) -> Dialect | None:
    """Return the dialect in which a model is asked for calls, or None if it is not known."""
    known = dialects_for_model(model)
    return next((dialect for dialect in known if dialect.evidence != "prose"), None)


class Scope(Struct, frozen=True, gc=False):
    """The dialects that are recognized in a reply, and where."""

    named: tuple[Dialect, ...] = ()
    """Recognized anywhere."""
    others: tuple[Dialect, ...] = ()
    """Recognized where their `evidence` allows it."""
    in_prose: tuple[Dialect, ...] = ()
    """Recognized anywhere, but only with the name of a declared tool: all else is prose."""
    is_strict: bool = False
    """Only calls with markers are accepted, and only if they are closed."""

    def has_closing_tag(self, literal: str) -> bool:
        """Return True if a named dialect closes calls with this tag."""
        return any(literal in dialect.closing_tags for dialect in self.named)

    def has_control_token(self, literal: str) -> bool:
        """Return True if a named dialect has this control token."""
        return any(literal in dialect.control_tokens for dialect in self.named)


EVERY_DIALECT = Scope(
    tuple(dialect for dialect in ALL_DIALECTS if dialect.name not in _PROSE_DIALECTS),
    in_prose=tuple(dialect for dialect in ALL_DIALECTS if dialect.name in _PROSE_DIALECTS),
)
"""Every dialect anywhere: for searching text for calls that must not be made."""


def build_scope(
    dialect: str | Dialect | Sequence[Dialect], trust: Trust, *, has_tools: bool
) -> Scope:
    """Return the scope for a reply in which `dialect` is expected.

    Of several dialects, those after the first whose calls look like prose count only with declared
    tools.
    """
    if isinstance(dialect, Dialect):
        named = (dialect,)
    elif not isinstance(dialect, str):
        named = tuple(dialect)
    elif dialect == AUTO:
        named = ()
    else:
        name = get_dialect(dialect).name
        named = tuple(variant for variant in ALL_DIALECTS if variant.name == name)
    in_prose: tuple[Dialect, ...] = ()
    if not isinstance(dialect, (str, Dialect)):
        in_prose = tuple(one for one in named[1:] if one.evidence == "prose")
        named = tuple(one for one in named if one not in in_prose)
    return _build_scope(named, in_prose if has_tools else (), trust, has_tools)


@lru_cache(maxsize=256)
def _build_scope(
    named: tuple[Dialect, ...], in_prose: tuple[Dialect, ...], trust: Trust, has_tools: bool
) -> Scope:
    others = tuple(dialect for dialect in ALL_DIALECTS if dialect not in named)
    if trust == "strict":
        marked = tuple(dialect for dialect in others if dialect.evidence == "marker")
        return Scope(named, marked, is_strict=True)
    if trust == "lenient" and has_tools:
        in_prose += tuple(dialect for dialect in others if dialect.name in _PROSE_DIALECTS)
    return Scope(named, others, in_prose)


# Sets of literals.


class MarkerSet:
    """Literals that are searched for all at once; `marker_set` builds it.

    `base` adds literals whose pattern is compiled already: that of all dialects takes milliseconds
    to compile, and each request has names of its own to search for.
    """

    __slots__ = ("_first", "_longest", "_prefixes", "parts", "pattern")

    def __init__(self, literals: Iterable[str], base: MarkerSet | None = None) -> None:
        words = sorted(set(literals))
        self._prefixes = frozenset(word[:size] for word in words for size in range(1, len(word)))
        self._longest = max(map(len, words), default=0)
        self._first = re.compile(_alternation_pattern(sorted({word[:1] for word in words})))
        self.pattern = re.compile(_alternation_pattern(words) if words else r"(?!)")
        """Matches the literals without those of `base`."""
        self.parts: tuple[MarkerSet, ...] = (self, base) if base else (self,)

    def search(self, text: str, at: int) -> re.Match[str] | None:
        """Return the first match from `at` on, and the longest there."""
        return first_match(part.pattern.search(text, at) for part in self.parts)

    def match(self, text: str, at: int) -> re.Match[str] | None:
        """Return the longest match that begins at `at`."""
        return first_match(part.pattern.match(text, at) for part in self.parts)

    def may_continue(self, text: str, at: int) -> bool:
        """Return True if `text[at:]` is the beginning of a longer literal."""
        size = len(text) - at
        return any(size < part._longest and text[at:] in part._prefixes for part in self.parts)

    def cannot_begin_in(self, text: str) -> bool:
        """Return True if no character of `text` begins a literal."""
        return all(part._first.search(text) is None for part in self.parts)

    def settled_end(self, text: str, at: int) -> int:
        """Return the position in `text[at:]` where a literal may have begun; by default the end."""
        return min(part._own_settled_end(text, at) for part in self.parts)

    def _own_settled_end(self, text: str, at: int) -> int:
        for begun in self._first.finditer(text, max(at, len(text) - self._longest + 1)):
            if text[begun.start() :] in self._prefixes:
                return begun.start()
        return len(text)


def first_match(matches: Iterable[re.Match[str] | None]) -> re.Match[str] | None:
    """Return the match that begins first, and the longest of those."""
    found = [match for match in matches if match]
    return min(found, key=lambda match: (match.start(), -match.end()), default=None)


@lru_cache(maxsize=1024)
def marker_set(literals: tuple[str, ...]) -> MarkerSet:
    return MarkerSet(literals)


def _alternation_pattern(words: list[str]) -> str:
    """Return a pattern for any of the words; it begins with plain letters, for a fast search."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[0], []).append(word[1:])
    return "|".join(re.escape(letter) + _trie_pattern(rest) for letter, rest in groups.items())


def _trie_pattern(words: list[str]) -> str:
    """Return a pattern for any of the words, longest first; it fails at the first wrong letter."""
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


# Markers and their tables.


class Marker(Struct, frozen=True, eq=False):
    """Everything that a literal may mean."""

    forms: tuple[CallForm, ...] = ()
    """It begins a call in one of these forms."""
    framed_dialects: tuple[Dialect, ...] = ()
    """It begins the header of a message in these dialects."""
    position: OneOf["", "line", "word", "bracket"] = ""
    """Where the literal is a marker. "": anywhere. "line", "word": at the beginning of one.
    "bracket", "word": not in a URL, nor in code that only mentions it."""
    reasoning_closer: str = ""
    """It opens reasoning, which ends with this."""
    reasoning_openers: tuple[str, ...] = ()
    """It ends reasoning, which these open; "" if only the prompt opens it."""
    turn: OneOf["", "answer", "other", "result"] = ""
    """It begins the final answer, another role's turn, or what can only follow a call, such as a
    result: calls after it are text. "result" applies only after a call of the same reply."""
    closes_call: bool = False
    """It ends a call, or a value in one."""
    is_control_token: bool = False
    """It is never text."""
    is_trailing_token: bool = False
    """It is not text if nothing follows it."""
    begins_citation_tag: bool = False
    """It begins a tag around cited text, which is not text itself."""
    message_to_user: MessageToUser | None = None
    """It begins this message."""
    inert_closer: str = ""
    """It opens a span that ends with this and holds no calls."""
    result_closer: str = ""
    """It opens a span that ends with this, and that only a tool can have written."""


class MarkerTable(Struct, frozen=True, eq=False):
    """The markers of some dialects."""

    scope: Scope
    markers: dict[str, Marker]
    literals: MarkerSet
    bare_forms: tuple[CallForm, ...]
    """Forms that are accepted only if the whole message consists of them."""
    initial_tokens: dict[str, MessageToUser | None]
    """Literals to drop at the very beginning, in case the prompt has begun the message, and the
    message that each of them begins."""
    headless_dialects: tuple[Dialect, ...]
    """Dialects whose first header may lack its beginning, for the same reason."""
    call_openers: tuple[str, ...]
    """Literals that end reasoning which is not closed."""
    reasoning_closers: tuple[str, ...]
    """Literals that end reasoning which the prompt has opened."""
    control_tokens: tuple[str, ...]
    trailing_tokens: tuple[str, ...]


@lru_cache(maxsize=256)
def marker_table_for(scope: Scope, tools: tuple[str, ...] | None) -> MarkerTable:
    """Return the markers of a scope, with the names of tools that are markers."""
    shared = _build_shared_table(scope, tools is not None)
    forms: dict[str, list[CallForm]] = {}
    for dialect in (*scope.named, *scope.in_prose):
        spelled = _spell_names(tools or (), in_prose=dialect not in scope.named)
        for form in dialect.forms:
            for opener in _find_name_openers(form, spelled):
                forms.setdefault(opener, []).append(form)
    if not forms:
        return shared
    own = {opener: _marker_for_forms(found) for opener, found in forms.items()}
    for opener, marker in own.items():
        # The same text may be a marker by itself, or begin with one.
        prefixes = (opener[:size] for size in range(1, len(opener) + 1))
        known = (shared.markers[text] for text in prefixes if text in shared.markers)
        also = tuple(form for shorter in known for form in shorter.forms)
        own[opener] = structs.replace(marker, forms=(*marker.forms, *also))
    markers = {**shared.markers, **own}
    return structs.replace(shared, literals=MarkerSet(own, shared.literals), markers=markers)


@lru_cache(maxsize=64)
def without_position_rules(table: MarkerTable) -> MarkerTable:
    """Return a table whose markers are recognized at any position, also inside spans without
    calls."""
    markers = {
        text: structs.replace(marker, position="", inert_closer="", result_closer="")
        for text, marker in table.markers.items()
    }
    return structs.replace(table, markers=markers)


@lru_cache(maxsize=64)
def _build_shared_table(scope: Scope, has_tools: bool) -> MarkerTable:
    """Build the part of a table that does not depend on the names of the tools."""
    named, others = scope.named, scope.others
    forms, bare = _collect_forms(scope, has_tools)
    markers = _build_markers(scope, forms)
    brackets = {
        opener for dialect in named for form in dialect.forms for opener in _opening_brackets(form)
    }
    return MarkerTable(
        scope=scope,
        markers=markers,
        literals=MarkerSet(markers),
        bare_forms=_deduplicate_forms(
            form
            for form in bare
            if (
                form.opener not in forms
                if form.opener
                else not brackets.intersection(_opening_brackets(form))
            )
        ),
        initial_tokens={
            text: _find_message_to_user(dialect, text)
            for dialect in named
            for text in dialect.initial_tokens
        },
        headless_dialects=_put_tool_frames_first(
            d for d in (*named, *others) if d.message_frame and d.message_frame.first_opener
        ),
        call_openers=tuple(
            text for text, marker in markers.items() if marker.forms and len(text) > 3
        ),
        reasoning_closers=_find_reasoning_closers(named, others),
        control_tokens=tuple(text for text, marker in markers.items() if marker.is_control_token),
        trailing_tokens=tuple(text for text, marker in markers.items() if marker.is_trailing_token),
    )


def _find_message_to_user(dialect: Dialect, token: str) -> MessageToUser | None:
    """Return the message that a token begins, which may be the rest of a longer one."""
    is_opener = any(opener.endswith(token) for opener, _ in dialect.answer_spans)
    return dialect.message_to_user if is_opener else None


def _find_reasoning_closers(
    named: tuple[Dialect, ...], others: tuple[Dialect, ...]
) -> tuple[str, ...]:
    """Return the literals that may end reasoning; none if headers tell reasoning from text."""
    if named and all(dialect.message_frame for dialect in named) and not others:
        return ()
    tags = (closer for dialect in (*named, *others) for _, closer in dialect.reasoning_tags)
    return tuple(dict.fromkeys((*tags, *(closer for _, closer in COMMON_REASONING_TAGS))))


# The forms of a table.


def _collect_forms(
    scope: Scope, has_tools: bool
) -> tuple[dict[str, list[CallForm]], list[CallForm]]:
    """Return the forms by their openers, and the forms that must be a whole message."""
    forms: dict[str, list[CallForm]] = {}
    bare: list[CallForm] = []
    for dialect in (*scope.named, *scope.in_prose):
        for form in dialect.forms:
            for opener in _find_literal_openers(form):
                forms.setdefault(opener, []).append(form)
    for dialect in scope.others:
        for form in dialect.forms:
            is_marked = dialect.evidence == "marker" or _CONTROL_TOKEN.match(form.opener)
            if is_marked and form.opener and form.opener != "<":
                forms.setdefault(form.opener, []).append(form)
            elif scope.is_strict or dialect.evidence == "prose":
                continue
            elif has_tools or not _begins_with_name(form):
                bare.append(form)
    if scope.is_strict and not scope.named:
        forms = {opener: _prefer_closed_forms(found) for opener, found in forms.items()}
    return forms, bare


def _prefer_closed_forms(forms: list[CallForm]) -> list[CallForm]:
    """Drop a form without a closer if another dialect has the same form with one."""
    closed = {(form.header, _body_kind(form)) for form in forms if form.closer}
    return [form for form in forms if form.closer or (form.header, _body_kind(form)) not in closed]


def _deduplicate_forms(forms: Iterable[CallForm]) -> tuple[CallForm, ...]:
    """Keep one of the forms that are read alike: many dialects differ only in how they write."""
    found: dict[object, CallForm] = {}
    for form in forms:
        found.setdefault((form.opener, form.header, _body_kind(form)), form)
    return tuple(found.values())


def _body_kind(form: CallForm) -> str:
    return "json" if form.body in JSON_SLOTS else form.body


def _begins_with_name(form: CallForm) -> bool:
    """Return True if the form begins with a name: if no tools are declared, any word may be one."""
    return not form.opener and (bool(form.header) or form.body in {"single", "statements"})


def _find_literal_openers(form: CallForm) -> tuple[str, ...]:
    """Return the literals at which a form may begin, whatever the tools."""
    return (form.opener,) if form.opener and form.opener != "<" else _opening_brackets(form)


def _opening_brackets(form: CallForm) -> tuple[str, ...]:
    """Return the brackets at which a form without markers may begin."""
    return () if form.opener or form.header else _BRACKETS_BY_BODY.get(form.body, ())


def _find_name_openers(form: CallForm, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the literals at which a form may begin that begins with the name of a tool."""
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


def _spell_names(names: tuple[str, ...], *, in_prose: bool) -> tuple[str, ...]:
    """Return the spellings of names that are markers; in prose, all spellings that models use."""
    if not in_prose:
        return names
    spelled = [spelling for name in names for spelling in (name, *spelling_variants(name))]
    return tuple(dict.fromkeys((*spelled, *(f"{p}{s}" for p in NAME_PREFIXES for s in spelled))))


# The meaning of each marker.


def _build_markers(scope: Scope, forms: dict[str, list[CallForm]]) -> dict[str, Marker]:
    longest_first = sorted(forms, key=len, reverse=True)
    # A marker that begins with another one may mean what the other one means.
    markers = {
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
        _add_reasoning(dialect, markers)
        _add_tokens(dialect, markers, is_named=dialect in scope.named)
    _add_messages_to_user(scope, markers)
    for literal in OTHER_TURN_OPENERS:
        _add_turn_opener(markers, literal, "other")
    for literal in (*RESULT_OPENERS, *NEXT_REPLY_OPENERS):
        _add_turn_opener(markers, literal, "result")
    for literal, marker in markers.items():
        shorter = [other for other in markers if literal.startswith(other)]
        frames = dict.fromkeys(
            dialect for other in shorter for dialect in markers[other].framed_dialects
        )
        markers[literal] = structs.replace(marker, framed_dialects=_put_tool_frames_first(frames))
    return markers


def _marker_for_forms(forms: list[CallForm]) -> Marker:
    first = forms[0]
    position = ""
    begins_with_name = not first.opener and bool(first.header)
    if begins_with_name or first.dialect.line_start_only or first.opener.startswith("````"):
        position = "line"
    elif not first.opener and first.body in CODE_SLOTS:
        position = "word"
    elif _opening_brackets(first):
        position = "bracket"
    # A bare program fits anything, so it is tried last.
    return Marker(tuple(sorted(forms, key=lambda form: form.body == "code")), position=position)


def _put_tool_frames_first(dialects: Iterable[Dialect]) -> tuple[Dialect, ...]:
    """Sort dialects whose headers look alike: headers that can name a tool come first."""
    return tuple(
        sorted(dialects, key=lambda d: not (d.message_frame and d.message_frame.tool_pattern))
    )


def _add_reasoning(dialect: Dialect, markers: dict[str, Marker]) -> None:
    for opener, closer in (*dialect.reasoning_tags, *COMMON_REASONING_TAGS):
        if opener:
            _add_meaning(markers, opener, reasoning_closer=closer)
        if closer not in dialect.control_tokens:
            known = markers.get(closer, Marker())
            openers = tuple(dict.fromkeys((*known.reasoning_openers, opener)))
            markers[closer] = structs.replace(known, reasoning_openers=openers)


def _add_tokens(dialect: Dialect, markers: dict[str, Marker], *, is_named: bool) -> None:
    position = "line" if dialect.line_start_only else ""
    for opener, closer in dialect.inert_spans:
        _add_meaning(markers, opener, inert_closer=closer)
    for opener, closer in dialect.result_spans:
        _add_meaning(markers, opener, result_closer=closer, position=position)
    for token in dialect.trailing_tokens:
        _add_meaning(markers, token, is_trailing_token=True)
    for token in dialect.citation_tags if is_named else ():
        _add_meaning(markers, token, begins_citation_tag=True)
    for token in dialect.answer_openers if is_named else ():
        _add_meaning(markers, token, turn="answer")
    for token in dialect.closing_tags:
        _add_meaning(markers, token, closes_call=True)
    for token in dialect.control_tokens:
        if is_named or _CONTROL_TOKEN.match(token):
            _add_meaning(markers, token, is_control_token=True)
    for opener in dialect.message_frame.openers if dialect.message_frame else ():
        known = markers.get(opener, Marker())
        markers[opener] = structs.replace(known, framed_dialects=(*known.framed_dialects, dialect))


def _add_messages_to_user(scope: Scope, markers: dict[str, Marker]) -> None:
    """Add what begins a message to the user.

    If no dialect is expected, only tokens with a closer and without another meaning are added: any
    other token could hide the calls in the rest of the reply.
    """
    for dialect in scope.named or scope.others:
        for opener, closer in dialect.answer_spans:
            is_certain = closer and not any(opener in text and opener != text for text in markers)
            if opener in markers and (scope.named or is_certain):
                _add_meaning(markers, opener, message_to_user=dialect.message_to_user)


def _add_turn_opener(markers: dict[str, Marker], literal: str, turn: str) -> None:
    """Add what begins a turn. Its other meanings are those of the longest marker that it begins
    with."""
    tokens = [known for known in markers if literal.startswith(known)]
    known = markers[max(tokens, key=len)] if tokens else Marker()
    markers[literal] = structs.replace(known, turn=turn)


def _add_meaning(markers: dict[str, Marker], literal: str, **meaning: Any) -> None:
    """Add to the meaning of a literal; whatever was added first stays."""
    known = markers.get(literal, Marker())
    missing = {key: value for key, value in meaning.items() if not getattr(known, key)}
    markers[literal] = structs.replace(known, **missing)
