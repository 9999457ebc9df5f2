"""What each client has to be told so that it speaks to a gateway: one row of `clients.toml` each.

launch(CLIENTS["claude"], Gateway("http://127.0.0.1:7878", "qwen3")).line
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
from msgspec import Struct

DEFAULT_URL = "http://127.0.0.1:7878"
"""Where a gateway listens if nothing else is said."""
NO_KEY = "none"
"""Most clients insist on a key, where none is needed too."""


class GatewayAddress(Struct, frozen=True):
    """What clients are told of a gateway."""

    url: str
    model: str
    key: str = NO_KEY


class ConfigFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What has to stand in a file of the user's."""

    path: str
    text: str


class CodeSample(Struct, frozen=True, forbid_unknown_fields=True):
    """What to write in a program, or to type."""

    language: str
    text: str


class RunSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in for a file."""

    env: dict[str, str] = {}
    args: tuple[str, ...] = ()
    home: str = ""


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """One row; the file says what its fields mean."""

    title: str
    wire: str
    install: str
    prompt_kilobytes: float | None = None
    program: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    file: ConfigFile | None = None
    run_settings: RunSettings | None = None
    code: CodeSample | None = None

    @property
    def is_runnable(self) -> bool:
        """Whether it can be started without a file of the user's."""
        return bool(self.program) and (self.file is None or self.run_settings is not None)

    @property
    def prompt_tokens(self) -> int:
        """About how many tokens it sends before the user has said a word."""
        return round((self.prompt_kilobytes or 0) * 1000 / _BYTES_OF_A_TOKEN)


CLIENTS: Mapping[str, Client] = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("clients.toml").read_text("utf-8")), dict[str, Client]
)
_BYTES_OF_A_TOKEN = 4


class LaunchCommand(Struct, frozen=True):
    """A program to start."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    files: dict[str, str] = {}
    """What has to be there first, unless it is already."""

    @property
    def shell_line(self) -> str:
        """The same for a shell."""
        without = [word for name in self.unset for word in ("-u", name)]
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        start = ["env", *without] if without else []
        return " ".join(
            [*self._write_file_commands(), *start, *variables, *map(shlex.quote, self.argv)]
        )

    def _write_file_commands(self) -> Iterator[str]:
        for path, text in self.files.items():
            file, folder = shlex.quote(path), shlex.quote(str(Path(path).parent))
            make = f"mkdir -p {folder} && printf %s {shlex.quote(text)} > {file}"
            yield f"test -e {file} || {{ {make}; }};"


def build_launch(
    client: Client, gateway: GatewayAddress, args: Sequence[str] = (), home: Path = Path()
) -> LaunchCommand:
    """How to start a client so that it speaks to that gateway, and touches no file of the user's.
    What the user wants to tell it comes last, so that it counts."""
    instead = client.run_settings or RunSettings()
    text = fill_template(client.file.text, gateway) if client.file else ""
    values = {**_template_values(gateway), "file": text, "home": str(home)}
    settings = _fill_all(
        instead.args, {name: _escape_quoted(value) for name, value in values.items()}
    )
    return LaunchCommand(
        (client.program, *_fill_all(client.args, values), *settings, *args),
        _fill_env({**client.env, **instead.env}, values),
        client.unset,
        {str(home / instead.home): text} if instead.home else {},
    )


class Snippet(Struct, frozen=True):
    """A few lines for one client."""

    client: str
    text: str
    path: str = ""
    """The file that they belong into; nothing for a shell or a program."""
    language: str = "sh"


def build_snippets(client: Client, gateway: GatewayAddress) -> Iterator[Snippet]:
    """What to write by hand so that a client speaks to that gateway."""
    if client.code:
        text = fill_template(client.code.text, gateway, is_code=client.code.language != "sh")
        yield Snippet(client.title, text, language=client.code.language)
    starts = bool(client.env or client.args)
    if client.file:
        title = f"{client.title}, once" if starts else client.title
        where = Template(client.file.path).substitute()
        text = fill_template(client.file.text, gateway)
        yield Snippet(title, text, where, where.split()[0].rpartition(".")[2])
    if starts:
        values = _template_values(gateway)
        argv = (client.program, *_fill_all(client.args, values))
        yield Snippet(client.title, LaunchCommand(argv, _fill_env(client.env, values)).shell_line)


def fill_template(text: str, gateway: GatewayAddress, *, is_code: bool = True) -> str:
    """Lines of a program, of JSON, YAML or TOML, in which every value stands within quotes; or else
    of a shell."""
    values = {
        name: _escape_quoted(value) if is_code else shlex.quote(value)
        for name, value in _template_values(gateway).items()
    }
    return Template(text.strip("\n")).substitute(values)


def _escape_quoted(value: str) -> str:
    """What stands between double quotes, in JSON as in TOML, YAML or a program. TOML takes neither
    halves of a pair nor a bare DEL."""
    return json.dumps(value, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")


def _template_values(gateway: GatewayAddress) -> dict[str, str]:
    return {"url": gateway.url, "model": gateway.model, "key": gateway.key}


def _fill_all(texts: Iterable[str], values: Mapping[str, str]) -> list[str]:
    return [Template(text).substitute(values) for text in texts]


def _fill_env(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return dict(zip(env, _fill_all(env.values(), values), strict=True))


__all__ = [
    "CLIENTS",
    "DEFAULT_URL",
    "NO_KEY",
    "Client",
    "GatewayAddress",
    "LaunchCommand",
    "Snippet",
    "build_launch",
    "build_snippets",
]
