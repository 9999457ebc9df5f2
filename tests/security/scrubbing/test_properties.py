"""Properties of every text: its structure is kept, secrets are removed, chunks do not matter."""

from __future__ import annotations

import json
import string
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.security.scrubbing.support import load_cases, scrub_in_chunks
from toolspeak.security.scrubbing import MAX_HELD, Scrubber, scrub
from toolspeak.testing import split_at, split_into_chunks

NAMES = (
    "password",
    "api_key",
    "apiKey",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "client_secret",
    "access-token",
    "DB_PASSWORD_PROD",
    "x-api-key",
    "credentials",
    "passphrase",
    "userKey",
)
secrets = st.text(string.ascii_letters + string.digits, min_size=14, max_size=60).map(
    lambda text: f"q7Xv{text}9k"
)
"""Random letters and digits, which need no quotes in any format."""
odd_secrets = st.text(
    st.characters(codec="utf-8", exclude_categories=["Z"], exclude_characters="<>{}*…%"),
    min_size=12,
    max_size=40,
).map(lambda text: f"q7Xv{text}9k")
names = st.sampled_from(NAMES)
words = st.text(
    string.ascii_letters + string.digits + " _-.,:;='\"\\/&?{}[]()<>$%@!\n\t«é😀", max_size=30
)
pieces = st.one_of(
    words,
    st.sampled_from([case.text for case in load_cases()]),
    st.sampled_from(
        [*NAMES, "=", ": ", '"', "'", "\\", '\\"', "\\n", "Bearer ", "://u:", "@h", "["]
    ),
)
texts = st.lists(pieces, max_size=8).map("".join)
fragments = st.lists(
    st.one_of(
        names,
        secrets,
        st.sampled_from(["'", "`", '"', "'", "`", "\\'", '\\"', "'''", '"""', "don't", "it's "]),
        st.sampled_from(["=", ": ", " = ", "':", " -p", ",", "[", "{", "\n", " ", "$(", "\\"]),
    ),
    max_size=8,
).map("".join)
"""Parts of commands and code, with quotes that are not closed."""
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | texts
    | fragments
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner | fragments, max_size=4)
        | st.dictionaries(st.one_of(names, st.text(max_size=8)), inner, max_size=4)
    ),
    max_leaves=8,
)


def get_structure(value: Any) -> Any:
    """Return a JSON value with `str` for each string."""
    if isinstance(value, dict):
        return {key: get_structure(item) for key, item in value.items()}
    if isinstance(value, list):
        return [get_structure(item) for item in value]
    return str if isinstance(value, str) else value


