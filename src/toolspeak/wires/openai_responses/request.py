"""Responses requests: decoded from a client, encoded for an upstream. Each setting is decoded and
encoded side by side; the items of the conversation are in `items.py`.

{"model": "m", "input": [{…}], "tools": [{"type": "function", "name": "f", "parameters": {…}}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ...types import Message, Note, Request, ResponseFormat, Thinking, Tool, ToolChoice
from ..content import as_plain_text, decode_tool, decode_tools, take_response_format
from ..encoding import EFFORTS, EncodedRequest, as_object_schema, choose_effort, omit_none
from ..fields import HOSTED_TOOLS, PRIVATE, Fields, Json, nest
from ..openai import (
    decode_tool_choice,
    is_hosted,
    list_chosen_tools,
    take_metadata,
)
from ..openai_chat.request import unpack_messages
from .items import INSTRUCTIONS, NAME, InputEncoder, decode_input

_SAMPLING = ("temperature", "top_p")
_MIN_TOKENS = 16
# Keys of a request's `extra`.
PREVIOUS_RESPONSE = f"{PRIVATE}previous_response_id"
"""The response that the request continues, if the conversation already contains it."""
_SUMMARY_STYLE = f"{PRIVATE}summary"
"""How reasoning is to be summarised, unless that is left to the model."""
_NAMESPACED_CHOICE = f"{PRIVATE}tool_choice"
"""A tool choice with namespaces."""
_HOSTED_CHOICE = "tool_choice"
"""A tool choice with hosted tools. Other APIs drop them with a note."""
_NAMESPACE = f"{PRIVATE}namespace"
"""In a hosted tool: the fields of its namespace."""


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = Fields(body)
    notes: list[Note] = []
    extra: Json = {}
    tools, hosted = decode_tools(fields, _decode_tool, "tools")
    if hosted:
        extra[HOSTED_TOOLS] = hosted
    is_streamed = fields.take("stream", bool)
    return Request(
        model=fields.take_text("model") or model,
        messages=unpack_messages(decode_input(fields, notes), notes, "$.input"),
        tools=tools,
        tool_choice=_decode_tool_choice(fields, extra),
        parallel_tool_calls=fields.take("parallel_tool_calls", bool) is not False,
        response_format=_decode_response_format(fields, extra),
        thinking=_decode_thinking(fields, extra),
        stream=bool(is_streamed if stream is None else stream),
        max_tokens=fields.take("max_output_tokens", int),
        sampling=fields.take_numbers(_SAMPLING),
        metadata=take_metadata(fields),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest() | extra,
    )


class ResponsesRequestEncoder(InputEncoder):
    def encode(self) -> EncodedRequest:
        body: Json = {"model": self.request.model, **self._encode_input(), **self.encode_settings()}
        if not self.is_same_wire:
            # Clients of other APIs send the whole conversation, so the upstream need not store
            # replies.
            body["store"] = False
            if (body.get("reasoning") or {}).get("effort", "none") != "none":
                body["include"] = ["reasoning.encrypted_content"]
        if self.request.stop:
            self.losses.drop("stop sequences", "$.stop")
        if self.request.stream:
            body["stream"] = True
        return self.finish("/responses", body)

    def _encode_input(self) -> Json:
        messages = list(enumerate(self.request.messages))
        instructions: Json = {}
        if messages and self._is_instructions_field(messages[0][1]):
            instructions["instructions"] = as_plain_text(messages.pop(0)[1].parts)
        encoded = [self.encode_message(one, f"$.messages[{index}]") for index, one in messages]
        return instructions | {"input": [item for items in encoded for item in items]}

    def _is_instructions_field(self, message: Message) -> bool:
        was_field = self.is_same_wire and message.extra.get(INSTRUCTIONS)
        return bool(was_field) and as_plain_text(message.parts) is not None

    def encode_settings(self) -> Json:
        """Encode all fields of a request but its model and its conversation."""
        request, extra = self.request, self.extra
        hosted = extra.pop(HOSTED_TOOLS, [])
        extra.pop(PREVIOUS_RESPONSE, None)
        choices = [extra.pop(key, None) for key in (_NAMESPACED_CHOICE, _HOSTED_CHOICE)]
        body: Json = {}
        if tools := self._encode_tools(hosted):
            choice = self._encode_tool_choice(next(filter(None, choices), None))
            body |= {"tools": tools} | omit_none(tool_choice=choice)
            if not request.parallel_tool_calls:
                body["parallel_tool_calls"] = False
        elif request.tools is not None and self.is_same_wire:
            body["tools"] = []
        text = omit_none(format=self.encode_response_format())
        body |= omit_none(
            text=text | (extra.pop("text", None) or {}) or None,
            reasoning=self._encode_thinking() | (extra.pop("reasoning", None) or {}) or None,
            max_output_tokens=self._encode_max_tokens(),
        )
        return body | self.encode_metadata() | self.encode_sampling(_SAMPLING) | extra

    def _encode_max_tokens(self) -> int | None:
        limit = self.request.max_tokens
        if self.is_same_wire or limit is None or limit >= _MIN_TOKENS:
            return limit
        message = f"A limit of {limit} tokens was sent as {_MIN_TOKENS}, the least allowed."
        self.losses.change(message, "$.max_tokens")
        return _MIN_TOKENS

    def _encode_thinking(self) -> Json:
        summary = self.extra.pop(_SUMMARY_STYLE, "auto") if self.request.thinking.shown else None
        thinking = replace(self.request.thinking, shown=None)
        return omit_none(effort=choose_effort(thinking, self.losses, EFFORTS), summary=summary)

    def _encode_tools(self, hosted: list[Json]) -> list[Json]:
        """Encode the tools, those of one namespace together."""
        tools: list[Json] = []
        namespaces: dict[str, list[Json]] = {}
        for tool in self.request.tools or ():
            item = self._encode_tool(tool)
            about = item.pop("namespace", {})
            if tool.namespace is None:
                tools.append(item)
            else:
                namespace = {"name": tool.namespace, **about}
                _open_namespace(namespace, namespaces, tools).append(item)
        for item in hosted:
            plain = {key: value for key, value in item.items() if key != _NAMESPACE}
            is_inside = _NAMESPACE in item
            target = _open_namespace(item[_NAMESPACE], namespaces, tools) if is_inside else tools
            target.append(plain)
        return tools

    def _encode_tool(self, tool: Tool) -> Json:
        extra = dict(tool.extra)
        grammar = extra.pop("format", None) if tool.freeform else None
        extra = dict(self.losses.carry(extra, f"$.tools[{tool.name!r}]"))
        item = {"name": self.encode_name(tool), "description": tool.description}
        if tool.freeform:
            return {"type": "custom", **item} | omit_none(format=_flatten_grammar(grammar)) | extra
        # By default this API is strict where it can be, and no other is.
        strict = False if tool.strict is None and not self.is_same_wire else tool.strict
        parameters = tool.parameters or (None if self.is_same_wire else as_object_schema({}))
        function = {"type": "function", **item, "parameters": parameters}
        return function | omit_none(strict=strict) | extra

    def _encode_tool_choice(self, original: Any) -> Any:
        """Encode the tool choice; as the client wrote it, if it has not changed since."""
        choice = self.request.tool_choice
        if original is not None and decode_tool_choice(original, "$.tool_choice") == choice:
            return self._rename_choice(original)
        return self.encode_tool_choice()

    def _rename_choice(self, choice: Json) -> Json:
        """Return the client's tool choice with the tool names that are sent."""
        if choice.get("type") == "allowed_tools":
            return choice | {"tools": [self._rename_choice(tool) for tool in choice["tools"]]}
        if is_hosted(choice):
            return choice
        return choice | {"name": self.names.to_wire(choice["name"], choice.get("namespace"))}


