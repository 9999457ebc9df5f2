"""The tools of a folder, as a model sees them.

    agent = Agent(model, tools=workspace_tools("~/project", writes=True), approval="ask")

None is there unless it was asked for: reading always, changing and the shell each by their word.
"""

from __future__ import annotations

import os
from typing import Annotated

from ..tools import AgentTool, build_agent_tools, tool
from .commands import Ended, run
from .confined import Folder
from .editing import edit
from .files import read
from .listing import list_entries
from .problems import WorkspaceError
from .searching import search_files
from .text import FileText, page

SHELL = "shell"
"""The name of the tool that can do anything: somebody is asked before each of its calls."""
SECONDS = 60.0
MOST_SECONDS = 600.0
PathInside = Annotated[str, "seen from the folder, as in src/main.py"]


class Workspace:
    """A folder that a model may work in."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Folder(os.path.expanduser(folder))

    @property
    def root(self) -> str:
        """The folder's own path, without links."""
        return self._folder.root

    def tools(self, *, writes: bool = False, shell: bool = False) -> tuple[AgentTool, ...]:
        """The tools that read; with `writes` the one that edits, and with `shell` the shell."""
        given = [self.read_file, self.list_files, self.search]
        given += [self.edit_file] if writes else []
        return build_agent_tools([*given, *([self.shell] if shell else [])])

    @tool(writes=False)
    def read_file(
        self,
        path: PathInside,
        offset: Annotated[int | None, "the first line, from 1 on"] = None,
        limit: Annotated[int | None, "how many lines"] = None,
    ) -> str:
        """Read a text file. A long one comes in parts."""
        return page(FileText(read(self._folder, path)), offset, limit)

    @tool(writes=False)
    def list_files(
        self,
        path: PathInside = ".",
        pattern: Annotated[
            str | None, "looks into all folders below: *.py for names, src/**/*.py for paths"
        ] = None,
    ) -> str:
        """List the files of a folder. Folders end with a slash."""
        return list_entries(self._folder, path, pattern)

    @tool(writes=False)
    def search(
        self,
        pattern: Annotated[str, "a regular expression or plain text, to be found in one line"],
        path: PathInside = ".",
        glob: Annotated[str | None, "only in files like these: *.py, src/**/*.py"] = None,
    ) -> str:
        """Search in files. Gives lines as `path:line number: text`."""
        return search_files(self._folder, pattern, path, glob)

    @tool(writes=True)
    def edit_file(
        self,
        path: PathInside,
        old: Annotated[
            str, "the text to be replaced, exactly as it stands there; empty to create a file"
        ],
        new: Annotated[str, "the text to stand there instead"],
        all: Annotated[bool, "replace it wherever it stands"] = False,  # noqa: A002 - models know it so
    ) -> str:
        """Replace a text in a file, or create a file. `old` must stand there exactly once."""
        return edit(self._folder, path, old, new, everywhere=all)

    # It gives up by itself before an agent does, so that what it has said so far is told.
    @tool(name=SHELL, writes=True, always_ask=True, timeout=MOST_SECONDS + 10)
    async def shell(
        self,
        command: str,
        timeout: Annotated[float, f"seconds, {MOST_SECONDS:g} at most"] = SECONDS,
    ) -> str:
        """Run a shell command in the folder. It gets no input, and no variables that look like
        secrets. What it starts in the background ends with it."""
        if not timeout > 0:
            raise WorkspaceError(f"Expected seconds above 0, got {timeout:g} - at `$.timeout`")
        seconds = min(timeout, MOST_SECONDS)
        return _told(await run(command, self.root, seconds, os.environ), seconds)


def workspace_tools(
    folder: str | os.PathLike[str], *, writes: bool = False, shell: bool = False
) -> tuple[AgentTool, ...]:
    """Tools that read, list and search in a folder; with `writes` one that edits, and with `shell`
    one that runs commands, which nothing confines."""
    return Workspace(folder).tools(writes=writes, shell=shell)


def _told(ended: Ended, seconds: float) -> str:
    output = (
        ended.output if not ended.output or ended.output.endswith("\n") else f"{ended.output}\n"
    )
    if ended.code is None:
        return f"{output}[Killed after {seconds:g} s, with all that it had started.]"
    if ended.code < 0:
        return f"{output}[Ended by signal {-ended.code}.]"
    return f"{output}[Exit code {ended.code}.]"
