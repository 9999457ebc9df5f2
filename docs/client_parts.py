"""The generated parts of docs/clients/: the table of clients, and how to start each of them."""

from __future__ import annotations

from collections.abc import Iterator

from toolspeak.cli.clients import CLIENTS, DEFAULT_URL, Client, GatewayAddress, build_snippets
from toolspeak.wires import WIRES

GATEWAY = GatewayAddress(DEFAULT_URL, "MODEL")
SDKS = [name for name in CLIENTS if name.endswith("-sdk") and name != "vercel-ai-sdk"]
EMBEDDED_CONTEXT = 8192
PROMPTS_PER_CONTEXT = 4
"""An agent needs a context several times as large as its first request."""


def parts() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each page with its generated parts."""
    yield "clients/README.md", {"clients": _write_table()}
    sdks = "\n".join(map(_write_constructor, SDKS))
    yield "clients/sdks.md", {"sdks": _fence("python", sdks)}
    for name, client in CLIENTS.items():
        if name not in SDKS:
            yield f"clients/{name}.md", {name: "\n\n".join(_write_setup(name, client))}


def _write_table() -> str:
    rows = [
        "| client | start it with | API | first request | runs with the embedded model |",
        "|---|---|---|---|---|",
    ]
    for name, client in CLIENTS.items():
        page = "sdks.md" if name in SDKS else f"{name}.md"
        start = f"`toolspeak run {name}`" if client.is_runnable else "see its page"
        size = f"{client.prompt_kilobytes:g} kB" if client.prompt_kilobytes else "your text only"
        is_too_large = client.prompt_tokens * PROMPTS_PER_CONTEXT > EMBEDDED_CONTEXT
        runs = "no" if is_too_large else "yes"
        title = WIRES[client.wire].title
        rows.append(f"| [{client.title}]({page}) | {start} | {title} | {size} | {runs} |")
    return "\n".join(rows)


def _write_setup(name: str, client: Client) -> Iterator[str]:
    """Yield the parts of a client's setup: how to install it, and how to start it."""
    yield _fence("sh", client.install)
    if client.is_runnable:
        yield "Start `toolspeak serve` in another terminal, then:"
        yield _fence("sh", f"toolspeak run {name}")
        yield f"Or configure {client.title} yourself."
    for one in build_snippets(client, GATEWAY):
        if one.path:
            yield f"In `{one.path}`:"
        elif client.is_runnable:
            yield "Start it with:"
        yield _fence(one.language, one.text)


def _write_constructor(name: str) -> str:
    return "\n".join(one.text for one in build_snippets(CLIENTS[name], GATEWAY))


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
