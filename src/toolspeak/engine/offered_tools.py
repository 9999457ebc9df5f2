"""The tools that a request offers, under names that every dialect can write.

mcp.files/read    ->  mcp_files_read          as the model sees it
mcp_files_read    ->  mcp.files/read          as the client declared it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import structs

from .._util import memoize_by_identity
from ..calls.tools import Toolset
from ..types import Note, Request, Tool, ToolCall
from ..wires.encoding import LossLog, NameRule, ToolNames, convert_freeform_tool
from ..wires.fields import HOSTED_TOOLS

PROMPT_NAME = "Prompt mode"
"""Stands in notes for the name of an API."""
_NAME_RULE = NameRule(r"\w\-", 64, "A-Za-z_")


class OfferedTools:
    """The tools that the model may call. Here, freeform tools take an object with one string."""

    def __init__(self, request: Request, aliases: Mapping[str, str] | None = None) -> None:
        """`aliases` are other names by which the model may call a tool, with the tool's name."""
        choice = request.tool_choice
        declared = self._declared = request.tools or ()
        self._names, self.all = _rename_tools(declared)
        if aliases:
            self.all = tuple(self._add_aliases(aliases))
        self.allowed: tuple[Tool, ...] = self.all
        """The tools that `tool_choice` allows; `all` are those of the request."""
        if choice.mode == "none":
            self.allowed = ()
        elif choice.names:
            chosen = [tool for tool in declared if tool.name in choice.names]
            names = {self._names.to_wire(tool.name, tool.namespace) for tool in chosen}
            self.allowed = tuple(tool for tool in self.all if tool.name in names)
        self.has_hosted_tools = bool(request.extra.get(HOSTED_TOOLS))
        """The upstream's API also runs tools of its own."""

    def _add_aliases(self, aliases: Mapping[str, str]) -> Iterator[Tool]:
        for declared, tool in zip(self._declared, self.all, strict=True):
            own = (alias for alias, name in aliases.items() if name == declared.name)
            yield structs.replace(tool, aliases=(*tool.aliases, *own))

    def to_model_call(self, call: ToolCall) -> ToolCall:
        """Return a call from the history under the name that the model knows."""
        name = self._names.to_wire(call.name, call.namespace)
        if name == call.name and call.namespace is None and not call.freeform:
            return call
        return structs.replace(call, name=name, namespace=None, freeform=False)

    def to_client_call(self, call: ToolCall) -> ToolCall:
        """Return a model's call under the name that the client declared."""
        tool = self._names.find_tool(call.name)
        if tool is None or (tool.name, tool.namespace, tool.freeform) == _identity_of(call):
            return call
        return structs.replace(
            call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform
        )

    @property
    def toolset(self) -> Toolset:
        """The tools that may be called."""
        return _toolset(self.allowed)

    def notes(self) -> tuple[Note, ...]:
        """Return a note for every property of the tools that a prompt cannot carry."""
        return (*_find_losses(self._declared), *self._names.notes)


def _identity_of(call: ToolCall) -> tuple[str, str | None, bool]:
    return call.name, call.namespace, call.freeform


_toolset = memoize_by_identity(Toolset)


@memoize_by_identity
def _rename_tools(declared: tuple[Tool, ...]) -> tuple[ToolNames, tuple[Tool, ...]]:
    names = ToolNames(declared, _NAME_RULE)
    losses = LossLog("", "")
    written = (
        structs.replace(
            convert_freeform_tool(tool, losses, "$.tools"),
            name=names.to_wire(tool.name, tool.namespace),
            namespace=None,
            freeform=tool.freeform,
        )
        for tool in declared
    )
    return names, tuple(written)


@memoize_by_identity
def _find_losses(declared: tuple[Tool, ...]) -> tuple[Note, ...]:
    losses = LossLog(PROMPT_NAME, "")
    for tool in declared:
        path = f"$.tools[{tool.name!r}]"
        losses.carry(convert_freeform_tool(tool, losses, path).extra, path)
    return losses.notes()
