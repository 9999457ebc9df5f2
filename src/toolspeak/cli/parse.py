"""Read the calls out of a model's text, as one JSON object."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..calls.tools import as_tools
from ..dialects import Parser, dialects_for_model
from ..events import fold
from ..testing import chunks
from ..types import Reply
from .io import read_json, read_text, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", help="the text; standard input if left out")
    parser.add_argument("--dialect", default="auto", help="a dialect's name, or auto (the default)")
    parser.add_argument("--model", help="try the dialects of this model first")
    parser.add_argument("--tools", help="a JSON file with the tools that were offered")
    parser.add_argument(
        "--types-only",
        action="store_true",
        help="make calls of other tools too, and calls that do not fit: tools only give types",
    )
    parser.add_argument(
        "--trust",
        choices=("strict", "standard", "lenient"),
        default="standard",
        help="what may become a call; lenient reads calls in prose",
    )
    parser.add_argument("--context", help="a JSON file with the messages so far, to find echoes")
    parser.add_argument(
        "--stream", type=parse_positive, metavar="N", help="feed N characters at a time"
    )
    parser.add_argument("--events", action="store_true", help="print the events, one on each line")
    parser.add_argument(
        "--reasoning-open",
        choices=("yes", "no", "unknown"),
        default="unknown",
        help="whether the text starts inside reasoning that the prompt has opened",
    )
    parser.add_argument(
        "--arguments",
        choices=("validated", "incremental"),
        default="validated",
        help="arguments whole, or as they arrive",
    )


def parse_positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return number


def run(options: argparse.Namespace) -> int:
    if options.model and not dialects_for_model(options.model):
        print(f"toolspeak: nothing is known of model {options.model!r}", file=sys.stderr)
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
    found = [event for piece in chunks(text, size) for event in parser.feed(piece)]
    found += parser.finish()
    if options.events:
        for event in found:
            write_json(event)
    else:
        write_json(describe_reply(fold(found)))
    return 0


def build_text_parser(model: str | None, dialect: str = "auto", **settings: Any) -> Parser:
    """A parser for the dialects of a model, where nothing else is asked for."""
    spoken = dialects_for_model(model) if model else ()
    return Parser(dialect=spoken if spoken and dialect == "auto" else dialect, **settings)


def describe_reply(reply: Reply) -> dict[str, Any]:
    """A reply for programs."""
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
