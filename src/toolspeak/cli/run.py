"""Start Claude Code, Codex or another client on the gateway."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

from .._util import escape_for_terminal, state_directory
from ..config.addresses import parse_gateway_url
from ..config.running_instances import list_responding
from ..errors import UsageError
from .clients import CLIENTS, DEFAULT_URL, Client, GatewayAddress, LaunchCommand, build_launch

RUNNABLE = {name: client for name, client in CLIENTS.items() if client.is_runnable}
_TIMEOUT = 10
"""How long a gateway may take to say that it is there."""
_NO_KEY, _HIDDEN = "none", "YOUR_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_options(parser)
    parser.add_argument(
        "command",
        # Options may stand behind the name too, which argparse would not see otherwise.
        nargs=argparse.PARSER,
        metavar="CLIENT [-- …]",
        help=f"{', '.join(RUNNABLE)}; what stands behind -- is for the client itself",
    )


def _add_options(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """The options; if they are read again, what was read before stays."""

    def otherwise(value: Any) -> Any:
        return argparse.SUPPRESS if again else value

    parser.add_argument(
        "--url",
        default=otherwise(""),
        help=f"the gateway; the last that was started here, or {DEFAULT_URL}",
    )
    parser.add_argument(
        "--model",
        default=otherwise(""),
        help="as clients name it; the gateway's default if left out",
    )
    parser.add_argument(
        "--key", default=otherwise(""), help="a client key; the first of TOOLSPEAK_KEYS if left out"
    )
    parser.add_argument(
        "--print", action="store_true", default=otherwise(False), help="only say what would be run"
    )


def run(options: argparse.Namespace) -> int:
    name, args = _split_command(options)
    client = RUNNABLE[name]
    key = options.key or os.environ.get("TOOLSPEAK_KEYS", "").partition(",")[0].strip()
    running = _GatewayChecker(options.url or _find_gateway_url(), key)
    model = options.model
    if not (model and options.print):
        model = running.choose_model(client, model)
    if not model.isprintable() or model.startswith("-"):
        raise UsageError(f"no client can be told of a model that is named {model!r}")
    shown = _HIDDEN if key and options.print else key or _NO_KEY
    launched = build_launch(
        client, GatewayAddress(running.url, model, shown), args, _get_client_folder(name, client)
    )
    if options.print:
        print(launched.shell_line)
        return 0
    for path, text in launched.files.items():
        _write_if_missing(Path(path), text)
    return _replace_process(client, launched)


def _find_gateway_url() -> str:
    """The gateway that was started last on this machine."""
    return next((one.url for one in list_responding()), DEFAULT_URL)


def _get_client_folder(name: str, client: Client) -> Path:
    """A folder for one client, which is not the user's."""
    if not (client.run_settings and client.run_settings.home):
        return Path()
    try:
        return state_directory() / name
    except RuntimeError:
        raise UsageError(f"{client.title} needs a folder: set HOME, or XDG_STATE_HOME") from None


def _write_if_missing(path: Path, text: str) -> None:
    """Write a file, if it is not there: the client may have changed it since."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _split_command(options: argparse.Namespace) -> tuple[str, list[str]]:
    """The client, and what it is told; our own options in between are taken out."""
    name, *words = options.command
    at = words.index("--") if "--" in words else len(words)
    own = argparse.ArgumentParser(prog="toolspeak run", add_help=False, allow_abbrev=False)
    _add_options(own, again=True)
    _, unknown = own.parse_known_args(words[:at], options)
    if name not in RUNNABLE:
        raise UsageError(f"there is no client {name!r}; there are {', '.join(RUNNABLE)}")
    if unknown:
        told = " ".join(unknown)
        raise UsageError(
            f"what is for {name} itself goes behind --: toolspeak run {name} -- {told}"
        )
    return name, words[at + 1 :]


class _ListedModel(Struct):
    slug: str
    context_window: int | None = None


class _ModelList(Struct):
    models: list[_ListedModel]


class _GatewayChecker:
    """A gateway that is there already."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        address = parse_gateway_url(self.url)
        self._key = key
        # No proxy leads to this machine itself.
        is_near = address.hostname in ("localhost", "127.0.0.1", "::1")
        self._opener = build_opener(*([ProxyHandler({})] if is_near else []))

    def choose_model(self, client: Client, model: str) -> str:
        """Make sure that the gateway is there and has the model; returns its name."""
        health = self._get_json("/health")
        if not isinstance(health, dict) or health.get("status") != "ok":
            raise self._not_a_gateway()
        listed = self._list_models()
        if not (model or listed):
            raise UsageError(
                f"the gateway at {self.url} has no model: start a local server, or set a "
                "provider's key, before `toolspeak serve`; or name one with --model"
            )
        model = model or next(iter(listed))
        context = listed.get(model)
        if context and context < client.prompt_tokens:
            print(
                f"toolspeak: {client.title} begins with about {client.prompt_tokens} tokens, and "
                f"{escape_for_terminal(model)} takes {context}: "
                "docs/clients/README.md says which model fits",
                file=sys.stderr,
            )
        return model

    def _list_models(self) -> dict[str, int | None]:
        """What it has, the default first, and how much each takes."""
        try:
            listed = msgspec.convert(self._get_json("/v1/models"), _ModelList)
        except msgspec.ValidationError:
            # llama.cpp's server is as healthy, but it lists its models in another way.
            raise self._not_a_gateway() from None
        return {one.slug: one.context_window for one in listed.models}

    def _get_json(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        request = Request(self.url + path, headers=headers)  # noqa: S310 - the scheme was checked
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return json.load(response)
        except HTTPError as error:
            if error.code == 401:
                raise UsageError(
                    f"the gateway at {self.url} wants a key that it knows: --key, or TOOLSPEAK_KEYS"
                ) from None
            raise UsageError(f"{self.url}{path} says {error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise UsageError(
                f"nothing answers at {self.url} ({reason}): start a gateway with `toolspeak serve` "
                "in another terminal, or say with --url where one is"
            ) from None
        except ValueError:
            raise self._not_a_gateway() from None

    def _not_a_gateway(self) -> UsageError:
        return UsageError(f"what answers at {self.url} is no gateway of Toolspeak")


def _replace_process(client: Client, launched: LaunchCommand) -> int:
    """Become the client: then its exit code, its signals and its terminal are its own."""
    program = shutil.which(client.program)
    if program is None:
        raise UsageError(f"there is no program `{client.program}` here: {client.install}")
    kept = {name: value for name, value in os.environ.items() if name not in launched.unset}
    env = {**kept, **launched.env}
    argv = [program, *launched.argv[1:]]
    sys.stderr.flush()
    if os.name != "nt":
        os.execve(program, argv, env)  # noqa: S606 - that is what the command is for
    # There, a program that is replaced ends at once for whoever has started it.
    return subprocess.call(argv, env=env)  # noqa: S603
