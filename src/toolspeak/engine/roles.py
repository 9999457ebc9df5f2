"""Who speaks when: a conversation as strict chat templates take it.

    developer: a              ->   system: a
    system: a    system: b    ->   system: a b
    user: a      system: b    ->   user: a <system> b </system>
    user: a      user: b      ->   user: a b

Most servers hand a conversation to the model's own template. That knows no developer, takes one
system message and only as the first, and may want user and assistant to take turns: whatever else
it gets, it refuses. An instruction keeps its place. At the start of the conversation it would be
obeyed from there on, and every turn would begin with another prompt than the last, which no server
has cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import ne

from msgspec import structs

from ..types import Message, Note, Part, Role, Text
from ..wires.encoding import LossLog
from ..wires.fields import PRIVATE
from .plan import ModelProfile

INSTRUCTION_ROLES: frozenset[Role] = frozenset({"system", "developer"})
INSTRUCTION_WRAPPED = (
    "instructions within the conversation are marked, and stand in the user's turn"
)
_STRICT = "openai_chat"
"""Other wires have a place of their own for instructions, or put them in order themselves."""


def adapt_roles(
    messages: tuple[Message, ...], target: ModelProfile
) -> tuple[tuple[Message, ...], tuple[Note, ...]]:
    """The conversation as the target takes it, and what was changed for that."""
    quirks, known = target.quirks, target.capabilities
    if target.wire != _STRICT or quirks.roles == "any":
        return messages, ()
    if _is_plain_chat(messages, target):
        return messages, ()
    unsaid = LossLog(target.wire, "")
    has_system = known.system_role is not False
    turns = [*_at_the_start(messages, has_system, unsaid), *_after_it(messages, unsaid)]
    if quirks.roles == "alternating" or known.alternation or not has_system:
        turns = list(merge_roles(turns, unsaid))
    if quirks.after_results:
        turns = list(_answered(turns, quirks.after_results, unsaid))
    notes = unsaid.notes()
    return (tuple(turns), notes) if notes else (messages, ())


def _is_plain_chat(messages: tuple[Message, ...], target: ModelProfile) -> bool:
    """Whether nothing can be wrong, as a rule: one system message at most, and then two sides that
    take turns."""
    if target.capabilities.system_role is False or target.quirks.after_results:
        return False
    roles = [message.role for message in messages]
    if roles[:1] == ["system"]:
        del roles[0]
    return not INSTRUCTION_ROLES.intersection(roles) and all(map(ne, roles, roles[1:]))


def count_leading_instructions(messages: Sequence[Message]) -> int:
    """How many instructions a conversation begins with."""
    roles = (
        index for index, message in enumerate(messages) if message.role not in INSTRUCTION_ROLES
    )
    return next(roles, len(messages))


def wrap_instruction(message: Message) -> Message:
    """An instruction in the midst of a conversation, marked as one in the user's turn."""
    marked = (Text("<system>"), *message.parts, Text("</system>"))
    return Message("user", tuple(join_texts(marked, "\n")), message.extra)


def merge_roles(messages: Iterable[Message], unsaid: LossLog | None = None) -> Iterator[Message]:
    """The same messages, with neighbours of one speaker joined. Results stay apart."""
    for (role, _), run in groupby(messages, _speaker):
        turns = list(run)
        if role == "tool" or len(turns) == 1:
            yield from turns
            continue
        if unsaid:
            unsaid.change("what one side says in several messages is one", "$.messages")
        yield _one(role, turns)


def join_texts(parts: Iterable[Part], between: str = "\n\n") -> Iterator[Part]:
    """The same parts, with neighbouring texts joined. A text of which more is said stays apart."""
    for is_plain, run in groupby(parts, _is_plain):
        if is_plain:
            texts = (part.text for part in run if isinstance(part, Text) and part.text)
            if text := between.join(texts):
                yield Text(text)
        else:
            yield from run


def _at_the_start(
    messages: tuple[Message, ...], has_system: bool, unsaid: LossLog
) -> Iterator[Message]:
    start = messages[: count_leading_instructions(messages)]
    for index, message in enumerate(start):
        if message.role == "developer":
            unsaid.change("a developer's message is the system's", f"$.messages[{index}]")
    if len(start) > 1:
        unsaid.change("the instructions at the start are one message", "$.messages")
    if start and not has_system:
        unsaid.change("instructions are what the user says first", "$.messages")
    role = "system" if has_system else "user"
    if len(start) == 1:
        yield structs.replace(start[0], role=role)
    elif start:
        yield _one(role, start)


def _after_it(messages: tuple[Message, ...], unsaid: LossLog) -> Iterator[Message]:
    count = count_leading_instructions(messages)
    for index, message in enumerate(messages[count:], count):
        if message.role not in INSTRUCTION_ROLES:
            yield message
            continue
        unsaid.change(INSTRUCTION_WRAPPED, f"$.messages[{index}]")
        yield wrap_instruction(message)


def _answered(turns: list[Message], words: str, unsaid: LossLog) -> Iterator[Message]:
    """The same turns, with the assistant's word between results and what the user says next."""
    yield from turns[:1]
    for before, turn in pairwise(turns):
        if before.role == "tool" and turn.role == "user":
            what = f"the assistant says {words!r} between results and the user's next message"
            unsaid.change(what, "$.messages")
            yield Message("assistant", (Text(words),))
        yield turn


def _one(role: Role, turns: Sequence[Message]) -> Message:
    parts = (part for turn in turns for part in turn.parts)
    extra = {key: value for turn in turns for key, value in turn.extra.items()}
    return Message(role, tuple(join_texts(parts)), extra)


def _speaker(message: Message) -> tuple[Role, object]:
    """People who go by names are told apart."""
    return message.role, message.extra.get("name")


def _is_plain(part: Part) -> bool:
    return isinstance(part, Text) and all(key.startswith(PRIVATE) for key in part.extra)
