"""Long texts: the text that is held back, the time it takes, and secrets of any length."""

from __future__ import annotations

import time

import pytest

from tests.security.scrubbing.support import scrub_in_chunks
from toolspeak.security.scrubbing import MAX_HELD, Scrubber, scrub

LONG = "k7Q" + "abcdefghij0123456789" * 500
KEY = "\n".join(["MIIEowIBAAKCAQEA04up8hoqzS1uABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"] * 200)
LONG_SECRETS = {
    "json": ('{{"api_key": "{}", "a": 1}}', LONG),
    "json in json": ('{{"t": "{{\\"api_key\\": \\"{}\\", \\"a\\": 1}}"}}', LONG),
    "escapes": ('{{"password": "{}", "a": 1}}', "k7Qv" + '\\"\\\\\\u00e9' * 1_000),
    "environment": ("TOKEN={}\nA=1", LONG),
    "query": ("https://h/?token={}&a=1", LONG),
    "header": ("Authorization: Bearer {}\nA: 1", LONG),
    "shape": ("x ghp_{} y", LONG),
    "cookie": ("Cookie: a=b; sid={}\nA: 1", LONG),
    "key": ("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\nA", KEY),
    "key in json": (
        '{{"k": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n", "a": 1}}',
        KEY.replace("\n", "\\n"),
    ),
}


@pytest.mark.parametrize("form", LONG_SECRETS)
@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_scrub_secret_of_any_length_replaces_all_of_it(form: str, size: int) -> None:
    before, secret = LONG_SECRETS[form]
    text, expected = before.format(secret), before.format("@*[REDACTED]")
    begin = "ghp_" if form == "shape" else secret[:4]
    expected = expected.replace("ghp_@", "ghp_").replace("@", begin)
    scrubber = Scrubber()
    output: list[str] = []
    for at in range(0, len(text), size):
        output.append(scrubber.feed(text[at : at + size]))
        assert scrubber.held_length <= MAX_HELD
    assert "".join(output) + scrubber.finish() == expected


def test_feed_prose_holds_only_the_last_word() -> None:
    scrubber = Scrubber()
    text = "The quick brown fox jumps over the lazy dog and goes home. "
    assert scrubber.feed(text * 3) == text * 3
    assert scrubber.feed("A word") == "A "
    assert scrubber.finish() == "word"


def test_feed_line_with_a_secret_waits_for_its_end() -> None:
    scrubber = Scrubber()
    assert scrubber.feed("x\nDB_PASSWORD=hunter2") == "x\n"
    assert scrubber.feed("hunter2") == ""
    assert scrubber.feed("\n") == "DB_PASSWORD=hunt*[REDACTED]\n"


UNITS = [
    "a",
    "=",
    '"',
    "'",
    "\\",
    "-",
    "\n",
    " ",
    "aB3-",
    "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\nAbc: d >> ",
    f"-----BEGIN PRIVATE KEY-----\n{'A' * 20}\n+\n",
    "password=",
    "password: ",
    '"password":"',
    'password="',
    "password='a",
    "token ",
    "token=a,b",
    "token=a;b&",
    "token=\\",
    "token=]",
    "password={",
    'token":["',
    '"password","value"',
    "password:\n",
    "password: a #",
    "Cookie: a=b; ",
    "Cookie: a=bbbbbbbbb;",
    "Cookie: a=bbbbbbbbb1; ",
    '"cookies":[{"value":"abcdef123456"},',
    'digest response="',
    '"value":"1aaaaaaaa",',
    "[a]\npassword = abcdefgh\n",
    "token='\"a",
    "token='\\\\",
    "a_",
    "\x1b[33m",
    "token\x1b[0m",
    "redis-cli -a aaaa curl -u b:c ",
    "Authorization: Basic ",
    "bearer ",
    "sk-",
    "eyJ",
    "eyJhbGciOiJIUzI1NiJ9.",
    "ghp_",
    "://a:",
    "https://a:b@",
    "curl -u ",
    "mysql -p",
    "<password>",
    "<password ",
    "login a password ",
    '\\"password\\":\\"',
    "&quot;password&quot;:&quot;",
    "AWS4-HMAC-SHA256 ",
    "api key ",
    "a.b:c/",
    "QUJDREVGRw/+",
    "-----BEGIN PRIVATE KEY-----\n1: Ab1 ",
    f"-----BEGIN PRIVATE KEY-----\n1: {'Ab1+' * 12}\n2: ab\n",
    "data:\n  a: QUJDREVGRw==\n",
    '"data":{"a":"QUJDREVGRw==",',
    "kind: Secret\ndata:\n",
    "identified by ",
    "create a:*:b:",
    "a:5432:b:c:d",
    "a:$6$",
    "a:b@tcp(",
    "secret a1\n",
    '"secret":{"a":1,',
    "password=a.b_1",
]


def measure_seconds(text: str) -> float:
    start = time.process_time()
    scrub(text)
    return time.process_time() - start


@pytest.mark.parametrize("before", ["", 'api_key="', "password: "])
@pytest.mark.parametrize("unit", UNITS)
def test_scrub_repeated_text_takes_linear_time(unit: str, before: str) -> None:
    """Four times the text takes about four times as long, and at most 30 µs per character."""
    text = unit * (5_000 // len(unit))

    def is_linear() -> bool:
        four = measure_seconds(before + text * 4)
        return four < 20_000 * 30e-6 and four < 9 * measure_seconds(before + text) + 0.02

    assert any(is_linear() for _ in range(3))


@pytest.mark.parametrize(
    "value", ["a", "aB", "a_", "a.", "a-b ", "1", "1a", "/a", "a:", "$", "é", "A1/"]
)
@pytest.mark.parametrize("form", ["TOKEN={}!", '"secret": "{}!"', "password: {}!", "Bearer {}!"])
def test_scrub_long_value_takes_bounded_time(form: str, value: str) -> None:
    """A regular expression that backtracks exponentially would never end here."""
    for size in (10, 100, 3_000):
        assert measure_seconds(form.format(value * size)) < 0.5


def test_scrub_empty_text_returns_nothing() -> None:
    assert scrub("").text == ""
    assert Scrubber().finish() == ""
    assert scrub_in_chunks("a", 1) == "a"
