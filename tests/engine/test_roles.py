"""Who speaks when, as the templates of each kind of server take it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.support import CALL, RESULT, build_request, prepare
from toolspeak import Capabilities, Image, Message, Text
from toolspeak.config.providers import PROVIDERS
from toolspeak.engine import ModelProfile
from toolspeak.engine.roles import INSTRUCTION_WRAPPED, adapt_roles
from toolspeak.types import Quirks, Role

DEVELOPER = "A developer message was sent as a system message."
ONE = "The instructions at the start were merged into one message."
JOINED = "Consecutive messages of one role were merged."
FIRST = "The instructions were sent as the first user message."

ROLES: dict[str, Role] = {
    "D": "developer",
    "S": "system",
    "U": "user",
    "A": "assistant",
    "T": "tool",
}


def talk(written: str) -> tuple[Message, ...]:
    """`S a | U b`: the system says a, the user b; `A call` is a call, `T` its result, and `{a}` an
    instruction that is marked."""
    return tuple(map(_message, filter(None, written.split(" | "))))


def _message(turn: str) -> Message:
    role, text = ROLES[turn[0]], turn[2:].replace("¶", "\n\n")
    text = text.replace("{", "<system>\n").replace("}", "\n</system>")
    if role == "tool":
        return Message(role, (RESULT,))
    return Message(role, (CALL,) if text == "call" else (Text(text),))


CASES: list[tuple[str, str, str, list[str]]] = [
    # OpenAI takes everything.
    ("any", "D a | U b | D c | U d | U e", "D a | U b | D c | U d | U e", []),
    # One system message, and that first.
    ("system-first", "S a | U b | A c | U d", "S a | U b | A c | U d", []),
    ("system-first", "D a | U b", "S a | U b", [DEVELOPER]),
    ("system-first", "S a | D b | S c | U d", "S a¶b¶c | U d", [DEVELOPER, ONE]),
    ("system-first", "S a | S b", "S a¶b", [ONE]),
    ("system-first", "U a | S b | U c", "U a | U {b} | U c", [INSTRUCTION_WRAPPED]),
    ("system-first", "U a | D b", "U a | U {b}", [INSTRUCTION_WRAPPED]),
    (
        "system-first",
        "U a | S b | A c | D d | U e",
        "U a | U {b} | A c | U {d} | U e",
        [f"{INSTRUCTION_WRAPPED} (2 places)"],
    ),
    ("system-first", "S a | U b | U c | A d | A e", "S a | U b | U c | A d | A e", []),
    # And then user and assistant in turns.
    ("alternating", "S a | U b | A c | U d", "S a | U b | A c | U d", []),
    ("alternating", "S a | U b | U c", "S a | U b¶c", [JOINED]),
    ("alternating", "U a | A b | A c", "U a | A b¶c", [JOINED]),
    ("alternating", "U a | S b | U c", "U a¶{b}¶c", [INSTRUCTION_WRAPPED, JOINED]),
    ("alternating", "U a | A b | S c | U d", "U a | A b | U {c}¶d", [INSTRUCTION_WRAPPED, JOINED]),
    ("alternating", "U a | A call | T | U b", "U a | A call | T | U b", []),
    (
        "alternating",
        "U a | A call | T | T | S b",
        "U a | A call | T | T | U {b}",
        [INSTRUCTION_WRAPPED],
    ),
    ("alternating", "", "", []),
]


@pytest.mark.parametrize(("roles", "given", "wanted", "notes"), CASES)
def test_roles_are_adapted_to_the_template(
    roles: Any, given: str, wanted: str, notes: list[str]
) -> None:
    target = ModelProfile(model="m", quirks=Quirks(roles=roles))
    messages, said = adapt_roles(talk(given), target)
    assert messages == talk(wanted)
    assert [note.message for note in said] == notes
    assert {note.code for note in said} <= {"converted"}
    assert adapt_roles(messages, target) == (messages, ())


@pytest.mark.parametrize(
    ("capabilities", "given", "wanted", "notes"),
    [
        (Capabilities(alternation=True), "U a | U b", "U a¶b", [JOINED]),
        (Capabilities(system_role=False), "S a | U b", "U a¶b", [FIRST, JOINED]),
        (Capabilities(system_role=False), "S a | D b", "U a¶b", [DEVELOPER, ONE, FIRST]),
        (Capabilities(system_role=True), "S a | U b", "S a | U b", []),
    ],
)
def test_roles_follow_the_model_capabilities(
    capabilities: Capabilities, given: str, wanted: str, notes: list[str]
) -> None:
    messages, said = adapt_roles(talk(given), ModelProfile(model="m", capabilities=capabilities))
    assert messages == talk(wanted)
    assert [note.message for note in said] == notes


def test_mistral_gets_an_assistant_message_after_results() -> None:
    target = ModelProfile(model="m", quirks=PROVIDERS["mistral"].quirks)
    messages, (note,) = adapt_roles(talk("U a | A call | T | U b | A c | U d"), target)
    assert messages == talk("U a | A call | T | A I have the results. | U b | A c | U d")
    assert "was inserted after results" in note.message


@pytest.mark.parametrize("wire", ["openai_responses", "anthropic", "ollama", "gemini"])
def test_roles_of_other_wires_are_unchanged(wire: str) -> None:
    messages = talk("D a | U b | S c | U d")
    assert adapt_roles(messages, ModelProfile(model="m", wire=wire)) == (messages, ())


def test_merged_messages_keep_names_images_and_extra_fields() -> None:
    """People with names, texts of which more is said, and pictures."""
    kept = Text("a", {"cache_control": {"type": "ephemeral"}})
    picture = Image(data="AA==")
    given = (
        Message("user", (kept, Text("b"))),
        Message("user", (picture, Text("c"))),
        Message("user", (Text("d"),), {"name": "ada"}),
    )
    target = ModelProfile(model="m", quirks=Quirks(roles="alternating"))
    messages, _ = adapt_roles(given, target)
    assert messages == (Message("user", (kept, Text("b"), picture, Text("c"))), given[2])


def test_only_openai_gets_developer_messages() -> None:
    known = {name for name, row in PROVIDERS.items() if row.quirks.roles == "any"}
    assert known == {"openai"}


def test_adapted_roles_are_sent_to_the_upstream() -> None:
    request = build_request(*talk("S a | D b | U c | A call | T | S d"))
    sent = prepare(request, mode="native")
    assert [
        (message["role"], message["content"]) for message in sent.outgoing.body["messages"]
    ] == [
        ("system", "a\n\nb"),
        ("user", "c"),
        ("assistant", None),
        ("tool", RESULT.content),
        ("user", "<system>\nd\n</system>"),
    ]
    assert "converted" in [note.code for note in sent.outgoing.notes]
    assert sent.request is request
