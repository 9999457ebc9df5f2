"""The workspace tools, as a model sees them.

    agent = Agent(model, tools=workspace_tools("~/project", writes=True), approval="ask")

Only reading is always included; editing and the shell must be requested.
"""

from __future__ import annotations

import os
from typing import Annotated

from ..tools import AgentTool, build_agent_tools, tool
from .folder import ConfinedFolder, WorkspaceError, open_folder, read_content
from .search import list_files, search_files
from .shell import run_command
from .text import decode_text, edit_file, format_page

SHELL = "shell"
"""The name of the tool that can do anything; each of its calls needs approval."""
DEFAULT_SECONDS = 60.0
MAX_SECONDS = 600.0
WorkspacePath = Annotated[str, "relative to the workspace folder, such as src/main.py"]


def workspace_tools(
    folder: str | os.PathLike[str], *, writes: bool = False, shell: bool = False
) -> tuple[AgentTool, ...]:
    """Return tools that read, list and search a folder; with `writes` one that edits, and with
    `shell` one that runs commands, which are not confined to the folder."""
    workspace = Workspace(open_folder(folder))
    functions = [workspace.read_file, workspace.list_files, workspace.search]
    functions += [workspace.edit_file] if writes else []
    return build_agent_tools([*functions, *([workspace.shell] if shell else [])])


class Workspace:
    """The tools as functions."""

    def __init__(self, folder: ConfinedFolder) -> None:
        self._folder = folder

    @tool(writes=False)
    def read_file(
        self,
        path: WorkspacePath,
        offset: Annotated[int | None, "the line to start from; the first is 1"] = None,
        limit: Annotated[int | None, "the maximum number of lines to return"] = None,
    ) -> str:
        """Read a text file. A long file is returned in parts."""
        return format_page(decode_text(read_content(self._folder, path)), offset, limit)

    @tool(writes=False)
    def list_files(
        self,
        path: WorkspacePath = ".",
        pattern: Annotated[
            str | None, "list the files in all subfolders that match it: *.py or src/**/*.py"
        ] = None,
    ) -> str:
        """List the files of a folder. Folders end with a slash."""
        return list_files(self._folder, path, pattern)

    @tool(writes=False)
    def search(
        self,
        pattern: Annotated[str, "a regular expression or plain text, matched against each line"],
        path: WorkspacePath = ".",
        glob: Annotated[str | None, "search only matching files: *.py or src/**/*.py"] = None,
    ) -> str:
        """Search the lines of files. Matches are returned as `path:line number: text`."""
        return search_files(self._folder, pattern, path, glob)

    @tool(writes=True)
    def edit_file(
        self,
        path: WorkspacePath,
        old: Annotated[
            str, "the text to replace, exactly as it is in the file; empty to create a file"
        ],
        new: Annotated[str, "the text to put there instead"],
        all: Annotated[bool, "replace every occurrence"] = False,  # noqa: A002 - models know it so
    ) -> str:
        """Replace text in a file, or create a file. `old` must occur once unless `all` is set."""
        return edit_file(self._folder, path, old, new, everywhere=all)

    # Its own timeout ends before the agent's, so that the output so far is returned.
    @tool(name=SHELL, writes=True, always_ask=True, timeout=MAX_SECONDS + 10)
    async def shell(
        self,
        command: str,
        timeout: Annotated[float, f"seconds, {MAX_SECONDS:g} at most"] = DEFAULT_SECONDS,
    ) -> str:
        """Run a shell command in the workspace folder. It gets no input, and no environment
        variables that look like secrets. Background processes are killed when it ends."""
        if not timeout > 0:
            raise WorkspaceError(f"`timeout` must be more than 0 seconds, got {timeout:g}.")
        return await run_command(command, self._folder.root, min(timeout, MAX_SECONDS))