# Tools.


def _decode_tool(item: Any, path: str, namespace: str | None = None) -> Iterator[Tool | Json]:
    fields = Fields(item, path)
    match kind := fields.take_text("type") or "function":
        case "function" | "custom":
            yield decode_tool(fields, freeform=kind == "custom", namespace=namespace)
        case "namespace" if item.get("tools") and namespace is None:
            yield from _decode_namespace(fields)
        case _:
            yield item


def _decode_namespace(fields: Fields) -> Iterator[Tool | Json]:
    """Decode the tools of a namespace; each carries the namespace's own fields."""
    name, items = fields.require("name", str), fields.take_items("tools")
    about = fields.rest()
    for tool in (tool for item, path in items for tool in _decode_tool(item, path, name)):
        if isinstance(tool, Tool):
            yield replace(tool, extra=tool.extra | nest("namespace", about))
        else:
            yield tool | {_NAMESPACE: {"name": name, **about}}


def _open_namespace(
    about: Json, namespaces: dict[str, list[Json]], tools: list[Json]
) -> list[Json]:
    """Return the tools of a namespace so far; a new one is added to `tools`."""
    name = about["name"]
    if name not in namespaces:
        namespaces[name] = []
        namespace = {"type": "namespace", "description": name, **about, "tools": namespaces[name]}
        tools.append(namespace)
    return namespaces[name]


def _flatten_grammar(grammar: Any) -> Any:
    """Return the grammar of a freeform tool, which Chat Completions nests one level deeper."""
    inner = grammar.get("grammar") if isinstance(grammar, Mapping) else None
    return {"type": "grammar", **inner} if isinstance(inner, Mapping) else grammar


def _decode_tool_choice(fields: Fields, extra: Json) -> ToolChoice:
    """Decode the tool choice; a choice that other APIs cannot express also goes into `extra`."""
    given, path = fields.take_any("tool_choice"), fields.path_of("tool_choice")
    choice = decode_tool_choice(given, path)
    chosen = list_chosen_tools(given)
    if any(map(is_hosted, chosen)):
        extra[_HOSTED_CHOICE] = given
    elif any("namespace" in tool for tool in chosen):
        extra[_NAMESPACED_CHOICE] = given
    return choice


# Other settings.


def _decode_response_format(fields: Fields, extra: Json) -> ResponseFormat | None:
    """Decode `text.format`; the other fields of `text` go into `extra`."""
    text = fields.take_object("text") or Fields({})
    response_format = take_response_format(text, "format")
    if rest := text.rest():
        extra["text"] = rest
    return response_format


def _decode_thinking(fields: Fields, extra: Json) -> Thinking:
    """Decode `reasoning`; its fields that other APIs do not have go into `extra`."""
    reasoning = fields.take_object("reasoning")
    if reasoning is None:
        return Thinking()
    effort = reasoning.take("effort", str)
    summary = reasoning.take_text("summary", "generate_summary")
    if summary not in ("", "auto"):
        extra[_SUMMARY_STYLE] = summary
    if rest := reasoning.rest():
        extra["reasoning"] = rest
    return Thinking(effort=effort, shown=bool(summary))
