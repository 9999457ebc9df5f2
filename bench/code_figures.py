"""Figures of the code itself: its size, its structure and its names.

    python -m bench.code_figures [--json]

Sizes and names come from the syntax trees of `src/toolspeak`. The modules and functions that one
request touches come from running it: a streamed request in prompt mode through a gateway in this
process, with a scripted upstream, and one call of `extract`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import statistics
import sys
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from tests.gateway.running_gateway import make_config, run_gateway
from tests.test_project import LAYERS, SOURCE

from toolspeak import Finish, TextDelta, extract
from toolspeak.testing import ScriptedServer

LEAVING_SOON = (
    "engine/guided",
    "engine/led.py",
)
"""Parts that will be removed; the size is given with and without them."""
SMALL_MODULE = 120
SHORT_FUNCTION, LONG_FUNCTION = 25, 50
VAGUE_OPENINGS = ("What", "Who", "Whether")
PARTICIPLE = re.compile(
    r"(?!embed|exceed|feed|need|proceed|seed|shed|speed)[a-z]{2,}ed|begun|bound|broken|brought|built|caught"
    r"|chosen|done|drawn|fed|forgotten|found|given|gone|grown|heard|held|hidden|kept|known|laid|led"
    r"|left|lent|lost|made|meant|met|paid|said|seen|sent|shown|sought|spent|spoken|sunk|taken|taught"
    r"|thought|told|understood|unsaid|won|worn|written"
)


class Module(NamedTuple):
    """One source file."""

    name: str
    """Its dotted name, such as `toolspeak.calls.schema`."""
    path: str
    """Its path below `src/toolspeak`."""
    is_package: bool
    lines: int
    tree: ast.Module

    @property
    def folder(self) -> str:
        return str(Path(self.path).parent)

    @property
    def leaves_soon(self) -> bool:
        return self.path.startswith(LEAVING_SOON)


def read_modules() -> list[Module]:
    modules: list[Module] = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        is_package = relative.stem == "__init__"
        parts = relative.with_suffix("").parts
        name = ".".join(("toolspeak", *(parts[:-1] if is_package else parts)))
        text = path.read_text()
        module = Module(name, str(relative), is_package, text.count("\n"), ast.parse(text))
        modules.append(module)
    return modules


def measure_size(modules: list[Module]) -> dict[str, Any]:
    folders: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "lines": 0})
    for module in modules:
        folders[module.folder]["files"] += 1
        folders[module.folder]["lines"] += module.lines
    staying = [module for module in modules if not module.leaves_soon]
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules),
        "files_that_stay": len(staying),
        "lines_that_stay": sum(module.lines for module in staying),
        "layers": len(LAYERS),
        "folders": dict(sorted(folders.items())),
    }


def find_single_importer_modules(modules: list[Module]) -> list[str]:
    """Return "path (lines) <- importer" of each small module that one other module imports.

    The commands of the command line are loaded by name, and the public names of the library belong
    to its users: neither is counted.
    """
    importers = _find_importers(modules)
    return [
        f"{module.path} ({module.lines}) <- {importer}"
        for module in modules
        if module.lines < SMALL_MODULE and not (module.is_package or module.leaves_soon)
        for importer in importers[module.name] - {"toolspeak"}
        if len(importers[module.name]) == 1 and not _is_command(module)
    ]


def _is_command(module: Module) -> bool:
    return module.folder == "cli" and any(
        isinstance(node, ast.FunctionDef) and node.name == "add_arguments"
        for node in module.tree.body
    )


def _find_importers(modules: list[Module]) -> dict[str, set[str]]:
    """Map each module's name to the modules that import it.

    A package's `__init__` only passes names on and is not an importer; importing a name from
    the package counts for the module that defines the name. `toolspeak` itself is an importer.
    """
    by_name = {module.name: module for module in modules}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        if module.is_package and module.name != "toolspeak":
            continue
        for imported, name in _find_imports(module):
            target = _resolve_import(imported, name, by_name)
            if target and target != module.name:
                importers[target].add(module.name)
    return importers


def _find_imports(module: Module) -> Iterator[tuple[str, str]]:
    """Yield each (module, name) that a module imports from inside the library."""
    parts = module.name.split(".")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            depth = len(parts) - node.level + module.is_package
            base = ".".join([*parts[:depth], *filter(None, [node.module])])
            yield from ((base, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolspeak"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _resolve_import(imported: str, name: str, by_name: dict[str, Module]) -> str | None:
    """Return the module that an imported name comes from."""
    if f"{imported}.{name}" in by_name:
        return f"{imported}.{name}"
    module = by_name.get(imported)
    if module and module.is_package:
        for base, passed_on in _find_imports(module):
            if passed_on == name and base != imported:
                return _resolve_import(base, name, by_name)
    return imported if module else None


def measure_functions(modules: list[Module]) -> dict[str, Any]:
    functions = [
        (f"{module.path}::{node.name}", node)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    sizes = sorted((_count_lines(node), where) for where, node in functions)
    lengths = [size for size, _ in sizes]
    named = [(where, node.name) for where, node in functions if not node.name.startswith("__")]
    one_word = [name for _, name in named if "_" not in name.strip("_")]
    participles = [where for where, name in named if is_lone_participle(name)]
    return {
        "functions": len(functions),
        "median_lines": statistics.median(lengths),
        "p90_lines": lengths[int(len(lengths) * 0.9)],
        "longest_lines": lengths[-1],
        "share_under_25_lines": sum(size < SHORT_FUNCTION for size in lengths) / len(lengths),
        "over_50_lines": [f"{where} ({size})" for size, where in sizes if size > LONG_FUNCTION],
        "share_of_one_word_names": len(one_word) / len(named),
        "share_of_lone_participles": len(participles) / len(named),
        "lone_participles": participles,
    }


def _count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def is_lone_participle(name: str) -> bool:
    return PARTICIPLE.fullmatch(name.strip("_")) is not None


def find_repeated_classes(modules: list[Module]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def find_vague_docstrings(modules: list[Module]) -> list[str]:
    """Return "path:line" of each docstring, also of an attribute, with a vague opening."""
    return [
        f"{module.path}:{node.lineno}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and node.value.value.split(maxsplit=1)[:1]
        and node.value.value.split(maxsplit=1)[0] in VAGUE_OPENINGS
    ]


class CallTrace:
    """The functions of the library that run while the trace is installed."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.functions.add(frame.f_code)

    def summarize(self) -> dict[str, Any]:
        per_folder: Counter[str] = Counter()
        per_file: Counter[str] = Counter()
        for code in self.functions:
            path = Path(code.co_filename)
            # Modules and class bodies run when they are imported: only functions are optimized.
            is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
            if not is_function or SOURCE not in path.parents:
                continue
            relative = path.relative_to(SOURCE)
            per_file[str(relative)] += 1
            per_folder[relative.parts[0]] += 1
        return {
            "modules": len(per_file),
            "functions": per_folder.total(),
            "functions_per_part": dict(per_folder.most_common()),
            "files": dict(sorted(per_file.items())),
        }


