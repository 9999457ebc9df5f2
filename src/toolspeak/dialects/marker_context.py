"""Decides by the text around a marker whether it begins a call, or is only shown or mentioned.

Use `<tool_call>` like this:     inline code, fences, HTML for code: an example
For example:                     the text announces an example
None of the functions fits.      a call in prose after it is an example, too
def get_weather(                 code that defines or discusses the tool: a mention
Models write <think> before      a reasoning tag within a line: a mention
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from ..types import Trust
from .code_spans import CodeSpanTracker
from .markers import Marker
from .template import EXAMPLE_CONCLUSIONS, EXAMPLE_INTRODUCTIONS, CallForm, MessageToUser
from .text_buffer import Reading, TextBuffer

_TAIL_LENGTH = 400
"""How many characters before a marker are examined."""
_DEFINES = re.compile(r"\b(?:def|class|fn|func|function)\s+\Z")
_NOT_RUN = re.compile(
    r"(?:#|//)[^\n]*\Z"
    r"|\n[ \t]*(?:async |if|elif|else|for|while|try|except|finally|with|def|class|return)\b[^\n]*\Z"
    r"|[:{][ \t]*\n(?:[ \t]+[^\n]*\n|\n)*+[ \t]+[^\n]*\Z"
)
"""Code in a fence before a call: a comment, or a block that may never run."""
_IN_BLOCK = re.compile(
    r"(?:\A|\n)[ \t]*(?:async |if|elif|else|for|while|try|except|finally|with|def|class)\b[^\n]*:"
    r"[ \t]*\n(?:[ \t]+[^\n]*\n|\n)*+[ \t]+\Z"
)
"""Code outside a fence: an indented line below one that opens a block."""
_CALL_BEGINNING = r"""[A-Za-z_]\w*\((?:[^()\n"']|"[^"\n]*"|'[^'\n]*')*"""
_IN_QUOTED_ARGUMENT = re.compile(rf"""{_CALL_BEGINNING}["'][^()\n]*\Z""")
_IN_ARGUMENT = re.compile(rf"""{_CALL_BEGINNING}(?:["'][^()\n]*|=\s*)\Z""")
"""The beginning of a call in code: a marker after it is in one of its arguments."""
_INTRODUCTIONS, _CONCLUSIONS = (
    "|".join(map(re.escape, words)) for words in (EXAMPLE_INTRODUCTIONS, EXAMPLE_CONCLUSIONS)
)
_RECITED = re.compile(rf"(?:{_INTRODUCTIONS})(?!.*(?:{_CONCLUSIONS}))", re.S)
"""The words with which our own prompt introduces examples, without those that conclude them."""
_ANNOUNCED = re.compile(
    r"(?:\b(?:examples?|instance|e\.g\.|beispiele?|exemples?|ejemplos?|esempi[oi]?|exemplos?|voorbeeld"
    r"|примеру?|например)|例如|比如|举例|例えば|例|예시|예를 들어)[ \t]*[:：]\s*\Z",
    re.I,
)
"""Words that announce an example: `For example:`."""
_SHOWN = re.compile(
    r"\b(?:samples?|formats?|syntax|templates?|schemas?|usage|looks?[ \t]+like)\b[^\n]*[:：]\s*\Z",
    re.I,
)
"""Words before a block that shows the form of a call, and may even so be a call."""
_TOOLS = r"(?:functions?|tools?|APIs?)"
_CANNOT = (
    r"\b(?:(?:is|are|was|were|does|do|may|might|would|seem)(?:n['’]t| not)|cannot|can['’]t|can not)"
)
_DENIAL = re.compile(
    rf"\bnone of (?:the|these|those|my) (?:\w{{1,20}} ){{0,2}}{_TOOLS}\b"
    rf"|\b(?:no|(?:don['’]t|do not) (?:see|have) (?:an?|any)) (?:\w{{1,20}} ){{0,2}}{_TOOLS}"
    r" (?:\w{1,20} )?(?:that|to|for|which|available|provided|listed|related)\b"
    rf"|{_CANNOT} (?:\w{{1,20}} )?(?:use|call) (?:any of )?(?:the|this|that|these|those)"
    rf" (?:\w{{1,20}} )?{_TOOLS}\b"
    rf"|(?P<verdict>{_CANNOT}) (?:\w{{1,20}} ){{0,3}}?"
    r"(?:suitable|suited|designed|intended|applicable|relevant|appropriate|fit|meant|provide|support"
    r"|be used)\b"
    r"|(?P<goes_on>\b(?:I(?:['’]ll| will)|let me|let['’]s) (?:\w{1,20} )?"
    r"(?:use|call|try|run|list|read|search|check|look|fetch|get)\b)",
    re.I,
)
"""Words that say that no tool fits the task, or, after them, that one is used all the same."""
_ABOUT_TOOLS = re.compile(
    rf"\b(?:(?:the|this|that|these|those) (?:[^\s.!?]{{1,40}} ){{0,2}}{_TOOLS}|it|they)\b"
    r"(?:[^.!?\n]|\.\w)*+\Z",
    re.I,
)
"""The beginning of a sentence about the tools."""
_NEGATION = re.compile(r"(?<=n)(?:one of|ot |o |['’]t )", re.I)
_MAX_SUBJECT_LENGTH = 140
_MAX_DENIAL_LENGTH, _DENIAL_REACH = 300, 800
"""The most characters in such words, and how far from a call they may be."""
_URL = re.compile(r"[A-Za-z]://[^\s\"'<>()]*\Z")
"""A URL that the marker is part of."""
_BRACKETS = ("{", "[")
_MAX_MARK_LENGTH = 64
_HTML = {
    "!--": re.compile("<!--|-->"),
    "code": re.compile("</?code", re.I),
    "pre": re.compile("</?pre", re.I),
}
"""Opening and closing tags of elements that show code, and of comments."""
_CLOSING_PREFIXES = ("</", "--")
_SENTENCE_END = re.compile(r"""(?:(?<!\b\w)\.|[!?…。！？])["'”’»)\]*_]*\Z""")
"""The end of a sentence, but not of an abbreviation such as `e.g.`."""
_OPENED = re.compile(
    r"""(?:\A|[\s(\[{=,:])(?:[rbf]{0,2}(?:"[^"]*+|'[^']*+)|[*_~]++)\Z"""
    r"|[(\[{][^()\[\]{}]*+\Z|[“„‘«「『《][^“„‘«「『《”’»」』》]*+\Z|[<|/\\=&,;、，；]\Z"
)
"""A quotation, brackets or emphasis that the line has opened, or a sign that more must follow."""
_CONTINUES = re.compile(r"[.,;:!?)\]}|/\\=&+–—、。，；：？！」』”’»]|-\w|'s\b|</")
"""The rest of a sentence, directly after a tag that it mentions."""
_ANSWER_BEGINNINGS = '#*<{["'
"""Besides capital letters and digits, what may begin an answer after a tag and a space."""
_LOOKAHEAD = 8
"""How many characters after a closing tag are examined."""


class MarkerContext:
    """Follows the text that was written; judges a marker by the text before and after it."""

    def __init__(self, buffer: TextBuffer, trust: Trust, search: str = "") -> None:
        self._buffer = buffer
        self._trust = trust
        self._is_exhaustive = search == "everywhere"
        self._reads_data_fences = search == "near-calls"
        """Fences around data, such as JSON, do not count as code."""
        self._code = CodeSpanTracker()
        self._pair_searches: dict[tuple[str, tuple[str, ...]], _PairSearch] = {}
        """The last search for each kind of backticks and closers."""
        self._tail = ""
        """The last characters of the text."""
        self._denial = DenialFinder()
        self._example_end = -1
        """Offset in the whole reply where the last announced example ended."""
        self.message_to_user: MessageToUser | None = None
        """The current message, if it is addressed to the user."""

    def append(self, text: str) -> None:
        """Follow text that was written."""
        if len(text) < _TAIL_LENGTH:
            self._tail = (self._tail + text)[-_TAIL_LENGTH:]
        else:
            self._tail = text[-_TAIL_LENGTH:]
        if self._trust == "lenient" or self._reads_data_fences:
            self._denial.append(text)
        self._code.append(text)

    def begin_message(self, message: MessageToUser | None) -> None:
        """Remember the message that begins here, if it is addressed to the user. If calls are
        wanted wherever they are, it makes no difference."""
        self.message_to_user = None if self._is_exhaustive else message

    def end_message(self, literal: str) -> None:
        """Follow a token that may end the current message."""
        if self.message_to_user and literal in self.message_to_user.closers:
            self.message_to_user = None

    def is_end_missing_before(self, marker: Marker) -> bool:
        """Return True if the marker begins a call of the message's own dialect, before which a
        token should have ended the message."""
        message = self.message_to_user
        return message is not None and bool(
            message.closers and message.select_own_forms(marker.forms)
        )

    def end_message_before(self, marker: Marker) -> None:
        """End a message to the user before the calls that end the reply, unless its end follows
        them."""
        message = self.message_to_user
        if message:
            own = {closer for form in marker.forms for closer in form.all_closers}
            closers = tuple(closer for closer in message.closers if closer not in own)
            if not closers or not self._buffer.text.rstrip().endswith(closers):
                self.message_to_user = None

    def select_forms(self, marker: Marker) -> tuple[CallForm, ...]:
        """Return the forms of calls that may begin at a marker here."""
        message = self.message_to_user
        if message is None:
            return marker.forms
        return () if message.closers else message.select_own_forms(marker.forms)

    def _is_in_message_to_user(self, marker: Marker) -> bool:
        message = self.message_to_user
        if message is None or marker.framed_dialects:
            return False
        if message.dialect and not marker.forms:
            return False
        return not self.select_forms(marker)

    def is_mention(self, literal: str) -> bool:
        """Return True if the marker is part of a URL or of code that does not run."""
        if _URL.search(self._tail):
            return True
        if literal in _BRACKETS:
            return _IN_ARGUMENT.search(self._tail) is not None
        if _DEFINES.search(self._tail) or _IN_QUOTED_ARGUMENT.search(self._tail):
            return True
        not_run = _NOT_RUN if self._code.fence else _IN_BLOCK
        return not_run.search(self._tail) is not None

    def find_example_reason(self, marker: Marker) -> Reading[str]:
        """Return why a call that begins here is only an example, or "".

        It is in a message to the user, in inline code, in a fence or in HTML for code, or is
        recited from our prompt. A fence that is the whole reply was handled before.
        """
        if self._is_in_message_to_user(marker):
            return "is in a message to the user"
        if self._trust == "lenient":
            return ""
        if _RECITED.search(self._tail):
            return "is copied from the prompt"
        return "is inside code" if (yield from self.is_code(marker)) else ""

    def is_announced_example(self) -> bool:
        """Return True if words announce an example here, or it directly follows another one."""
        if self._trust == "lenient":
            return False
        tail, distance = self._tail, self._buffer.offset - self._example_end
        is_near = self._example_end >= 0 and distance <= len(tail)
        if is_near and not tail[len(tail) - distance :].strip():
            return True
        is_shown = self._reads_data_fences and _SHOWN.search(tail) is not None
        return is_shown or _ANNOUNCED.search(tail) is not None

    def is_after_denial(self) -> bool:
        """Return True if the text says that no tool fits: a call in prose is then an example."""
        return not self._is_exhaustive and self._denial.is_near()

    def end_example(self, length: int = 0) -> None:
        """Record that an announced example ends `length` characters from here."""
        self._example_end = self._buffer.offset + length

    def is_line_blank(self) -> bool:
        """Return True if only white space precedes on the line."""
        return not self._line().strip()

    def _line(self) -> str:
        return self._tail[self._tail.rfind("\n") + 1 :]

    def ends_reasoning(
        self, literal: str, marker: Marker, *, begins_section: bool
    ) -> Reading[bool]:
        """Return True if a closing tag plausibly ends reasoning that nothing in the text opened,
        and is not only mentioned."""
        line = "" if begins_section else self._line()
        last = line.rfind(literal)
        if any(opener and line.rfind(opener) > last for opener in marker.reasoning_openers):
            return False
        after = yield from self._buffer.look_ahead(self._read_following(literal))
        return after is not None and is_at_end_of_thought(line, after)

    def _read_following(self, literal: str) -> Reading[str]:
        """Read a literal; return the text after it, as much as decides what it is."""
        buffer = self._buffer
        buffer.position += len(literal)
        while True:
            following = buffer.text[buffer.position : buffer.position + _LOOKAHEAD]
            if len(following) == _LOOKAHEAD or "\n" in following or buffer.is_final:
                return following
            yield

    def is_code(self, marker: Marker) -> Reading[bool]:
        """Return True if the marker is inside code.

        Backticks that are not paired before their paragraph ends do not open inline code.
        """
        code = self._code
        is_inside = code.is_inside()
        if self._reads_data_fences and code.is_in_data_fence():
            return False
        if is_inside and (ticks := code.undecided_backticks()):
            is_inside = yield from self._is_paired(ticks, marker)
            code.settle_backticks(paired=is_inside)
        if not is_inside and code.html:
            is_inside = code.html_is_closed or (yield from self._is_html_closed(code.html))
            code.settle_html(closed=is_inside)
        return is_inside

    def _is_html_closed(self, element: str) -> Reading[bool]:
        """Return True if an open element is closed before another one like it is opened."""
        tags = self._buffer.read_through(_HTML[element], len(element) + 2)
        found = yield from self._buffer.look_ahead(tags)
        return found is None or found.startswith(_CLOSING_PREFIXES)

    def _is_paired(self, ticks: str, marker: Marker) -> Reading[bool]:
        """Return True if the backticks come again before the paragraph ends."""
        found = yield from self._buffer.look_ahead(self._find_pair(ticks, _closers_of(marker)))
        return found is None or found == ticks

    def _find_pair(self, ticks: str, closers: tuple[str, ...]) -> Reading[str]:
        """Read to the backticks or to the end of the paragraph, and return which it was.

        Line breaks before one of the `closers` do not end the paragraph. Text that an earlier
        search has read is not read again, since a paragraph may have many unpaired backticks.
        """
        buffer, marks = self._buffer, _paragraph_marks(closers)
        known = self._pair_searches.get((ticks, closers))
        is_past_closer = not closers
        last_closer = -1
        # A search that begins inside a run of backticks finds a shorter run than an earlier search.
        is_in_run = self._tail.endswith("`") and buffer.text.startswith("`", buffer.position)
        while True:
            if known and not is_in_run and known.is_valid_at(buffer.offset, is_past_closer):
                return known.found
            is_in_run = False
            found = yield from buffer.read_through(marks, _MAX_MARK_LENGTH)
            start = buffer.offset - len(found)
            if found in ("", ticks) or (is_past_closer and found[0] == "\n"):
                break
            if found in closers:
                is_past_closer, last_closer = True, start
        self._pair_searches[ticks, closers] = _PairSearch(found, start, last_closer)
        return found


class DenialFinder:
    """Finds the last words in a text that say that no tool fits the task."""

    def __init__(self) -> None:
        self._unsearched = ""
        """The end of the text: what was not searched, and as much before it as words may take."""
        self._distance = _DENIAL_REACH
        """How far back the last denial is."""

    def append(self, text: str) -> None:
        self._unsearched = (self._unsearched + text[-_DENIAL_REACH:])[-_DENIAL_REACH:]
        self._distance = min(self._distance + len(text), _DENIAL_REACH)

    def is_near(self) -> bool:
        """Return True if a denial is near the end of the text."""
        text = self._unsearched
        if self._distance < _DENIAL_REACH or _NEGATION.search(text):
            for found in _DENIAL.finditer(text):
                if found["goes_on"]:
                    self._distance = _DENIAL_REACH
                elif not found["verdict"] or _is_about_tools(text, found.start()):
                    self._distance = len(text) - found.end()
        self._unsearched = text[-_MAX_DENIAL_LENGTH:]
        return self._distance < _DENIAL_REACH


def _is_about_tools(text: str, at: int) -> bool:
    """Return True if the sentence that goes on at a place of the text is about the tools."""
    return _ABOUT_TOOLS.search(text[max(at - _MAX_SUBJECT_LENGTH, 0) : at]) is not None


class _PairSearch(Struct, frozen=True):
    """The result of an earlier search for paired backticks."""

    found: str
    offset: int
    """Offset in the whole reply of what was found, or of the end of the text."""
    last_closer: int
    """Offset of the last closer before it."""

    def is_valid_at(self, offset: int, is_past_closer: bool) -> bool:
        """Return True if a search that has come to this offset has the same result."""
        if offset > self.offset:
            return False
        is_line_break = self.found[:1] == "\n"
        return not is_line_break or is_past_closer or offset <= self.last_closer


def _closers_of(marker: Marker) -> tuple[str, ...]:
    """Return the markers that may end what a marker begins."""
    closers = [closer for form in marker.forms for closer in form.all_closers]
    frames = [dialect.message_frame for dialect in marker.framed_dialects]
    closers += [end for frame in frames if frame for end in frame.message_ends]
    closers += [marker.reasoning_closer, marker.result_closer]
    usable = (text for text in closers if text and "`" not in text and "$" not in text)
    return tuple(dict.fromkeys(usable))


@lru_cache(maxsize=256)
def _paragraph_marks(closers: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for backticks, the end of a paragraph, and the closers."""
    return re.compile("|".join(["`+", r"\n[ \t\r]{0,16}\n", *map(re.escape, closers)]))


def is_at_end_of_thought(line: str, after: str) -> bool:
    """Return True if a closing tag after this line and before this text may end a thought.

    A tag ends a thought on a line of its own, at the end of a line, or where an answer follows. A
    tag is only mentioned if a sentence quotes it, has a space before it, or goes on after it.
    """
    before = line.rstrip()
    if _OPENED.search(line) or (before != line and before and not _SENTENCE_END.search(before)):
        return False
    rest = after.lstrip(" \t")
    if rest[:1] in ("", "\r", "\n"):
        return True
    if rest != after:
        return rest[0].isupper() or rest[0].isdigit() or rest[0] in _ANSWER_BEGINNINGS
    # Some languages have no space around a tag that a sentence mentions.
    has_no_spaces = _is_caseless(before[-1:]) and _is_caseless(rest[0])
    return not has_no_spaces and not _CONTINUES.match(rest)


def _is_caseless(letter: str) -> bool:
    return letter.isalpha() and letter.upper() == letter.lower()
