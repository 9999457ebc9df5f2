"""The settings with which each client uses a gateway: one row of `clients.toml` per client.

build_launch(CLIENTS["claude"], GatewayAddress("http://127.0.0.1:7878", "qwen3")).shell_line
ANTHROPIC_BASE_URL=http://127.0.0.1:7878 ANTHROPIC_AUTH_TOKEN=none … claude
"""

from __future__ import annotations

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


class GatewayAddress(Struct, frozen=True):
    """The values that fill the placeholders of `clients.toml`."""

    url: str
    model: str
    key: str = NO_KEY


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
    file: Snippet | None = None
    run_settings: RunSettings | None = None
    code: Snippet | None = None

    @property
    def is_runnable(self) -> bool:
        """True if `toolspeak run` can start it without changing a file of the user's."""
        return bool(self.program) and (self.file is None or self.run_settings is not None)

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
    files: dict[str, str] = {}
    """Files to create first, unless they exist."""

    @property
    def shell_line(self) -> str:
        """The same as a line for a shell."""
        unset = [word for name in self.unset for word in ("-u", name)]
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        prefix = ["env", *unset] if unset else []
        files = [_write_file_command(path, text) for path, text in self.files.items()]
        return " ".join([*files, *prefix, *variables, *map(shlex.quote, self.argv)])


def _write_file_command(path: str, text: str) -> str:
    """Return a shell command that creates a file unless it exists."""
    file, folder = shlex.quote(path), shlex.quote(str(Path(path).parent))
    create = f"mkdir -p {folder} && printf %s {shlex.quote(text)} > {file}"
    return f"test -e {file} || {{ {create}; }};"


def build_launch(
    client: Client, gateway: GatewayAddress, args: Sequence[str] = (), home: Path = Path()
) -> LaunchCommand:
    """Return the command that starts a client with that gateway, and changes no file of the user's.

    `args` are the user's own arguments. They come last, so that they override ours.
    """
    settings = client.run_settings or RunSettings()
    text = fill_template(client.file.text, gateway) if client.file else ""
    values = {**structs.asdict(gateway), "file": text, "home": str(home)}
    quoted = {name: _escape_quoted(value) for name, value in values.items()}
    return LaunchCommand(
        (client.program, *_fill_all(client.args, values), *_fill_all(settings.args, quoted), *args),
        _fill_env({**client.env, **settings.env}, values),
        client.unset,
        {str(home / settings.home): text} if settings.home else {},
    )


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
        values = structs.asdict(gateway)
        argv = (client.program, *_fill_all(client.args, values))
        line = LaunchCommand(argv, _fill_env(client.env, values)).shell_line
        yield Snippet(line, title=client.title)


def fill_template(text: str, gateway: GatewayAddress, *, is_code: bool = True) -> str:
    """Fill lines of code, JSON, YAML or TOML, with values between quotes, or lines of a shell."""
    escape = _escape_quoted if is_code else shlex.quote
    values = {name: escape(value) for name, value in structs.asdict(gateway).items()}
    return Template(text.strip("\n")).substitute(values)


def _escape_quoted(value: str) -> str:
    """Escape a value for double quotes, in JSON, TOML, YAML and programs alike."""
    # TOML does not allow escaped surrogates, nor DEL without an escape.
    return json.dumps(value, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")


def _fill_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    return [Template(text).substitute(values) for text in texts]


def _fill_env(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return dict(zip(env, _fill_all(env.values(), values), strict=True))
