"""A vault restores its own secrets, from memory only."""

from __future__ import annotations

import copy
import json
import pickle
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolspeak.security.scrubbing import Scrubber, Vault, scrub

SECRET = "sk-1234567890abcdef"
PLACEHOLDER = re.compile(r"\*\[REDACTED:[0-9a-f]{16}\]")


def scrub_into(text: str, vault: Vault, source: str = "read_file .env") -> str:
    return scrub(text, vault=vault, source=source).text


def test_restore_placeholder_returns_the_secret() -> None:
    vault = Vault()
    text = scrub_into(f"API_KEY={SECRET}", vault)
    assert re.fullmatch(r"API_KEY=sk-1\*\[REDACTED:[0-9a-f]{16}\]", text)
    placeholder = text.partition("=")[2]
    arguments = {
        "headers": {"Authorization": f"Bearer {placeholder}"},
        "list": [1, placeholder],
        "n": None,
    }
    assert vault.restore(arguments) == {
        "headers": {"Authorization": f"Bearer {SECRET}"},
        "list": [1, SECRET],
        "n": None,
    }
    paths = [use.path for use in vault.find_uses(arguments)]
    assert paths == [
        "$.headers.Authorization",
        "$.list[1]",
    ]
    # A model may leave out the characters before the placeholder.
    assert vault.restore(placeholder.removeprefix("sk-1")) == SECRET
    assert vault.restore(f"{placeholder}{placeholder}") == SECRET * 2


def test_restore_keeps_equal_text_before_a_placeholder() -> None:
    vault = Vault()
    for text in ("mysql -ppw12 db", "https://u:u@h", 'x https://aa:aa@h {"password": "«aaaaa12"}'):
        assert vault.restore(scrub_into(text, vault)) == text


def test_question_names_secret_source_and_destination() -> None:
    vault = Vault()
    text = scrub_into(f"API_KEY={SECRET}", vault)
    (use,) = vault.find_uses({"url": text})
    assert use.question("http_request") == (
        'Give the api-key "API_KEY" from "read_file .env" to `http_request`'
        ' in its argument "$.url"?'
    )


def test_restore_leaves_placeholders_of_another_vault() -> None:
    vault, other = Vault(), Vault()
    scrub_into(f"API_KEY={SECRET}", vault)
    foreign = scrub_into(f"API_KEY={SECRET}", other)
    for text in (foreign, "sk-1*[REDACTED]", "*[REDACTED:0123456789abcdef]", "*[REDACTED:zz]", ""):
        assert vault.find_uses(text) == []
        assert vault.restore(text) == text


def test_same_secret_has_one_placeholder() -> None:
    vault = Vault()
    first = scrub_into(f"API_KEY={SECRET}", vault)
    assert scrub_into(f"API_KEY={SECRET}", vault) == first
    assert scrub_into(f"API_KEY={SECRET}", vault, source="elsewhere") != first


def test_secret_cannot_be_shown_or_serialised() -> None:
    vault = Vault()
    text = scrub_into(f"API_KEY={SECRET}", vault)
    (use,) = vault.find_uses(text)
    for thing in (vault, use, use.secret):
        assert SECRET not in repr(thing)
        assert SECRET not in str(thing)
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)
        with pytest.raises(TypeError):
            json.dumps(thing)
        with pytest.raises(TypeError):
            msgspec.to_builtins(thing)


def test_restore_unescapes_the_secret() -> None:
    vault = Vault()
    value = 'p"ss\\wörd\n1234'
    for depth in range(3):
        text: str = json.dumps({"password": value})
        for _ in range(depth):
            text = json.dumps({"t": text})
        (placeholder,) = PLACEHOLDER.findall(scrub_into(text, vault))
        assert vault.restore(placeholder) == value


def test_restore_long_secret_up_to_the_limit() -> None:
    vault = Vault()
    body = "\n".join(["MIIEowIBAAKCAQEA04up8hoqzS1uABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"] * 30)
    text = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    scrubbed = scrub_into(text, vault)
    assert len(scrubbed) < 120
    assert vault.restore(scrubbed) == text
    token = "k7" + "ab12" * 2_000
    assert vault.restore(scrub_into(f"TOKEN={token}", vault)) == f"TOKEN={token}"
    endless = "k7" + "ab12" * 100_000
    scrubbed = scrub_into(f"TOKEN={endless}", vault)
    assert vault.restore(scrubbed) == scrubbed


@settings(max_examples=60, deadline=None)
@given(st.text("abcXYZ0189", min_size=10).map("q7Xv{}".format), st.integers(1, 60))
def test_restore_scrubbed_stream_returns_the_text(secret: str, size: int) -> None:
    text = f'{{"a": "x", "api_key": "{secret}"}}\nTOKEN={secret}\nhttps://u:{secret}@h/\n'
    vault = Vault()
    scrubber = Scrubber(vault=vault)
    pieces = [scrubber.feed(text[at : at + size]) for at in range(0, len(text), size)]
    out = "".join(pieces) + scrubber.finish()
    assert secret not in out
    assert vault.restore(out) == text


def test_restore_arguments_without_secrets_changes_nothing() -> None:
    vault = Vault()
    arguments: Any = {"a": (1, 2.5, True, None), "b": {"c": []}}
    assert vault.restore(arguments) == {"a": [1, 2.5, True, None], "b": {"c": []}}
    assert vault.find_uses(arguments) == []
