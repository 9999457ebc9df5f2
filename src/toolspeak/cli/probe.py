"""Ask a model what it can do, and how it is best given tools."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .._util import escape_for_terminal
from ..errors import UsageError
from .io import write_json
from .serve import ConfigSource, add_config_arguments

if TYPE_CHECKING:
    from ..config.loading import LoadedConfig
    from ..evaluation.probe import ConfigAdvice, ProbeReport
    from ..upstream.catalog import Catalog, ResolvedModel

_VALUES: dict[Any, str] = {True: "yes", False: "no", None: "unknown"}
_INTERRUPTED = 130
"""The exit code after Ctrl-C."""
_NOT_SAVED = 1
"""The exit code where a verdict could not be written down."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", default="", help="as clients name it; or the default")
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="add the verdict to the file")


def run(options: argparse.Namespace) -> int:
    try:
        from ..evaluation.probe import advise_config, save_advice
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"the gateway needs {missing.name}: pip install 'toolspeak[gateway,local]'"
        ) from None
    aside = Console(stderr=True, highlight=False)
    loaded = ConfigSource(options, aside).load()
    try:
        report, served, shared = _probe_with_progress(options.model, loaded, aside)
    except KeyboardInterrupt:
        return _INTERRUPTED
    advised = advise_config(report, served, loaded)
    saves = options.save and not advised.obstacle
    saved = str(save_advice(advised, loaded, os.environ)) if saves else None
    if options.json:
        write_json(describe_report(report, advised, shared=shared, saved=saved))
    else:
        _ReportPrinter(report, advised).show(shared=shared, saved=saved, wanted=options.save)
    return _NOT_SAVED if options.save and advised.lines and not saved else 0


def _probe_with_progress(
    model: str, loaded: LoadedConfig, console: Console
) -> tuple[ProbeReport, ResolvedModel, bool]:
    """The same as `probed`, with a line that tells how far it is."""
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
    """The report on a model, which one that is, and whether gateways that run now know it."""
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
    """The model of that name, or the default one; `problem` is why there is no embedded one."""
    from ..upstream.catalog import UnknownModelError

    try:
        return catalog.resolve_exact(model or catalog.default_model)
    except UnknownModelError as unknown:
        if not problem:
            raise
        raise UsageError(f"{unknown} (no embedded model: {problem})") from None


async def _share_mode(report: ProbeReport, served: ResolvedModel, loaded: LoadedConfig) -> bool:
    """Tell the gateways that share a store what to do where `tools` is auto."""
    from ..store.base import MemoryStore, open_store
    from ..upstream.memory import Memory

    store = open_store(loaded.config.store)
    if isinstance(store, MemoryStore) or served.profile.mode != "auto":
        await store.close()
        return False
    await Memory(store).set_learned_mode(served.profile.upstream, served.profile.model, report.mode)
    is_kept = store.last_error is None
    await store.close()
    return is_kept


def describe_report(
    report: ProbeReport, advised: ConfigAdvice, *, shared: bool, saved: str | None = None
) -> dict[str, Any]:
    """A report for programs."""
    told: dict[str, Any] = to_builtins(report)
    return {**told, "toml": advised.lines, "shared": shared, "saved": saved}


class _ReportPrinter:
    """A report for people."""

    def __init__(self, report: ProbeReport, advised: ConfigAdvice) -> None:
        self._report = report
        self._advised = advised
        self._console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)

    def show(self, *, shared: bool, saved: str | None, wanted: bool) -> None:
        """Print it; `wanted` says that it was to be saved."""
        report = self._report
        is_plain = report.model == f"{report.upstream}/{report.name}"
        where = "" if is_plain else f" ({report.name} at {report.upstream})"
        spent = f"{report.requests} requests in {report.seconds:g} s"
        self._say(f"{report.model}{where}: {spent}")
        self._table(("capability", "found", "what was seen"), self._findings())
        self._table(("tools given by", "right calls", "right answers"), self._scores())
        self._say(f"Recommended: {self._mode()}")
        self._say(f"  {report.reason}.")
        if shared:
            self._say("  Gateways that share the store use it from now on, for an hour.")
        self._advise(saved, wanted=wanted)

    def _mode(self) -> str:
        report = self._report
        return f"{report.mode}, in the dialect {report.dialect}" if report.dialect else report.mode

    def _findings(self) -> Iterable[Sequence[str]]:
        from ..evaluation.probe.trials import TITLES

        for name, finding in self._report.findings.items():
            value = finding.value
            word = str(value) if type(value) is int else _VALUES.get(value, str(value))
            yield TITLES[name], word, finding.evidence

    def _scores(self) -> Iterable[Sequence[str]]:
        from ..evaluation.probe.questions import CALL_QUESTIONS, QUESTIONS

        answers = len(QUESTIONS) - len(CALL_QUESTIONS)
        for score in self._report.scores:
            is_whole = score.asked == len(QUESTIONS)
            answered = f"{score.answers} of {answers}" if is_whole else "not asked"
            yield score.title, f"{score.calls} of {len(CALL_QUESTIONS)}", answered

    def _advise(self, saved: str | None, *, wanted: bool) -> None:
        advised = self._advised
        if saved:
            self._say(f"\nAdded to {saved}:\n")
        elif not advised.lines:
            self._say(f"\nNothing to change: {advised.obstacle}.")
        elif wanted:
            self._say(f"\nNothing was saved: {advised.obstacle}. These lines say it:\n")
        else:
            self._say(f"\nTo have it so for good ({self._how()}):\n")
        if advised.lines:
            self._say(advised.lines)

    def _how(self) -> str:
        return self._advised.obstacle or f"--save adds this to {self._advised.file}"

    def _table(self, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        table = Table()
        for title in titles:
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*map(_text, row))
        self._console.print(table)

    def _say(self, text: str) -> None:
        self._console.print(_text(text), soft_wrap=True)


def _text(text: str) -> Text:
    """Servers have said some of it."""
    return Text(escape_for_terminal(text))
