"""A client's generateContent request. The model, and whether to stream, stand in its address."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from msgspec import structs

from ..._util import encode_json
from ...calls.openapi import to_json_schema
from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Note,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..call_history import ORIGINAL_ID, CallHistory, decode_call, match_result
from ..fields import HOSTED_TOOLS, Json, json_type, memoize_by_json
from .parts import NAME, PARAMETERS, RESPONSE, SAMPLING, SCHEMA, CamelCaseFields, signature_in

_ROLES: dict[str, Any] = {
    "user": "user",
    "function": "user",
    "tool": "user",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_SAID = ("result", "output", "content")
"""Under which keys a result is nothing but text."""
_CHOICES: dict[str, ToolChoice] = {
    "AUTO": ToolChoice(),
    "MODE_UNSPECIFIED": ToolChoice(),
    "ANY": ToolChoice("required"),
    "NONE": ToolChoice("none"),
    "VALIDATED": ToolChoice("auto", validated=True),
}


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    """What a client asks for."""
    fields = CamelCaseFields(body)
    notes: list[Note] = []
    named = fields.take_text("model")
    messages = (*_system(fields, notes), *_contents(fields, notes))
    tools, hosted = _tools(fields)
    choice, left = _tool_choice(fields, notes)
    config = fields.take_object("generationConfig") or CamelCaseFields({})
    sampling = {key: config.take_number(word) for key, word in SAMPLING.items()}
    thinking, unknown = _thinking(config)
    form, own = _response_format(config)
    settings: Json = {
        "response_format": form,
        "thinking": thinking,
        "max_tokens": config.take("maxOutputTokens", int),
        "stop": config.take_texts("stopSequences"),
        "sampling": {key: value for key, value in sampling.items() if value is not None},
    }
    unknown |= config.rest()
    return Request(
        model=(model or named).removeprefix("models/"),
        messages=messages,
        tools=tools,
        tool_choice=choice,
        stream=bool(stream),
        wire=NAME,
        notes=tuple(notes),
        extra=fields.rest()
        | own
        | ({"generationConfig": unknown} if unknown else {})
        | ({"toolConfig": left} if left else {})
        | ({HOSTED_TOOLS: hosted} if hosted else {}),
        **settings,
    )


# Messages.


def _system(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    given, path = fields.take_any("systemInstruction"), fields.path_of("systemInstruction")
    if given is None:
        return
    content = CamelCaseFields(_as_content(given), path)
    content.take_any("role")
    parts = tuple(_parts(content, CallHistory(), notes))
    if parts:
        yield Message("system", parts, content.rest())


def _contents(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    given, path = fields.take_any("contents"), fields.path_of("contents")
    history = CallHistory()
    for index, item in enumerate(given if isinstance(given, list) else [given]):
        if item is not None:
            yield from _content(
                CamelCaseFields(_as_content(item), f"{path}[{index}]"), history, notes
            )


def _as_content(given: Any) -> Any:
    """Text alone, parts alone or a part alone, as content."""
    if isinstance(given, str):
        return {"parts": [{"text": given}]}
    if isinstance(given, list):
        return {"parts": given}
    if isinstance(given, dict) and given and not given.keys() & {"parts", "role"}:
        return {"parts": [given]}
    return given


def _content(fields: CamelCaseFields, history: CallHistory, notes: list[Note]) -> Iterator[Message]:
    """A message; the results in a user's content are one of their own."""
    word = fields.take_text("role") or "user"
    if word not in _ROLES:
        raise WireError(f"Expected `user` or `model`, got `{word}`", fields.path_of("role"))
    role = _ROLES[word]
    parts = list(_parts(fields, history, notes))
    extra = fields.rest()
    if role != "user" or not parts:
        yield Message(role, tuple(parts), extra)
        return
    for is_result, run in groupby(parts, lambda part: isinstance(part, ToolResult)):
        yield Message("tool" if is_result else "user", tuple(run), extra)
        extra = {}


