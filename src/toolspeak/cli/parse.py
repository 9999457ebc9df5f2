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
from .terminal import parse_count, read_json, read_text, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="-", help="parse the text in this file (default: standard input)"
    )
    parser.add_argument(
        "--dialect", default="auto", help="read only this dialect (default: auto, any dialect)"
    )
    parser.add_argument("--model", help="try the dialects of this model first")
    parser.add_argument(
        "--tools", metavar="FILE", help="check calls against the tools in this JSON file"
    )
    parser.add_argument(
        "--types-only",
        action="store_true",
        help="use the tools for types only: accept unknown tools and invalid arguments",
    )
    parser.add_argument(
        "--trust",
        choices=("strict", "standard", "lenient"),
        default="standard",
        help="lenient also accepts calls within prose (default: standard)",
    )
    parser.add_argument(
        "--context",
        metavar="FILE",
        help="ignore calls that are quoted from the messages in this JSON file",
    )
    parser.add_argument(
        "--stream",
        type=parse_count,
        metavar="N",
        help="parse the text in chunks of N characters",
    )
    parser.add_argument(
        "--events", action="store_true", help="print the events, one JSON object per line"
    )
    parser.add_argument(
        "--reasoning-open",
        choices=("yes", "no", "unknown"),
        default="unknown",
        help="yes if the text begins with reasoning, without an opening tag (default: unknown)",
    )


def run(options: argparse.Namespace) -> int:
    if options.model and not dialects_for_model(options.model):
        print(f"toolspeak: no dialect is known for the model {options.model!r}", file=sys.stderr)
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
