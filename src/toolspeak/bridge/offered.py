"""The tools of a request under the names that a model is told, and what those names mean."""

from __future__ import annotations

from msgspec import structs

from ..types import Note, Request, Tool, ToolCall
from ..wires.common import as_function
from ..wires.fields import HOSTED, Unsaid
from ..wires.names import NameRule, Names

A_PROMPT = "a prompt"
"""What stands in notes for the name of a wire."""
_RULE = NameRule(r"\w\-", 64, "A-Za-z_")
"""Names that every dialect can write."""


class Offered:
    """What a model may call: tools that take text take an object here, and names are plain."""

    def __init__(self, request: Request) -> None:
        choice = request.tool_choice
        declared = self._declared = request.tools or ()
        self._names = Names(declared, _RULE)
        self.all = tuple(map(self._written, declared))
        """Every tool of the request."""
        allowed = {self._names.write(tool.name, tool.namespace) for tool in declared}
        if choice.names:
            chosen = [tool for tool in declared if tool.name in choice.names]
            allowed = {self._names.write(tool.name, tool.namespace) for tool in chosen}
        if choice.mode == "none":
            allowed = set()
        self.tools = tuple(tool for tool in self.all if tool.name in allowed)
        """Those that may be called now."""
        self.more = bool(request.extra.get(HOSTED))
        """The API itself runs other tools, whose calls are none of ours."""

    def written(self, call: ToolCall) -> ToolCall:
        """A call of the history, as the model would write it."""
        name = self._names.write(call.name, call.namespace)
        return structs.replace(call, name=name, namespace=None, freeform=False)

    def meant(self, call: ToolCall) -> ToolCall:
        """The call that the model has made, of the tool that it means."""
        tool = self._names.read(call.name)
        if tool is None:
            return call
        return structs.replace(
            call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform
        )

    def notes(self) -> tuple[Note, ...]:
        """What a prompt does not tell of the tools, or tells otherwise."""
        unsaid = Unsaid(A_PROMPT, "")
        for tool in self._declared:
            path = f"$.tools[{tool.name!r}]"
            unsaid.carried(as_function(tool, unsaid, path).extra, path)
        return (*unsaid.notes(), *self._names.notes())

    def _written(self, tool: Tool) -> Tool:
        plain = as_function(tool, Unsaid("", ""), "$.tools")
        name = self._names.write(tool.name, tool.namespace)
        return structs.replace(plain, name=name, namespace=None, freeform=tool.freeform)
