"""The parts of docs/clients/ that come from the table of clients."""

from __future__ import annotations

from collections.abc import Iterator

from toolspeak.cli.clients import CLIENTS, DEFAULT_URL, Client, GatewayAddress, build_snippets
from toolspeak.wires import WIRES

GATEWAY = GatewayAddress(DEFAULT_URL, "MODEL")
SDKS = [name for name in CLIENTS if name.endswith("-sdk") and name != "vercel-ai-sdk"]
BOX = 8192
"""The context of the model in the box."""
SHARE = 4
"""An agent needs several times what it begins with."""


def parts() -> Iterator[tuple[str, dict[str, str]]]:
    """Each page, with what is filled in."""
    yield "clients/README.md", {"clients": _table()}
    yield "clients/sdks.md", {"sdks": _fence("python", "\n".join(map(_text, SDKS)))}
    for name, client in CLIENTS.items():
        if name not in SDKS:
            yield f"clients/{name}.md", {name: "\n\n".join(_lines(name, client))}


def _table() -> str:
    rows = [
        "| client | start it with | API | sends | fits the model in the box |",
        "|---|---|---|---|---|",
    ]
    for name, client in CLIENTS.items():
        page = "sdks.md" if name in SDKS else f"{name}.md"
        start = f"`toolspeak run {name}`" if client.is_runnable else "see its page"
        sends = f"{client.prompt_kilobytes:g} kB" if client.prompt_kilobytes else "what you say"
        fits = "no" if client.prompt_tokens * SHARE > BOX else "yes"
        title = WIRES[client.wire].title
        rows.append(f"| [{client.title}]({page}) | {start} | {title} | {sends} | {fits} |")
    return "\n".join(rows)


def _lines(name: str, client: Client) -> Iterator[str]:
    yield _fence("sh", client.install)
    if client.is_runnable:
        yield "Then, with a gateway going:"
        yield _fence("sh", f"toolspeak run {name}")
        yield "Or by hand:"
    for one in build_snippets(client, GATEWAY):
        if one.path:
            yield f"In `{one.path}`:" if " " not in one.path else f"In {one.path}:"
        yield _fence(one.language, one.text)


def _text(name: str) -> str:
    return "\n".join(one.text for one in build_snippets(CLIENTS[name], GATEWAY))


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
