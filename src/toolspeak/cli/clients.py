"""The settings with which each client uses a gateway: one row of `clients.toml` per client.

build_launch(CLIENTS["claude"], GatewayAddress("http://127.0.0.1:7878", "qwen3")).shell_line
ANTHROPIC_BASE_URL=http://127.0.0.1:7878 ANTHROPIC_AUTH_TOKEN=none … claude
"""

from __future__ import annotations

import hashlib
import json
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

import msgspec
from msgspec import Struct, structs

DEFAULT_URL = "http://127.0.0.1:7878"
NO_KEY = "none"
"""For gateways without keys: most clients require one anyway."""
HIDDEN_KEY = "YOUR_KEY"
"""Printed instead of a key."""
_BYTES_PER_TOKEN = 4
_OUTPUT_SHARE = 4
"""A reply may take a quarter of the context."""
_COMPRESSION_SHARE = 0.7
_GEMINI_CONTEXT = 1_048_576
"""The context that Gemini CLI assumes for every model; only its share of that can be set."""


class GatewayAddress(Struct, frozen=True):
    """The values that fill the placeholders of `clients.toml`."""

    url: str
    model: str
    key: str = NO_KEY
    context: int | None = None
    """The model's context in tokens, if it is known."""

    def list_values(self) -> dict[str, str]:
        """Return the placeholders' values; those that are not known are empty."""
        context = self.context or 0
        numbers = {
            "context": context,
            "output": context // _OUTPUT_SHARE,
            "gemini_share": context * _COMPRESSION_SHARE / _GEMINI_CONTEXT,
        }
        values = {name: f"{number:.6g}" if context else "" for name, number in numbers.items()}
        return {"url": self.url, "model": self.model, "key": self.key, **values}


class Snippet(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that the user writes or types to connect a client."""

    text: str
    path: str = ""
    """The file for these lines; empty for a shell or a program."""
    language: str = "sh"
    title: str = ""


class RunSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that replace the user's file in `toolspeak run`."""

    env: dict[str, str] = {}
    args: tuple[str, ...] = ()
    home: str = ""
    text: str = ""
    files: dict[str, str] = {}


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of `clients.toml`, which describes the fields."""

    title: str
    wire: str
    install: str
    prompt_kilobytes: float | None = None
    program: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    overrides: dict[str, tuple[str, ...]] = {}
    file: Snippet | None = None
    run_settings: RunSettings | None = None
    code: Snippet | None = None

    @property
    def is_runnable(self) -> bool:
        """True if `toolspeak run` can start it without changing a file of the user's."""
        return bool(self.program) and (self.file is None or self.run_settings is not None)

    @property
    def has_folder(self) -> bool:
        """True if `toolspeak run` keeps files for it, apart from the user's own."""
        return self.run_settings is not None and bool(
            self.run_settings.home or self.run_settings.files
        )

    @property
    def prompt_tokens(self) -> int:
        """The approximate size of its first request before the user's text."""
        return round((self.prompt_kilobytes or 0) * 1000 / _BYTES_PER_TOKEN)


CLIENTS: Mapping[str, Client] = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("clients.toml").read_text("utf-8")), dict[str, Client]
)


