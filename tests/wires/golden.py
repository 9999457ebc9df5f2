"""All that the encoders write for the scenarios, as files for review.

`python -m tests.wires.golden` writes them again; read what changed before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.wires.scenarios import SCENARIOS, Scenario
from toolspeak import Request, fold
from toolspeak.wires import WIRES, Envelope, Wire

FOLDER = Path(__file__).parent / "golden"
CREATED = 1_700_000_000


def render_page(wire: Wire) -> str:
    """Return the request, stream and whole reply of every scenario, encoded by a wire."""
    sections = [f"# {wire.title}\n"]
    sections += [_render_section(wire, scenario) for scenario in SCENARIOS]
    return "\n".join(sections)


def _render_section(wire: Wire, scenario: Scenario) -> str:
    sent = wire.encode_request(scenario.request)
    notes = "".join(f"- {note.code}: {note.message} (`{note.where}`)\n" for note in sent.notes)
    extra = {"stream_options": {"include_usage": True}}
    request = Request(model="m", messages=(), tools=scenario.request.tools, extra=extra)
    envelope = Envelope(request, "0123456789abcdef", CREATED)
    encoder = wire.stream_encoder(envelope)
    stream = b"".join(map(encoder.feed, scenario.reply)).decode().rstrip("\n")
    reply = wire.encode_reply(fold(scenario.reply), envelope)
    return (
        f"## {scenario.name}\n\n"
        f"`POST {sent.path}`\n\n{_render_json(sent.body)}\n"
        f"{notes and notes + chr(10)}"
        f"The reply as a stream:\n\n```\n{stream}\n```\n\n"
        f"and whole:\n\n{_render_json(reply)}"
    )


def _render_json(value: object) -> str:
    return f"```json\n{json.dumps(value, indent=1, ensure_ascii=False)}\n```\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for wire in WIRES.values():
        (FOLDER / f"{wire.name}.md").write_text(render_page(wire), encoding="utf-8")
