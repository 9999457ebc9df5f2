"""Adapts the roles of a conversation to strict chat templates.

    developer: a              ->   system: a
    system: a    system: b    ->   system: a b
    user: a      system: b    ->   user: a <system> b </system>
    user: a      user: b      ->   user: a b

Most servers pass a conversation to the model's own chat template. Many templates know no developer
role, accept one system message and only at the start, and require user and assistant to alternate;
they reject everything else. A later instruction keeps its place: moved to the start, it would apply
to earlier turns too, and the changed prefix would miss the server's prompt cache.
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
INSTRUCTION_WRAPPED = "An instruction inside the conversation was wrapped in a user message."
_STRICT_WIRE = "openai_chat"
"""The other wires have separate instructions, or reorder them themselves."""


def adapt_roles(
    messages: tuple[Message, ...], profile: ModelProfile
) -> tuple[tuple[Message, ...], tuple[Note, ...]]:
    """Return the conversation as the model accepts it, and a note for every change."""
    quirks, known = profile.quirks, profile.capabilities
    if profile.wire != _STRICT_WIRE or quirks.roles == "any":
        return messages, ()
    if _needs_no_change(messages, profile):
        return messages, ()
    losses = LossLog(profile.wire, "")
    has_system = known.system_role is not False
    turns = [
        *_merge_leading_instructions(messages, has_system, losses),
        *_wrap_later_instructions(messages, losses),
    ]
    if quirks.roles == "alternating" or known.alternation or not has_system:
        turns = list(merge_roles(turns, losses))
    if quirks.after_results:
        turns = list(_insert_after_results(turns, quirks.after_results, losses))
    notes = losses.notes()
    return (tuple(turns), notes) if notes else (messages, ())


def _needs_no_change(messages: tuple[Message, ...], profile: ModelProfile) -> bool:
    """Return True for at most one system message followed by alternating roles."""
    if profile.capabilities.system_role is False or profile.quirks.after_results:
        return False
    roles = [message.role for message in messages]
    if roles[:1] == ["system"]:
        del roles[0]
    return not INSTRUCTION_ROLES.intersection(roles) and all(map(ne, roles, roles[1:]))


def count_leading_instructions(messages: Sequence[Message]) -> int:
    """Return the number of instructions that a conversation begins with."""
    roles = (
        index for index, message in enumerate(messages) if message.role not in INSTRUCTION_ROLES
    )
    return next(roles, len(messages))


def wrap_instruction(message: Message) -> Message:
    """Return an instruction as a user message in `<system>` tags."""
    wrapped = (Text("<system>"), *message.parts, Text("</system>"))
    return Message("user", tuple(join_texts(wrapped, "\n")), message.extra)


def merge_roles(messages: Iterable[Message], losses: LossLog | None = None) -> Iterator[Message]:
    """Merge consecutive messages of one speaker. Results stay separate."""
    for (role, _), run in groupby(messages, _speaker_of):
        turns = list(run)
        if role == "tool" or len(turns) == 1:
            yield from turns
            continue
        if losses:
            losses.change("Consecutive messages of one role were merged.", "$.messages")
        yield _merge_messages(role, turns)


def join_texts(parts: Iterable[Part], between: str = "\n\n") -> Iterator[Part]:
    """Join neighbouring texts. A text with extra fields stays separate."""
    for is_plain, run in groupby(parts, _is_plain_text):
        if is_plain:
            texts = (part.text for part in run if isinstance(part, Text) and part.text)
            if text := between.join(texts):
                yield Text(text)
        else:
            yield from run


def _merge_leading_instructions(
    messages: tuple[Message, ...], has_system: bool, losses: LossLog
) -> Iterator[Message]:
    start = messages[: count_leading_instructions(messages)]
    for index, message in enumerate(start):
        if message.role == "developer":
            losses.change(
                "A developer message was sent as a system message.", f"$.messages[{index}]"
            )
    if len(start) > 1:
        losses.change("The instructions at the start were merged into one message.", "$.messages")
    if start and not has_system:
        losses.change("The instructions were sent as the first user message.", "$.messages")
    role = "system" if has_system else "user"
    if len(start) == 1:
        yield structs.replace(start[0], role=role)
    elif start:
        yield _merge_messages(role, start)


def _wrap_later_instructions(messages: tuple[Message, ...], losses: LossLog) -> Iterator[Message]:
    count = count_leading_instructions(messages)
    for index, message in enumerate(messages[count:], count):
        if message.role not in INSTRUCTION_ROLES:
            yield message
            continue
        losses.change(INSTRUCTION_WRAPPED, f"$.messages[{index}]")
        yield wrap_instruction(message)


def _insert_after_results(turns: list[Message], words: str, losses: LossLog) -> Iterator[Message]:
    """Insert an assistant message between results and the user's next message."""
    yield from turns[:1]
    for before, turn in pairwise(turns):
        if before.role == "tool" and turn.role == "user":
            what = f"The assistant message {words!r} was inserted after results."
            losses.change(what, "$.messages")
            yield Message("assistant", (Text(words),))
        yield turn


def _merge_messages(role: Role, turns: Sequence[Message]) -> Message:
    parts = (part for turn in turns for part in turn.parts)
    extra = {key: value for turn in turns for key, value in turn.extra.items()}
    return Message(role, tuple(join_texts(parts)), extra)


def _speaker_of(message: Message) -> tuple[Role, object]:
    """Return the role, and the name that tells several users apart."""
    return message.role, message.extra.get("name")


def _is_plain_text(part: Part) -> bool:
    return isinstance(part, Text) and all(key.startswith(PRIVATE) for key in part.extra)
