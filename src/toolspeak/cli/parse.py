"""Parse the tool calls in a model's text and print them as JSON."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..calls.tools import as_tools
from ..dialects import Parser, dialects_for_model
from ..events import fold
from ..testing import split_into_chunks
from ..types import Reply
from .io import read_json, read_text, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="-", help="the model's text (default: standard input)"
    )
    parser.add_argument("--dialect", default="auto", help="a dialect's name, or auto (default)")
    parser.add_argument("--model", help="try the dialects of this model first")
    parser.add_argument("--tools", help="a JSON file with the tools offered to the model")
    parser.add_argument(
        "--types-only",
        action="store_true",
        help="use --tools for types only: accept unknown tools and invalid arguments",
    )
    parser.add_argument(
        "--trust",
        choices=("strict", "standard", "lenient"),
        default="standard",
        help="how much may count as a call; lenient accepts calls within prose",
    )
    parser.add_argument(
        "--context", help="a JSON file with earlier messages: calls quoted from them are ignored"
    )
    parser.add_argument(
        "--stream", type=parse_positive, metavar="N", help="feed N characters at a time"
    )
    parser.add_argument(
        "--events", action="store_true", help="print the events, one JSON object per line"
    )
    parser.add_argument(
        "--reasoning-open",
        choices=("yes", "no", "unknown"),
        default="unknown",
        help="yes if the prompt opened the reasoning and the text continues it",
    )
    parser.add_argument(
        "--arguments",
        choices=("validated", "incremental"),
        default="validated",
        help="emit arguments once validated, or as they arrive",
    )


def parse_positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


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
        arguments=options.arguments,
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