def _parts(fields: CamelCaseFields, history: CallHistory, notes: list[Note]) -> list[Part]:
    parts: list[Part] = []
    given = fields.take_any("parts")
    for index, item in enumerate(given if isinstance(given, list) else [given]):
        path = f"{fields.path_of('parts')}[{index}]"
        if isinstance(item, str):
            parts.append(Text(item))
        elif item is not None:
            _part(CamelCaseFields(item, path), item, parts, history, notes)
    return parts


def _part(
    fields: CamelCaseFields, item: Json, parts: list[Part], history: CallHistory, notes: list[Note]
) -> None:
    """Add what a part says. Its signature goes to the thought before it."""
    if is_other(fields):
        parts.append(Other(dict(item)))
        return
    signature = signature_in(fields)
    if fields.take("thought", bool):
        parts.append(Reasoning(fields.take_text("text"), signature, fields.rest()))
        return
    if signature:
        _sign(parts, signature)
    if call := fields.take_object("functionCall"):
        parts.append(history.add(_call(call, fields, history, notes)))
    elif result := fields.take_object("functionResponse"):
        parts.append(_result(result, fields, history, notes))
    elif fields.has("text"):
        text, extra = fields.take_text("text"), fields.rest()
        if text or extra or not signature:
            parts.append(Text(text, extra))
    elif found := media(fields):
        parts.append(found)
    elif not signature:
        parts.append(Other(dict(item)))


_KNOWN = ("functionCall", "functionResponse", "text", "inlineData", "fileData")


def is_other(fields: CamelCaseFields) -> bool:
    """Whether a part is of a kind that only Gemini has. A picture in a thought is one."""
    kinds = [key for key in _KNOWN if fields.has(key)]
    if fields.peek("thought") is True:
        return kinds != ["text"]
    beside = fields.rest().keys() - {"thoughtSignature", "thought_signature"}
    return not kinds and (bool(beside) or not fields.has("thoughtSignature"))


def _sign(parts: list[Part], signature: str) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, Reasoning) and last.signature is None:
        parts[-1] = structs.replace(last, signature=signature)
    else:
        parts.append(Reasoning("", signature))


def _call(
    call: CamelCaseFields, part: CamelCaseFields, history: CallHistory, notes: list[Note]
) -> ToolCall:
    given = call.take_text("id")
    name, arguments = call.require("name", str), call.take_any("args")
    rest = call.rest()
    extra = part.rest() | ({"functionCall": rest} if rest else {})
    extra |= {} if given else {ORIGINAL_ID: ""}
    identity, path = given or history.new_id(), call.path_of("args")
    return decode_call(identity, name, arguments, path, notes, extra=extra)


def _result(
    result: CamelCaseFields, part: CamelCaseFields, history: CallHistory, notes: list[Note]
) -> ToolResult:
    given, named = result.take_text("id"), result.take_text("name")
    identity, name, own = match_result(history, given, named, result.path, notes)
    response = result.take_any("response")
    text, is_error = said_by(response)
    shown: list[Text | Image | Document | Other] = []
    for item, path in result.take_items("parts"):
        shown.append(media(CamelCaseFields(item, path)) or Other(dict(item)))
    rest = result.rest()
    extra = own | part.rest() | ({"functionResponse": rest} if rest else {})
    if response != response_of(text, is_error):
        extra[RESPONSE] = response
    content = (*([Text(text)] if text else []), *shown) if shown else text
    return ToolResult(call_id=identity, name=name, content=content, is_error=is_error, extra=extra)


def said_by(response: Any) -> tuple[str, bool]:
    """What a result says, as text, and whether that is an error."""
    if isinstance(response, str):
        return response, False
    if not isinstance(response, dict):
        return ("" if response is None else encode_json(response)), False
    is_error = bool(response.get("error"))
    if len(response) == 1:
        [(key, value)] = response.items()
        if isinstance(value, str) and (key in _SAID or is_error):
            return value, is_error
    return encode_json(response), is_error


def response_of(text: str, is_error: bool) -> Json:
    """A text as the object that a result has to be."""
    return {"error" if is_error else "result": text}


