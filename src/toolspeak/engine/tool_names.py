"""The tools of a request under the names that a model is told, and what those names mean."""

from __future__ import annotations

from msgspec import structs

from .._util import memoize_by_identity
from ..calls.toolset import Toolset
from ..types import Note, Request, Tool, ToolCall
from ..wires.encoding import LossLog, convert_freeform_tool
from ..wires.fields import HOSTED_TOOLS
from ..wires.names import NameRule, ToolNames

A_PROMPT = "a prompt"
"""What stands in notes for the name of a wire."""
_RULE = NameRule(r"\w\-", 64, "A-Za-z_")
"""Names that every dialect can write."""


class OfferedTools:
    """What a model may call: tools that take text take an object here, and names are plain."""

    def __init__(self, request: Request) -> None:
        choice = request.tool_choice
        declared = self._declared = request.tools or ()
        self._names, self.all = _written(declared)
        """`all` are the tools of the request."""
        self.tools: tuple[Tool, ...] = self.all
        """Those that may be called now."""
        if choice.mode == "none":
            self.tools = ()
        elif choice.names:
            chosen = [tool for tool in declared if tool.name in choice.names]
            allowed = {self._names.to_wire(tool.name, tool.namespace) for tool in chosen}
            self.tools = tuple(tool for tool in self.all if tool.name in allowed)
        self.has_hosted_tools = bool(request.extra.get(HOSTED_TOOLS))
        """The API itself runs other tools, whose calls are none of ours."""

    def to_model_call(self, call: ToolCall) -> ToolCall:
        """A call of the history, as the model would write it."""
        name = self._names.to_wire(call.name, call.namespace)
        if name == call.name and call.namespace is None and not call.freeform:
            return call
        return structs.replace(call, name=name, namespace=None, freeform=False)

    def to_client_call(self, call: ToolCall) -> ToolCall:
        """The call that the model has made, of the tool that it means."""
        tool = self._names.find_tool(call.name)
        if tool is None or (tool.name, tool.namespace, tool.freeform) == _same(call):
            return call
        return structs.replace(
            call, name=tool.name, namespace=tool.namespace, freeform=tool.freeform
        )

    @property
    def toolset(self) -> Toolset:
        """Those that may be called, to be found by name."""
        return _toolset(self.tools)

    def notes(self) -> tuple[Note, ...]:
        """What a prompt does not tell of the tools, or tells otherwise."""
        return (*_unsaid(self._declared), *self._names.notes)


def _same(call: ToolCall) -> tuple[str, str | None, bool]:
    return call.name, call.namespace, call.freeform


_toolset = memoize_by_identity(Toolset)


@memoize_by_identity
def _written(declared: tuple[Tool, ...]) -> tuple[ToolNames, tuple[Tool, ...]]:
    names = ToolNames(declared, _RULE)
    unsaid = LossLog("", "")
    written = (
        structs.replace(
            convert_freeform_tool(tool, unsaid, "$.tools"),
            name=names.to_wire(tool.name, tool.namespace),
            namespace=None,
            freeform=tool.freeform,
        )
        for tool in declared
    )
    return names, tuple(written)


@memoize_by_identity
def _unsaid(declared: tuple[Tool, ...]) -> tuple[Note, ...]:
    unsaid = LossLog(A_PROMPT, "")
    for tool in declared:
        path = f"$.tools[{tool.name!r}]"
        unsaid.carry(convert_freeform_tool(tool, unsaid, path).extra, path)
    return unsaid.notes()
