"""Problems and warnings of configurations: their messages and paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.config.config_files import BOX, QWEN, load_invalid, load_text
from toolspeak.config.document import ConfigError
from toolspeak.config.loading import load_config, read_config
from toolspeak.config.settings import Config


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("[server]\nport = 'x'", ["Expected `int`, got `str`", "`$.server.port`"]),
        ("[server]\nport = 70000", ["<= 65535", "`$.server.port`"]),
        ("[server]\nport = true", ["Expected `int`, got `bool`"]),
        (
            "[server]\nprot = 1",
            ["not a known setting; did you mean port?", "`$.server.prot`"],
        ),
        ("[servre]\nport = 1", ["did you mean server?", "`$.servre`"]),
        ("server = 1", ["Expected `object`, got `int`", "`$.server`"]),
        ("[server]\nhost = ''", ["length >= 1", "`$.server.host`"]),
        ("[server]\nworkers = 0", [">= 1", "`$.server.workers`"]),
        ("[limits]\nbody_bytes = -1", [">= 1", "`$.limits.body_bytes`"]),
        ("[server]\nkeys = ['a', 1]", ["Expected `str`, got `int`", "`$.server.keys[1]`"]),
        ("[server]\nkeys = ['']", ["the key is empty", "`$.server.keys[0]`"]),
        ("[server]\nkeys = ['a b']", ["cannot be sent in a header", "`$.server.keys[0]`"]),
        ("[server]\nhost = '0.0.0.0'", ["need keys", "TOOLSPEAK_KEYS", "`$.server.keys`"]),
        ("[server]\nhost = '::'", ["need keys"]),
        ("[server]\nhost = 'example.org'", ["need keys"]),
        (
            "[server]\nallowed_hosts = ['http://a']",
            ["a host name", "`$.server.allowed_hosts[0]`"],
        ),
        (
            "[server]\nallowed_origins = ['a.org/x']",
            ["an origin", "`$.server.allowed_origins[0]`"],
        ),
        ("store = 'sqlite://x'", ["`store` must be `memory`, sqlite:PATH", "`$.store`"]),
        ("gguf = '${NOPE}'", ["the variable NOPE is not set", "`$.gguf`"]),
        ("gguf = '${'", ["Expected `${VARIABLE}`; write `$${`", "`$.gguf`"]),
        ("gguf = '${A:-${}'", ["Expected `${VARIABLE}`"]),
        ("[server]\nkeys = ['${NOPE}']", ["NOPE", "`$.server.keys[0]`"]),
        (
            "default = 'qwne'\n" + QWEN,
            ["which is not configured; did you mean qwen?", "`$.default`"],
        ),
        ("default = 'qwen'", ["the model 'qwen', which is not configured; write `upstream/model`"]),
        ("[models.m]\nupstream = 'groq'", ['add [upstreams.groq] with provider = "groq"']),
        (
            "[models.m]\nupstream = 'x'",
            ["which is not in [upstreams]; none is configured"],
        ),
        ("[models.m]\nupstream = ''", ["length >= 1", "`$.models.m.upstream`"]),
        ("[upstreams.a]", ["needs a `provider`, or a `wire` and a `base_url`", "`$.upstreams.a`"]),
        ("[upstreams.a]\nwire = 'ollama'", ["needs a `provider`"]),
        ("[upstreams.a]\nprovider = 'custom'", ["`base_url` is missing", "`$.upstreams.a`"]),
        ("[upstreams.a]\nprovider = 'opnai'", ["did you mean openai?", "`$.upstreams.a.provider`"]),
        ("[upstreams.a]\nprovider = 'zzz'", ["`toolspeak providers` lists the known ones"]),
        (
            "[upstreams.a]\nwire = 'openai_caht'\nbase_url = 'http://h'",
            [
                "is not a known API; did you mean openai_chat",
                "`$.upstreams.a.wire`",
            ],
        ),
        (BOX + "retries = -1", [">= 0", "`$.upstreams.box.retries`"]),
        (BOX + "idle_timeout = 0", ["> 0.0", "`$.upstreams.box.idle_timeout`"]),
        (BOX + "idle_timeout = nan", ["> 0.0"]),
        (BOX + "idle_timeout = inf", ["<= 86400.0"]),
        (BOX + "headers = { A = 1 }", ["got `int`", "`$.upstreams.box.headers.A`"]),
        (BOX + 'headers = { A = "x\\ny" }', ["line breaks", "`$.upstreams.box.headers.A`"]),
        (BOX + "fallbacks = ['bxo']", ["did you mean box?", "`$.upstreams.box.fallbacks[0]`"]),
        (BOX + "fallbacks = ['box']", ["the upstream itself", "`$.upstreams.box.fallbacks[0]`"]),
        ("[models.m]\nmodel = 'x'", ["`upstream` is missing", "`$.models.m`"]),
        ("[models]\nm = 'x'", ["Expected `object`, got `str`", "`$.models.m`"]),
        ("[models.m]\nupstream = 'bxo'\n" + BOX, ["did you mean box?", "`$.models.m.upstream`"]),
        ("[models.m]\nupsteam = 'box'\n" + BOX, ["did you mean upstream?"]),
        (QWEN + "dialect = 'hermse'", ["did you mean hermes", "`$.models.qwen.dialect`"]),
        (QWEN + "tools = 'promt'", ["did you mean prompt?", "`$.models.qwen.tools`"]),
        (QWEN + "trust = 'x'", ["known names: strict, standard, lenient", "`$.models.qwen.trust`"]),
        (QWEN + "compact_tools = 'often'", ["known names: auto", "`$.models.qwen.compact_tools`"]),
        (QWEN + "context_window = 0", [">= 1", "`$.models.qwen.context_window`"]),
        (QWEN + "model = '*'", ["but the name 'qwen' does not", "`$.models.qwen`"]),
        ('[models."a*b*"]\nupstream = "box"\n' + BOX, ["only one `*`", '`$.models["a*b*"]`']),
        ('[models.""]\nupstream = "box"\n' + BOX, ["must not be empty"]),
        (QWEN + "[aliases]\na = 'qwn'", ["did you mean qwen?", "`$.aliases.a`"]),
        (QWEN + "[aliases]\nqwen = 'qwen'", ["both an alias and a model", "`$.aliases.qwen`"]),
        (QWEN + "[aliases]\na = 'b'\nb = 'a'", ["a -> b -> a", "`$.aliases.a`"]),
        (QWEN + "[aliases]\na = 'a'", ["the alias `a` refers to the model 'a'", "`$.aliases.a`"]),
        (QWEN + "[aliases]\n'*' = 'b'\nb = 'c'", ["* -> b -> *", '`$.aliases["*"]`']),
        (
            QWEN + "[aliases]\n'g-*' = 'g-4'",
            ["the alias `g-*` refers to the model 'g-4'", '`$.aliases["g-*"]`'],
        ),
        ("a = 1\nb = = 2", ["a.toml, line 2: not valid TOML"]),
        ("a = 1\n\nb = 'x", ["a.toml, line 3: not valid TOML"]),
    ],
)
def test_read_config_with_one_problem_reports_only_that(text: str, fragments: list[str]) -> None:
    error = load_invalid(text)
    for fragment in fragments:
        assert fragment in str(error)
    assert len(error.problems) == 1


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("https://example.org/v1", None),
        ("http://user:secret@example.org", None),
        ("http://[::1]:8000/v1", None),
        ("ftp://example.org", "expected a URL"),
        ("example.org/v1", "expected a URL"),
        ("http://", "expected a URL"),
        ("http://h:99999", "expected a URL"),
        ("http://h:x", "expected a URL"),
        ("http://[::1", "expected a URL"),
        ("http://a b/v1", "expected a URL"),
        ("http://user:secret@h/v1?api_key=secret", "has a query"),
        ("http://h/v1#x", "has a query"),
        ("http://127.0.0.1:7878/v1", "own address"),
        ("http://LOCALHOST:7878", "own address"),
        ("http://[::1]:7878", "own address"),
        ("http://0.0.0.0:7878/v1", "own address"),
        ("http://127.0.0.1:7879/v1", None),
        ("http://example.org:7878/v1", None),
    ],
)
def test_base_url_of_each_form_is_accepted_or_rejected(address: str, problem: str | None) -> None:
    text = f"[upstreams.a]\nwire = 'openai_chat'\nbase_url = '{address}'\n"
    if problem is None:
        assert load_text(text).config.upstreams["a"].base_url == address
    else:
        error = load_invalid(text)
        assert problem in str(error)
        assert "- at `$.upstreams.a.base_url`" in str(error)
        assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("port = 80", "http://localhost/v1"),
        ("port = 443", "https://localhost/v1"),
        ("allowed_hosts = ['gateway.org']", "http://Gateway.org:7878"),
        ("host = '0.0.0.0'\nkeys = ['k']", "http://localhost:7878"),
        ("host = '10.0.0.1'\nkeys = ['k']", "http://10.0.0.1:7878"),
        ("port = 11434", ""),
    ],
)
def test_base_url_of_the_gateway_itself_is_rejected(server: str, address: str) -> None:
    line = f"base_url = '{address}'\n" if address else ""
    assert "own address" in str(load_invalid(f"[server]\n{server}\n" + BOX + line))


def test_read_config_with_many_problems_reports_all() -> None:
    text = """
        default = "nothing"
        [server]
        port = "x"
        keys = ["${UNSET}${TOO}"]
        [upstreams.a]
        provider = "opnai"
        retries = "many"
        [models.m]
        upstream = "b"
        [models.n]
        dialect = 3
    """
    paths = [re.findall(r"at `(.*)`$", problem)[0] for problem in load_invalid(text).problems]
    assert sorted(paths) == [
        *("$.default", "$.models.m.upstream", "$.models.n", "$.models.n.dialect"),
        *("$.server.keys[0]", "$.server.keys[0]", "$.server.port"),
        *("$.upstreams.a.provider", "$.upstreams.a.retries"),
    ]


def test_load_config_of_unreadable_file_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read: No such file"):
        load_config(Path("nowhere.toml"), {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path, {})
    Path("a.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"a\.toml is not UTF-8 text"):
        load_config(Path("a.toml"), {})
    Path("a.toml").write_bytes(b"\xef\xbb\xbfdefault = ''")
    assert load_config(Path("a.toml"), {}) == Config()


@pytest.mark.parametrize(
    ("environ", "fragments"),
    [
        ({"TOOLSPEAK_PORT": "x"}, ["TOOLSPEAK_PORT: Expected `int`, got `str`"]),
        ({"TOOLSPEAK_PORT": "70000"}, ["TOOLSPEAK_PORT: Expected `int` <= 65535"]),
        ({"TOOLSPEAK_KEYS": "a,,b"}, ["TOOLSPEAK_KEYS: the key is empty"]),
        (
            {"TOOLSPEAK_HOST": "0.0.0.0"},
            ["the settings: other machines can reach", "need keys"],
        ),
        ({"TOOLSPEAK_DEFAULT": "x"}, ["TOOLSPEAK_DEFAULT: `default` refers to the model 'x'"]),
        ({"TOOLSPEAK_CONFIG": "no.toml"}, ["no.toml cannot be read"]),
    ],
)
def test_environment_with_problem_names_the_variable(
    environ: dict[str, str], fragments: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, environ)
    assert all(fragment in str(caught.value) for fragment in fragments)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"--port": 99999}, "--port: Expected `int` <= 65535"),
        ({"--port": -1}, "--port: Expected `int` >= 0"),
        ({"--workers": 0}, "--workers: Expected `int` >= 1"),
        ({"--gguf": "${A}.gguf"}, "--gguf: cannot read ${A}.gguf (No such file or directory)"),
    ],
    ids=str,
)
def test_option_with_problem_is_named_instead_of_its_variable(
    options: dict[str, Any], problem: str
) -> None:
    environ = {"TOOLSPEAK_PORT": "7000", "TOOLSPEAK_WORKERS": "2"}
    with pytest.raises(ConfigError) as caught:
        read_config(None, environ, options)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("no.gguf", None, "cannot read no.gguf (No such file or directory); give the path"),
        (
            "zip.gguf",
            b"PK\x03\x04",
            "zip.gguf is not a GGUF file; give one that llama.cpp can load",
        ),
        ("empty.gguf", b"", "empty.gguf is not a GGUF file"),
        (".", None, ". is not a GGUF file"),
        ("\\u0000", None, "cannot read"),
    ],
    ids=str,
)
def test_model_file_that_cannot_be_loaded_is_a_problem_if_it_is_used(
    name: str, content: bytes | None, problem: str
) -> None:
    if content is not None:
        Path(name).write_bytes(content)
    for text in (f'gguf = "{name}"', f'embedded = true\ngguf = "{name}"'):
        [line] = load_invalid(text).problems
        assert line.startswith(f"a.toml: {problem}")
        assert line.endswith("at `$.gguf`")
    assert load_text(f'embedded = false\ngguf = "{name}"').config.gguf


@pytest.mark.parametrize(
    ("text", "environ", "warning"),
    [
        (
            "",
            {"TOOLSPEAK_PROT": "1"},
            "the variable TOOLSPEAK_PROT is not known and is ignored; did you mean",
        ),
        ("[upstreams.a]\nprovider = 'openai'", {}, "OpenAI needs a key: set `key` or OPENAI_API"),
        (BOX + "base_url = 'http://h:1/v1'", {}, "remove `/v1` from `base_url`"),
        (
            "[upstreams.a]\nwire='openai_chat'\nbase_url='http://h/v1/chat/completions'",
            {},
            "remove `/chat/completions` from `base_url`",
        ),
    ],
)
def test_unlikely_settings_give_a_warning(text: str, environ: dict[str, str], warning: str) -> None:
    assert any(warning in text for text in load_text(text, environ).warnings)


def test_known_variables_give_no_warning() -> None:
    known = ("TOOLSPEAK_CORPUS", "TOOLSPEAK_CONFIG", "TOOLSPEAK_EMBEDDED_KEY")
    assert load_text("", dict.fromkeys(known, "x")).warnings == ()