@settings(max_examples=300, deadline=None)
@given(documents, st.booleans(), st.sampled_from([None, 2]), st.integers(0, 2))
@example({"a": "password=", "b": [True, False, None]}, False, None, 0)
@example({"a": "token:", "b": 12345678, "c": "x"}, False, None, 0)
@example({"cmd": "token='abc12345", "ok": True, "n": "don't"}, False, None, 0)
@example([{"a": "TOKEN='"}, {"a": "abcdef1234567890"}, {"a": "'"}], False, None, 1)
def test_scrubbed_json_keeps_its_structure(
    value: Any, ascii_only: bool, indent: int | None, depth: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for _ in range(depth):
        text = json.dumps({"text": text}, ensure_ascii=ascii_only)
    out = json.loads(scrub(text).text)
    for _ in range(depth):
        out = json.loads(out["text"])
    assert get_structure(out) == get_structure(value)


@settings(max_examples=200, deadline=None)
@given(texts, st.lists(st.integers(0, 400), max_size=6))
def test_scrub_in_chunks_equals_scrub_whole(text: str, places: list[int]) -> None:
    scrubber = Scrubber()
    parts = split_at(text, (place for place in places if place < len(text)))
    output = "".join(map(scrubber.feed, parts)) + scrubber.finish()
    whole = scrub(text)
    assert output == whole.text
    assert tuple(scrubber.findings) == whole.findings
    assert scrub_in_chunks(text, 1) == whole.text


@settings(max_examples=150, deadline=None)
@given(texts)
def test_scrub_twice_equals_scrub_once(text: str) -> None:
    once = scrub(text).text
    assert scrub(once).text == once


SHAPES = (
    '{{"{name}": "{secret}"}}',
    "{{'{name}': '{secret}'}}",
    "{name}={secret}",
    "export {name}={secret}",
    "{name}: {secret}",
    '{name} = "{secret}"',
    "{name}: '{secret}'",
    "{name} = {secret}",
    "--{name} {secret}",
    "--{name}={secret}",
    "https://h/?{name}={secret}&x=1",
    "<{name}>{secret}</{name}>",
    '{{"log": "{{\\"{name}\\": \\"{secret}\\"}}"}}',
    "Server=h;{name}={secret};X=1",
    'f({name}="{secret}")',
    "Authorization: Bearer {secret}",
    "https://bob:{secret}@host/{name}",
    "Cookie: sid={secret}; a=b",
    "a: 1\n{name}: |\n  {secret}\nb: 2",
    '{{"name": "{name}", "value": "{secret}"}}',
    '{name}="{secret}"',
    '{{"{name}": ["{secret}", "{secret}"]}}',
    'x = {{"a": 1,\n "{name}":\n   "{secret}"}}',
)


@pytest.mark.parametrize("form", SHAPES)
@settings(max_examples=25, deadline=None)
@given(names, secrets, texts)
def test_scrub_any_form_removes_the_secret(form: str, name: str, secret: str, before: str) -> None:
    text = form.format(name=name, secret=secret)
    assert secret[4:] not in scrub(text).text
    assert secret[4:] not in scrub(f"some text before it\n{text}\nand after it").text


ON_A_LINE = (
    "ghp_{secret}{secret}",
    "https://bob:{secret}@host/x",
    "https://{secret}{secret}@host/x",
    "password={secret}",
    "API_KEY={secret}",
    '"client_secret": "{secret}"',
    "-H 'Authorization: Bearer {secret}'",
    "-H 'Cookie: a=b; sid={secret}'",
    "curl -s -u bob:{secret}",
    "redis-cli -h x -a {secret}",
    "mysql -u root -p{secret}",
    "sshpass -p {secret}",
    "--token {secret}",
    "eyJhbGciOiJIUzI1NiJ9.eyJ{secret}.{secret}",
    "https://h/?access_token={secret}",
    "<password>{secret}</password>",
    "curl",
    "Cookie:",
    "redis-cli",
    "mysql",
    "AWS4-HMAC-SHA256",
)
on_a_line = st.lists(st.tuples(st.sampled_from(ON_A_LINE), secrets), min_size=2, max_size=4)


@settings(max_examples=300, deadline=None)
@given(on_a_line, st.sampled_from([" ", "; ", ", ", " | ", " && "]), st.integers(1, 80))
def test_scrub_several_secrets_on_a_line_removes_all(
    parts: list[tuple[str, str]], glue: str, size: int
) -> None:
    text = glue.join(form.format(secret=secret) for form, secret in parts)
    out = scrub(text).text
    assert scrub_in_chunks(text, size) == out
    assert not [secret for form, secret in parts if "{" in form and secret[4:] in out]


@settings(max_examples=150, deadline=None)
@given(names, odd_secrets, st.booleans(), st.integers(0, 2))
def test_scrub_odd_secret_in_json_removes_it(
    name: str, secret: str, ascii_only: bool, depth: int
) -> None:
    value: Any = {name: secret, "other": ["public"]}
    text = json.dumps(value, ensure_ascii=ascii_only)
    for _ in range(depth):
        text = json.dumps({"text": text}, ensure_ascii=ascii_only)
    out = json.loads(scrub(text).text)
    for _ in range(depth):
        out = json.loads(out["text"])
    assert out == {name: f"{secret[:4]}*[REDACTED]", "other": ["public"]}


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(names, odd_secrets | st.integers() | st.booleans() | words, max_size=5))
def test_scrubbed_yaml_keeps_its_keys(value: dict[str, Any]) -> None:
    text = yaml.safe_dump(value, width=10**6)
    assert list(yaml.safe_load(scrub(text).text) or {}) == list(yaml.safe_load(text) or {})


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["password", "api_key", "secret", "other"]),
        st.one_of(odd_secrets.filter(str.isprintable), words, st.integers(-(2**60), 2**60)),
    )
)
def test_scrubbed_toml_keeps_its_structure(value: dict[str, Any]) -> None:
    text = "".join(
        f"{key} = {json.dumps(item, ensure_ascii=False)}\n" for key, item in value.items()
    )
    out = tomllib.loads(scrub(text).text)
    assert list(out) == list(value)
    assert {key: type(item) for key, item in out.items()} == {
        key: type(item) for key, item in value.items()
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(names, secrets), max_size=5))
def test_scrubbed_environment_keeps_its_names(settings: list[tuple[str, str]]) -> None:
    text = "".join(
        f"export {name.upper().replace('-', '_')}={secret}\n" for name, secret in settings
    )
    out = scrub(text).text.splitlines()
    assert [line.partition("=")[0] for line in out] == [
        line.partition("=")[0] for line in text.splitlines()
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(pieces, max_size=30), st.integers(1, 3000))
def test_feed_any_text_holds_back_a_bounded_length(parts: list[str], size: int) -> None:
    scrubber = Scrubber()
    text = "".join(parts) * 20
    for at in range(0, len(text), size):
        scrubber.feed(text[at : at + size])
        assert scrubber.held_length <= MAX_HELD


@settings(max_examples=200)
@given(st.one_of(texts, fragments), st.integers(1, 80))
def test_findings_of_any_text_are_the_replaced_parts(text: str, size: int) -> None:
    scrubber = Scrubber()
    output = "".join(map(scrubber.feed, split_into_chunks(text, size))) + scrubber.finish()
    end = 0
    for found in scrubber.findings:
        assert end <= found.offset < found.end <= len(text)
        end = found.end
    assert output.count("*[REDACTED]") == text.count("*[REDACTED]") + len(scrubber.findings)
    assert not scrubber.findings or output.startswith(text[: scrubber.findings[0].offset])
