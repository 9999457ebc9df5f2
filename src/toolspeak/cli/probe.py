"""Find out what a model can do and which mode suits it best."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import structs, to_builtins

from ..config.loading import LoadedConfig
from ..store.base import MemoryStore, open_store
from .arguments import CommandParser
from .terminal import (
    ConfigSource,
    build_table,
    open_console,
    open_status_console,
    plain_text,
    print_text,
    write_json,
)

if TYPE_CHECKING:
    from ..evaluation.config_advice import ConfigAdvice
    from ..evaluation.probe import ProbeReport

_VALUES: dict[Any, str] = {True: "yes", False: "no", None: "unknown"}
_NOT_SAVED = 1
"""The exit code if the settings could not be saved."""


def add_arguments(parser: CommandParser) -> None:
    parser.add_model()
    parser.add_config()
    parser.add_flag("--json", "print JSON")
    parser.add_flag("--save", "add the recommended settings to the configuration file")


def run(options: argparse.Namespace) -> int:
    from ..evaluation.config_advice import save_advice

    console = open_status_console()
    loaded = ConfigSource(options, console).load()
    with console.status("Looking for models …") as status:
        report, advice = asyncio.run(
            probe_by_name(
                options.model, loaded, lambda step: status.update(plain_text(f"{step} …"))
            )
        )
    saved = None
    if options.save and not advice.obstacle:
        saved = str(save_advice(advice, loaded, os.environ))
    if options.json:
        write_json(describe_report(report, advice, saved))
    else:
        _print_report(report)
        print_text(open_console(), _describe_advice(advice, saved, is_save_requested=options.save))
    return _NOT_SAVED if options.save and advice.lines and not saved else 0


async def probe_by_name(
    name: str, loaded: LoadedConfig, on_step: Callable[[str], None] = lambda _: None
) -> tuple[ProbeReport, ConfigAdvice]:
    """Probe a model, and share the recommended mode with gateways if `tools` is auto."""
    from ..evaluation.config_advice import advise_config
    from ..evaluation.probe import probe_model
    from ..upstream.model_connection import connect_model

    async with connect_model(loaded.config, name) as connection:
        model = await connection.resolve()
        report = await probe_model(
            model,
            connection.services.upstreams,
            lambda step: on_step(f"Asking {model.name}: {step}"),
        )
    if model.profile.mode == "auto":
        report = structs.replace(report, shared=await _share_mode(report, loaded.config.store))
    return report, advise_config(report, model, loaded)


async def _share_mode(report: ProbeReport, store_setting: str) -> bool:
    """Store the recommended mode for gateways with the same store; return True on success."""
    from ..upstream.learned_modes import LearnedModes

    store = open_store(store_setting)
    try:
        if isinstance(store, MemoryStore):
            return False
        await LearnedModes(store).set(report.upstream, report.name, report.mode)
        return store.last_error is None
    finally:
        await store.close()


def describe_report(
    report: ProbeReport, advice: ConfigAdvice, saved: str | None = None
) -> dict[str, Any]:
    return {**to_builtins(report), "toml": advice.lines, "saved": saved}


def _print_report(report: ProbeReport) -> None:
    console = open_console()
    is_plain = report.model == f"{report.upstream}/{report.name}"
    place = "" if is_plain else f" ({report.name} at {report.upstream})"
    print_text(
        console, f"{report.model}{place}: {report.requests} requests in {report.seconds:g} s"
    )
    console.print(build_table(("capability", "result", "evidence"), _list_findings(report)))
    console.print(build_table(("mode", "correct calls", "correct answers"), _list_scores(report)))
    dialect = f", dialect {report.dialect}" if report.dialect else ""
    print_text(console, f"Recommended: {report.mode}{dialect}\n  {report.reason}.")
    if report.shared:
        print_text(console, "  Gateways that share this store will use this mode for an hour.")


def _list_findings(report: ProbeReport) -> Iterator[tuple[str, str, str]]:
    from ..evaluation.trials import TRIALS

    titles = {**{name: title for name, (title, _) in TRIALS.items()}, "dialect": "best dialect"}
    for name, finding in report.findings.items():
        value = finding.value
        text = str(value) if type(value) is int else _VALUES.get(value, str(value))
        yield titles[name], text, finding.evidence


def _list_scores(report: ProbeReport) -> Iterator[tuple[str, str, str]]:
    from ..evaluation.prober import CALL_QUESTIONS, QUESTIONS

    answers = len(QUESTIONS) - len(CALL_QUESTIONS)
    for score in report.scores:
        is_complete = score.asked == len(QUESTIONS)
        answered = f"{score.answers} of {answers}" if is_complete else "not tried"
        yield score.title, f"{score.calls} of {len(CALL_QUESTIONS)}", answered


def _describe_advice(advice: ConfigAdvice, saved: str | None, *, is_save_requested: bool) -> str:
    if saved:
        title = f"Added to {saved}:"
    elif not advice.lines:
        return f"\nNothing to change: {advice.obstacle}."
    elif is_save_requested:
        title = f"Nothing was saved: {advice.obstacle}. The settings are:"
    else:
        advised = advice.obstacle or f"--save adds this to {advice.file}"
        title = f"To keep these settings ({advised}):"
    return f"\n{title}\n\n{advice.lines}"