class LaunchCommand(Struct, frozen=True):
    """A program to start."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """JSON files to create first, or to add to if they exist: the client may change them."""
    files: dict[str, str] = {}
    """Files to write first, readable only by their owner."""

    @property
    def shell_line(self) -> str:
        """The same as a line for a shell."""
        unset = [word for name in self.unset for word in ("-u", name)]
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        prefix = ["env", *unset] if unset else []
        settings = [
            f"test -e {shlex.quote(path)} || {_write_file_command(path, text)};"
            for path, text in self.settings.items()
        ]
        files = [f"{_write_file_command(path, text)};" for path, text in self.files.items()]
        return " ".join([*settings, *files, *prefix, *variables, *map(shlex.quote, self.argv)])


def _write_file_command(path: str, text: str) -> str:
    """Return a shell command that writes a file which only its owner can read."""
    file, folder = shlex.quote(path), shlex.quote(str(Path(path).parent))
    return f"(umask 077; mkdir -p {folder} && printf %s {shlex.quote(text)} > {file})"


def build_launch(
    client: Client, gateway: GatewayAddress, args: Sequence[str] = (), home: Path = Path()
) -> LaunchCommand:
    """Return the command that starts a client with that gateway, and changes no file of the user's.

    `args` are the user's own arguments. They come last, so that they override ours.
    """
    settings = client.run_settings or RunSettings()
    text = settings.text or (client.file.text if client.file else "")
    text = fill_template(text, gateway)
    folder = home / _digest(gateway)
    values = {**gateway.list_values(), "file": text, "home": str(home), "folder": str(folder)}
    quoted = {name: _escape_quoted(value) for name, value in values.items()}
    files = {name: fill_template(one, gateway) for name, one in settings.files.items()}
    return LaunchCommand(
        (client.program, *_fill_all(client.args, values), *_fill_all(settings.args, quoted), *args),
        _fill_env({**client.env, **settings.env}, values),
        client.unset,
        {str(home / settings.home): text} if settings.home else {},
        {str(folder / name): one for name, one in files.items()},
    )


def list_overrides(client: Client, model: str) -> Iterator[str]:
    """Yield the files that override the settings of `toolspeak run`."""
    for path, texts in client.overrides.items():
        wanted = (Template(text).substitute(model=model) for text in texts)
        try:
            found = Path(path).expanduser().read_text("utf-8", "replace")
        except (OSError, RuntimeError):
            continue
        if all(text in found for text in wanted):
            yield path


def _digest(gateway: GatewayAddress) -> str:
    """Return a name for a folder, so that clients of two gateways or models have different ones."""
    return hashlib.sha256(f"{gateway.url} {gateway.model}".encode()).hexdigest()[:12]


def build_snippets(client: Client, gateway: GatewayAddress) -> Iterator[Snippet]:
    """Yield what to write by hand so that a client uses that gateway."""
    if code := client.code:
        text = fill_template(code.text, gateway, is_code=code.language != "sh")
        yield structs.replace(code, text=text, title=client.title)
    has_command = bool(client.env or client.args)
    if file := client.file:
        title = f"{client.title}, once" if has_command else client.title
        path = Template(file.path).substitute()
        yield Snippet(fill_template(file.text, gateway), path, path.rpartition(".")[2], title)
    if has_command:
        values = gateway.list_values()
        argv = (client.program, *_fill_all(client.args, values))
        line = LaunchCommand(argv, _fill_env(client.env, values)).shell_line
        yield Snippet(line, title=client.title)


def fill_template(text: str, gateway: GatewayAddress, *, is_code: bool = True) -> str:
    """Fill lines of code, JSON, YAML or TOML, with values between quotes, or lines of a shell."""
    escape = _escape_quoted if is_code else shlex.quote
    values = {name: value and escape(value) for name, value in gateway.list_values().items()}
    return "\n".join(_fill_all(text.strip("\n").split("\n"), values))


def _escape_quoted(value: str) -> str:
    """Escape a value for double quotes, in JSON, TOML, YAML and programs alike."""
    # TOML does not allow escaped surrogates, nor DEL without an escape.
    return json.dumps(value, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")


def _fill_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    return [filled for text in texts if (filled := _fill(text, values)) is not None]


def _fill_env(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    filled = ((name, _fill(text, values)) for name, text in env.items())
    return {name: text for name, text in filled if text is not None}


def _fill(text: str, values: Mapping[str, str]) -> str | None:
    """Fill in a template, or return None if the value of a placeholder is not known."""
    template = Template(text)
    if all(values.get(name, True) for name in template.get_identifiers()):
        return template.substitute(values)
    return None
