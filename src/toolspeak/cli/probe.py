"""Find out what a model can do and which mode suits it best."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from .._util import escape_for_terminal
from ..errors import UsageError
from .io import INTERRUPTED, build_table, explain_missing_packages, open_console, write_json
from .serve import ConfigSource, add_config_arguments

if TYPE_CHECKING:
    from ..config.loading import LoadedConfig
    from ..evaluation.probe import ConfigAdvice, ProbeReport
    from ..upstream.catalog import Catalog, ResolvedModel

_VALUES: dict[Any, str] = {True: "yes", False: "no", None: "unknown"}
_NOT_SAVED = 1
"""The exit code if the settings could not be saved."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", default="", help="the model's name (default: the default model)"
    )
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--save", action="store_true", help="add the recommended settings to the file"
    )


def run(options: argparse.Namespace) -> int:
    with explain_missing_packages("a probe", "gateway,local"):
        from ..evaluation.probe import advise_config, save_advice
    aside = Console(stderr=True, highlight=False)
    loaded = ConfigSource(options, aside).load()
    try:
        report, served, shared = _probe_with_progress(options.model, loaded, aside)
    except KeyboardInterrupt:
        return INTERRUPTED
    advised = advise_config(report, served, loaded)
    saves = options.save and not advised.obstacle
    saved = str(save_advice(advised, loaded, os.environ)) if saves else None
    if options.json:
        write_json(describe_report(report, advised, shared=shared, saved=saved))
    else:
        _ReportPrinter(report, advised).print_report(
            shared=shared, saved=saved, wanted=options.save
        )
    return _NOT_SAVED if options.save and advised.lines and not saved else 0


def _probe_with_progress(
    model: str, loaded: LoadedConfig, console: Console
) -> tuple[ProbeReport, ResolvedModel, bool]:
    """Run `probe_by_name` with a line that shows the current step."""
    with _progress(console) as progress:
        task = progress.add_task("Looking for models")
        return asyncio.run(
            probe_by_name(model, loaded, lambda what: progress.update(task, description=what))
        )


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


async def probe_by_name(
    model: str, loaded: LoadedConfig, say: Callable[[str], None]
) -> tuple[ProbeReport, ResolvedModel, bool]:
    """Return the report, the model, and True if the shared store now has the mode."""
    from ..evaluation.probe import probe_model
    from ..upstream.catalog import Catalog
    from ..upstream.client import UpstreamClient
    from ..upstream.discovery import LocalModels
    from ..upstream.timers import Ticker

    local = LocalModels(loaded.config)
    ticker = Ticker()
    upstreams = UpstreamClient(ticker)
    try:
        await local.start()
        catalog = Catalog(loaded.config, os.environ, local.servers())
        served = _resolve_model(catalog, model, local.load_error)
        say(f"Asking {escape(served.name)}")
        report = await probe_model(
            served, upstreams, lambda what: say(f"Asking {escape(served.name)}: {what}")
        )
        return report, served, await _share_mode(report, served, loaded)
    finally:
        upstreams.close()
        ticker.stop()
        await local.stop()


def _resolve_model(catalog: Catalog, model: str, problem: str) -> ResolvedModel:
    """Return the named or default model; `problem` says why there is no embedded one."""
    from ..upstream.catalog import UnknownModelError

    try:
        return catalog.resolve_exact(model or catalog.default_model)
    except UnknownModelError as unknown:
        if not problem:
            raise
        raise UsageError(f"{unknown} (no embedded model: {problem})") from None


async def _share_mode(report: ProbeReport, served: ResolvedModel, loaded: LoadedConfig) -> bool:
    """Store the recommended mode for gateways that share a store, if `tools` is auto."""
    from ..store.base import MemoryStore, open_store
    from ..upstream.model_call import LearnedModes

    store = open_store(loaded.config.store)
    if isinstance(store, MemoryStore) or served.profile.mode != "auto":
        await store.close()
        return False
    await LearnedModes(store).set(served.profile.upstream, served.profile.model, report.mode)
    is_stored = store.last_error is None
    await store.close()
    return is_stored


def describe_report(
    report: ProbeReport, advice: ConfigAdvice, *, shared: bool, saved: str | None = None
) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(report)
    return {**fields, "toml": advice.lines, "shared": shared, "saved": saved}


class _ReportPrinter:
    """Prints a report as text."""

    def __init__(self, report: ProbeReport, advice: ConfigAdvice) -> None:
        self._report = report
        self._advice = advice
        self._console = open_console()

    def print_report(self, *, shared: bool, saved: str | None, wanted: bool) -> None:
        """Print the report; `wanted` is True if the user asked to save it."""
        report = self._report
        is_plain = report.model == f"{report.upstream}/{report.name}"
        where = "" if is_plain else f" ({report.name} at {report.upstream})"
        spent = f"{report.requests} requests in {report.seconds:g} s"
        self._print(f"{report.model}{where}: {spent}")
        self._console.print(
            build_table(("capability", "result", "evidence"), self._list_findings())
        )
        self._console.print(
            build_table(("mode", "correct calls", "correct answers"), self._list_scores())
        )
        self._print(f"Recommended: {self._describe_mode()}")
        self._print(f"  {report.reason}.")
        if shared:
            self._print("  Gateways that share the store use it for the next hour.")
        self._print_advice(saved, wanted=wanted)

    def _describe_mode(self) -> str:
        report = self._report
        return f"{report.mode}, dialect {report.dialect}" if report.dialect else report.mode

    def _list_findings(self) -> Iterable[Sequence[str]]:
        from ..evaluation.probe.trials import TITLES

        for name, finding in self._report.findings.items():
            value = finding.value
            word = str(value) if type(value) is int else _VALUES.get(value, str(value))
            yield TITLES[name], word, finding.evidence

    def _list_scores(self) -> Iterable[Sequence[str]]:
        from ..evaluation.probe.questions import CALL_QUESTIONS, QUESTIONS

        answers = len(QUESTIONS) - len(CALL_QUESTIONS)
        for score in self._report.scores:
            is_complete = score.asked == len(QUESTIONS)
            answered = f"{score.answers} of {answers}" if is_complete else "not tried"
            yield score.title, f"{score.calls} of {len(CALL_QUESTIONS)}", answered

    def _print_advice(self, saved: str | None, *, wanted: bool) -> None:
        advice = self._advice
        if saved:
            self._print(f"\nAdded to {saved}:\n")
        elif not advice.lines:
            self._print(f"\nNothing to change: {advice.obstacle}.")
        elif wanted:
            self._print(f"\nNothing was saved: {advice.obstacle}. The settings are:\n")
        else:
            self._print(f"\nTo make it permanent ({self._describe_saving()}):\n")
        if advice.lines:
            self._print(advice.lines)

    def _describe_saving(self) -> str:
        return self._advice.obstacle or f"--save adds this to {self._advice.file}"

    def _print(self, text: str) -> None:
        self._console.print(_text(text), soft_wrap=True)


def _text(text: str) -> Text:
    """Escape text that may quote a server."""
    return Text(escape_for_terminal(text))
