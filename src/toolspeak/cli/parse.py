"""Find the tool calls in a model's text and print them as JSON."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..calls.tools import as_tools
from ..dialects import Parser, dialects_for_model
from ..events import fold
from ..testing import split_into_chunks
from ..types import Reply
from .arguments import CommandParser
from .terminal import read_json, read_text, write_json


def add_arguments(parser: CommandParser) -> None:
    parser.add_input("parse the text in this file")
    parser.add("--dialect", "expect this dialect (default: auto, any dialect)", default="auto")
    parser.add("--model", "try the dialects of this model first")
    parser.add_file("--tools", "check calls against the tools in this JSON file")
    parser.add_flag("--types-only", "use the tools only to convert argument types; accept any call")
    parser.add_choice(
        "--trust",
        ("standard", "strict", "lenient"),
        "strict accepts only complete calls in the expected dialect (auto: in dialects with "
        "markers); standard also calls in other dialects; lenient also calls within prose",
    )
    parser.add_file(
        "--context",
        "reject calls copied from tool results or documents in this JSON file of messages",
    )
    parser.add_count("--stream", "parse the text in chunks of N characters")
    parser.add_flag("--events", "print the events, one JSON object per line")
    parser.add_choice(
        "--reasoning-open",
        ("unknown", "yes", "no"),
        "yes if the text begins with reasoning, without an opening tag",
    )


def run(options: argparse.Namespace) -> int:
    if options.model and not dialects_for_model(options.model):
        message = f"no dialect is known for the model {options.model!r}, so --model has no effect"
        print(f"toolspeak: {message}", file=sys.stderr)
    parser = build_text_parser(
        options.model,
        options.dialect,
        tools=as_tools(read_json(options.tools)) if options.tools else None,
        types_only=options.types_only,
        trust=options.trust,
        context=read_json(options.context) if options.context else (),
        reasoning_open={"yes": True, "no": False, "unknown": None}[options.reasoning_open],
    )
    text = read_text(options.file)
    size = max(1, options.stream or len(text) or 1)
    found = [event for piece in split_into_chunks(text, size) for event in parser.feed(piece)]
    found += parser.finish()
    if options.events:
        for event in found:
            write_json(event)
    else:
        write_json(describe_reply(fold(found)))
    return 0


def build_text_parser(model: str | None, dialect: str = "auto", **settings: Any) -> Parser:
    """Return a parser for `dialect`, or for the model's dialects if it is "auto"."""
    known = dialects_for_model(model) if model else ()
    return Parser(dialect=known if known and dialect == "auto" else dialect, **settings)


def describe_reply(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls
        ],
        "rejected": reply.rejected,
        "notes": [{"code": n.code, "message": n.message, "where": n.where} for n in reply.notes],
        "dialect": reply.dialect,
    }
