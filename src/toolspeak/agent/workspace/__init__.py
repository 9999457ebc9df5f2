"""Workspace tools: read, list, search and edit the files of one folder, and run shell commands.

workspace_tools("~/project")                              read_file, list_files, search
workspace_tools("~/project", writes=True, shell=True)     also edit_file and shell

`docs/workspace.md` lists what they protect against, and what they do not.
"""

from .folder import WorkspaceError
from .tools import SHELL, workspace_tools

__all__ = ["SHELL", "WorkspaceError", "workspace_tools"]
