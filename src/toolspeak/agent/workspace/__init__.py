"""A folder to work in: tools that read, list, search and edit below it, and a shell.

workspace_tools("~/project")                              read_file, list_files, search
workspace_tools("~/project", writes=True, shell=True)     edit_file and shell beside them

`docs/workspace.md` says what they are safe against, and what not.
"""

from .problems import WorkspaceError
from .tools import SHELL, Workspace, workspace_tools

__all__ = ["SHELL", "Workspace", "WorkspaceError", "workspace_tools"]