_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def trace_gateway_stream() -> dict[str, Any]:
    """Trace one streamed chat request with a tool, by a model that is prompted for calls."""
    deltas = [TextDelta("Let me look. "), *map(TextDelta, _CALL), Finish("stop")]
    trace = CallTrace()
    with ScriptedServer(deltas) as upstream:
        config = make_config(upstream.url, tools="prompt", dialect="hermes")
        with run_gateway(config) as gateway:
            # The first request loads modules and connects, neither of which is of interest.
            _post_chat(gateway.url, "warm_up")
            gateway.loop.call_soon_threadsafe(sys.setprofile, trace)
            reply = _post_chat(gateway.url, "get_weather")
            gateway.loop.call_soon_threadsafe(sys.setprofile, None)
    if '"tool_calls"' not in reply:
        raise RuntimeError(f"the gateway's reply has no call: {reply}")
    return trace.summarize()


def _post_chat(url: str, tool: str) -> str:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    body = {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": "How is the weather in Oslo?"}],
        "tools": [{"type": "function", "function": {"name": tool, "parameters": schema}}],
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read().decode()


def trace_extract() -> dict[str, Any]:
    """Trace `extract` of a text that holds one call."""
    trace = CallTrace()
    extract("Nothing to call.")  # It loads what is loaded lazily.
    sys.setprofile(trace)
    reply = extract(f"Let me look. {_CALL}")
    sys.setprofile(None)
    if not reply.calls:
        raise RuntimeError("extract found no call")
    return trace.summarize()


def collect_figures() -> dict[str, Any]:
    modules = read_modules()
    return {
        "size": measure_size(modules),
        "functions": measure_functions(modules),
        "single_importer_modules": find_single_importer_modules(modules),
        "repeated_classes": find_repeated_classes(modules),
        "vague_docstrings": find_vague_docstrings(modules),
        "gateway_stream": trace_gateway_stream(),
        "extract": trace_extract(),
    }


def build_summary(figures: dict[str, Any]) -> Table:
    size, functions = figures["size"], figures["functions"]
    table = Table("figure", "value", box=box.ASCII2, title="Code figures of src/toolspeak")
    rows: dict[str, str] = {
        "Python files": f"{size['files']}",
        "lines": f"{size['lines']:,}",
        "files without the parts that leave soon": f"{size['files_that_stay']}",
        "lines without the parts that leave soon": f"{size['lines_that_stay']:,}",
        "layers": f"{size['layers']}",
        f"modules with one importer, under {SMALL_MODULE} lines": str(
            len(figures["single_importer_modules"])
        ),
        "prompt-mode stream through the gateway": _describe_trace(figures["gateway_stream"]),
        "extract(text)": _describe_trace(figures["extract"]),
        "functions": f"{functions['functions']:,}",
        "function lines: median / 90 % / longest": (
            f"{functions['median_lines']:.0f} / {functions['p90_lines']} /"
            f" {functions['longest_lines']}"
        ),
        f"functions under {SHORT_FUNCTION} lines": f"{functions['share_under_25_lines']:.1%}",
        f"functions over {LONG_FUNCTION} lines": f"{len(functions['over_50_lines'])}",
        "one-word function names": f"{functions['share_of_one_word_names']:.1%}",
        "lone participles as function names": (
            f"{functions['share_of_lone_participles']:.1%} ({len(functions['lone_participles'])})"
        ),
        "class names defined more than once": f"{len(figures['repeated_classes'])}",
        "docstrings that begin with What, Who, Whether": f"{len(figures['vague_docstrings'])}",
    }
    for label, value in rows.items():
        table.add_row(label, value)
    return table


def _describe_trace(trace: dict[str, Any]) -> str:
    return f"{trace['modules']} modules, {trace['functions']} functions"


def build_folder_table(figures: dict[str, Any]) -> Table:
    table = Table("folder", box=box.ASCII2, title="Folders")
    for column in ("files", "lines", "lines per file"):
        table.add_column(column, justify="right")
    for folder, count in figures["size"]["folders"].items():
        files, lines = count["files"], count["lines"]
        table.add_row(folder, str(files), f"{lines:,}", f"{lines / files:.0f}")
    return table


def print_figures(figures: dict[str, Any], console: Console) -> None:
    console.print(build_summary(figures), build_folder_table(figures))
    repeated = [f"{name}: {', '.join(at)}" for name, at in figures["repeated_classes"].items()]
    lists: dict[str, list[str]] = {
        "Class names defined more than once": repeated,
        "Small modules with one importer": figures["single_importer_modules"],
        "Functions over 50 lines": figures["functions"]["over_50_lines"],
    }
    for title, lines in lists.items():
        console.print(f"\n{title}: {len(lines)}")
        for line in lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print figures of the code itself.")
    parser.add_argument("--json", action="store_true", help="print all figures and lists as JSON")
    options = parser.parse_args()
    figures = collect_figures()
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print_figures(figures, Console(highlight=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
