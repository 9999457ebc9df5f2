"""Start a client, such as Claude Code, with the gateway as its API."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

from .._util import create_private_file, escape_for_terminal, state_directory
from ..config.addresses import is_loopback, parse_gateway_url
from ..config.running_instances import list_responding
from ..errors import UsageError
from .arguments import CommandParser
from .clients import (
    CLIENTS,
    DEFAULT_URL,
    HIDDEN_KEY,
    NO_KEY,
    Client,
    GatewayAddress,
    LaunchCommand,
    build_launch,
    list_overrides,
)

RUNNABLE = {name: client for name, client in CLIENTS.items() if client.is_runnable}
_TIMEOUT = 10
"""Seconds to wait for the gateway's response."""


def add_arguments(parser: CommandParser) -> None:
    _add_options(parser)
    parser.add(
        "command",
        f"one of {', '.join(RUNNABLE)}; arguments after -- are passed to it",
        # Options may also follow the client's name, where argparse would miss them.
        nargs=argparse.PARSER,
        metavar="CLIENT [-- …]",
    )


def _add_options(parser: CommandParser) -> None:
    for name, text in (
        ("--url", f"the gateway's URL (default: the gateway started last, or {DEFAULT_URL})"),
        ("--model", "the model's name (default: the gateway's default)"),
        ("--key", "the key for the gateway (default: the first of $TOOLSPEAK_KEYS)"),
    ):
        parser.add(name, text, default="")
    parser.add_flag("--print", "print the command instead of running it")


def run(options: argparse.Namespace) -> int:
    name, args = _split_command(options)
    client = RUNNABLE[name]
    key = options.key or os.environ.get("TOOLSPEAK_KEYS", "").partition(",")[0].strip()
    started_last = (one.url for one in list_responding())
    url = (options.url or next(started_last, DEFAULT_URL)).rstrip("/")
    address = parse_gateway_url(url)
    model, context = options.model, None
    if not (model and options.print):
        # A proxy cannot reach this machine's loopback address.
        proxies = ProxyHandler({} if is_loopback(address.hostname or "") else None)
        listed = _fetch_models(build_opener(proxies), url, key)
        model = _choose_model(client, model, url, listed)
        context = listed.get(model)
    if not model.isprintable() or model.startswith("-"):
        raise UsageError(
            f"the model name {model!r} begins with `-` or is not printable; "
            "configure an alias for it"
        )
    shown_key = HIDDEN_KEY if key and options.print else key or NO_KEY
    gateway = GatewayAddress(url, model, shown_key, context)
    launched = build_launch(client, gateway, args, _get_client_folder(name, client))
    for path in list_overrides(client, model):
        print(
            f"toolspeak: {path} overrides these settings: if it names a server, key or model, "
            f"{client.title} uses those instead of the gateway's",
            file=sys.stderr,
        )
    if options.print:
        print(launched.shell_line)
        return 0
    for path, text in launched.settings.items():
        _write_private_file(Path(path), _add_settings(Path(path), text))
    for path, text in launched.files.items():
        _write_private_file(Path(path), text)
    return _replace_process(client, launched)


def _add_settings(path: Path, text: str) -> str:
    """Return the settings of a JSON file with those of `text`, which take precedence."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return text
    return json.dumps(_merge(found, json.loads(text)), indent=2, ensure_ascii=False)


def _merge(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}


def _write_private_file(path: Path, text: str) -> None:
    """Replace a file at once, since another client may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    create_private_file(new)
    new.write_text(text, "utf-8")
    new.replace(path)


def _get_client_folder(name: str, client: Client) -> Path:
    """Return the folder for a client's settings, apart from the user's own."""
    if not client.has_folder:
        return Path()
    try:
        return state_directory() / name
    except RuntimeError:
        raise UsageError(
            f"{client.title} needs a settings folder: set HOME or XDG_STATE_HOME"
        ) from None


def _split_command(options: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the client's name and arguments; our own options between them are read."""
    name, *words = options.command
    at = words.index("--") if "--" in words else len(words)
    own = CommandParser(prog="toolspeak run", add_help=False, allow_abbrev=False)
    _add_options(own)
    # Options that are absent here keep the values that `options` has already.
    _, unknown = own.parse_known_args(words[:at], options)
    if name not in RUNNABLE:
        raise UsageError(f"unknown client {name!r}: choose from {', '.join(RUNNABLE)}")
    if unknown:
        passed = " ".join(unknown)
        raise UsageError(
            f"put arguments for {name} itself after --: toolspeak run {name} -- {passed}"
        )
    return name, words[at + 1 :]


class _ListedModel(Struct):
    slug: str
    context_window: int | None = None


class _ModelList(Struct):
    """The part of the list of models that only Toolspeak has."""

    models: list[_ListedModel]


def _choose_model(client: Client, model: str, url: str, listed: Mapping[str, int | None]) -> str:
    """Return `model`, or the gateway's default model. Warn if its context is too small."""
    if not (model or listed):
        raise UsageError(
            f"the gateway at {url} has no models: start a local model server or set a "
            "provider's key before `toolspeak serve`, or name a model with --model"
        )
    model = model or next(iter(listed))
    context = listed.get(model)
    if context and context < client.prompt_tokens:
        print(
            f"toolspeak: {client.title} sends about {client.prompt_tokens} tokens in its first "
            f"request, but {escape_for_terminal(model)} has a context of "
            f"{context} tokens; choose a model with more (docs/clients/README.md lists some)",
            file=sys.stderr,
        )
    return model


def _fetch_models(opener: OpenerDirector, url: str, key: str) -> dict[str, int | None]:
    """Return the models of a running gateway, with their contexts."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    path = f"{url}/v1/models"
    request = Request(path, headers=headers)  # noqa: S310 - the scheme was checked
    try:
        with opener.open(request, timeout=_TIMEOUT) as response:
            models = msgspec.json.decode(response.read(), type=_ModelList).models
    except HTTPError as error:
        if error.code == 401:
            raise UsageError(
                f"the gateway at {url} rejected the key: set --key or TOOLSPEAK_KEYS"
            ) from None
        raise UsageError(f"{path} returned {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UsageError(
            f"no gateway responds at {url} ({reason}): start one with `toolspeak serve` "
            "in another terminal, or give its URL with --url"
        ) from None
    except msgspec.DecodeError:
        raise UsageError(f"the server at {url} is not a Toolspeak gateway: check --url") from None
    return {one.slug: one.context_window for one in models}


def _replace_process(client: Client, launched: LaunchCommand) -> int:
    """Replace this process by the client, which then owns the terminal, signals and exit code."""
    program = shutil.which(client.program)
    if program is None:
        raise UsageError(f"`{client.program}` is not installed: {client.install}")
    inherited = {name: value for name, value in os.environ.items() if name not in launched.unset}
    env = {**inherited, **launched.env}
    argv = [program, *launched.argv[1:]]
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(program, argv, env)  # noqa: S606 - that is what the command is for
    # On Windows, exec would return to the shell at once.
    return subprocess.call(argv, env=env)  # noqa: S603