def media(fields: CamelCaseFields) -> Image | Document | None:
    """A picture or a file, by value or by address."""
    inline = fields.take_object("inlineData")
    source = inline or fields.take_object("fileData")
    if source is None:
        return None
    data = source.take_text("data") if inline else None
    url = None if inline else source.take_text("fileUri")
    kind = source.take_text("mimeType") or mimetypes.guess_type(url or "")[0] or ""
    rest = source.rest()
    extra = fields.rest() | ({"inlineData" if inline else "fileData": rest} if rest else {})
    if kind.startswith("image/"):
        return Image(url=url, data=data, media_type=kind, extra=extra)
    return Document(url=url, data=data, media_type=kind, extra=extra)


# Tools and settings.


@memoize_by_json("tools")
def _tools(fields: CamelCaseFields) -> tuple[tuple[Tool, ...] | None, list[Json]]:
    """The tools that may be offered to any model, and those that only Google can run."""
    if not fields.has("tools"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Json] = []
    for item, path in fields.take_one_or_more("tools"):
        group = CamelCaseFields(item, path)
        for declaration, at in group.take_one_or_more("functionDeclarations"):
            tools.append(_tool(CamelCaseFields(declaration, at)))
        hosted += [{kind: settings} for kind, settings in group.rest().items()]
    return tuple(tools), hosted


def _tool(fields: CamelCaseFields) -> Tool:
    parameters = fields.take("parametersJsonSchema", dict)
    own: Json = {}
    if parameters is None and fields.has("parameters"):
        own = {PARAMETERS: fields.take_any("parameters")}
        parameters = to_json_schema(own[PARAMETERS], fields.path_of("parameters"))
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=parameters or {},
        extra=fields.rest() | own,
    )


def _tool_choice(fields: CamelCaseFields, notes: list[Note]) -> tuple[ToolChoice, Json]:
    """Which tools may be called; and what else stood there."""
    given = fields.take_object("toolConfig")
    if given is None:
        return ToolChoice(), {}
    config = given.take_object("functionCallingConfig") or CamelCaseFields({})
    mode = (config.take_text("mode") or "AUTO").upper()
    if mode not in _CHOICES:
        expected = ", ".join(f"`{word}`" for word in _CHOICES)
        raise WireError(f"Expected one of {expected}, got `{mode}`", config.path_of("mode"))
    names = tuple(map(str, config.take("allowedFunctionNames", list) or ()))
    if config.take_any("streamFunctionCallArguments"):
        # Its pieces are values at paths, which no other API has, and nobody has to send them.
        message = "arguments come in one piece"
        notes.append(Note("unsupported", message, config.path_of("streamFunctionCallArguments")))
    rest = config.rest()
    left = given.rest() | ({"functionCallingConfig": rest} if rest else {})
    return structs.replace(_CHOICES[mode], names=names if mode != "NONE" else ()), left


def _response_format(config: CamelCaseFields) -> tuple[ResponseFormat | None, Json]:
    """What the answer has to be; and the schema, if it is of Gemini's own kind."""
    kind = config.peek("responseMimeType")
    if kind not in (None, "application/json", "text/plain"):
        return None, {}
    config.take_any("responseMimeType")
    key = "responseJsonSchema" if config.has("responseJsonSchema") else "responseSchema"
    schema, path = config.take_any(key), config.path_of(key)
    if schema is not None and not isinstance(schema, dict):
        raise WireError(f"Expected `object`, got `{json_type(schema)}`", path)
    if schema is None:
        return (ResponseFormat() if kind == "application/json" else None), {}
    own = {SCHEMA: schema} if key == "responseSchema" else {}
    return ResponseFormat(to_json_schema(schema, path)), own


def _thinking(config: CamelCaseFields) -> tuple[Thinking, Json]:
    """How much to think; and what no other API has a word for."""
    given = config.take_object("thinkingConfig")
    if given is None:
        return Thinking(), {}
    shown, budget = given.take("includeThoughts", bool), given.take("thinkingBudget", int)
    level = given.take_text("thinkingLevel").lower().removeprefix("thinking_level_unspecified")
    # -1 leaves the budget to the model, and 0 is no thinking at all.
    enabled = {-1: True, 0: False}.get(budget) if budget is not None else None
    rest = given.rest()
    thinking = Thinking(enabled, level or None, None if enabled is not None else budget, shown)
    return thinking, {"thinkingConfig": rest} if rest else {}
