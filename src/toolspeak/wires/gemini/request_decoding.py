"""Decodes a client's generateContent request. Its path holds the model and whether to stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ..._util import encode_json
from ...calls.tools import to_json_schema
from ...errors import WireError
from ...types import (
    Message,
    Note,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import ORIGINAL_ID, CallHistory
from ..content import as_result_content, split_results
from ..fields import HOSTED_TOOLS, Json, json_type, memoize_by_json, nest
from .parts import (
    NAME,
    ORIGINAL_PARAMETERS,
    ORIGINAL_RESPONSE,
    ORIGINAL_SCHEMA,
    CamelCaseFields,
    decode_media,
    decode_signature,
    is_other_part,
)

SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_ROLES: dict[str, Role] = {
    "user": "user",
    "function": "user",
    "tool": "user",
    "model": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_TEXT_KEYS = ("result", "output", "content")
"""Keys under which a result is plain text."""
_CHOICES: dict[str, ToolChoice] = {
    "AUTO": ToolChoice(),
    "MODE_UNSPECIFIED": ToolChoice(),
    "ANY": ToolChoice("required"),
    "NONE": ToolChoice("none"),
    "VALIDATED": ToolChoice("auto", validated=True),
}


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = CamelCaseFields(body)
    notes: list[Note] = []
    named = fields.take_text("model")
    messages = (*_decode_system(fields, notes), *_decode_messages(fields, notes))
    tools, hosted = _decode_tools(fields)
    choice, extra = _decode_tool_choice(fields, notes)
    config = fields.take_object("generationConfig") or CamelCaseFields({})
    sampling = {key: config.take_number(word) for key, word in SAMPLING.items()}
    thinking, thinking_rest = _decode_thinking(config)
    response_format, schema_extra = _decode_response_format(config)
    settings: Json = {
        "response_format": response_format,
        "thinking": thinking,
        "max_tokens": config.take("maxOutputTokens", int),
        "stop": config.take_texts("stopSequences"),
        "sampling": {key: value for key, value in sampling.items() if value is not None},
    }
    extra = fields.rest() | schema_extra | extra
    extra |= nest("generationConfig", thinking_rest | config.rest())
    extra |= {HOSTED_TOOLS: hosted} if hosted else {}
    return Request(
        model=(model or named).removeprefix("models/"),
        messages=messages,
        tools=tools,
        tool_choice=choice,
        stream=bool(stream),
        wire=NAME,
        notes=tuple(notes),
        extra=extra,
        **settings,
    )


# Messages.


def _decode_system(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    given, path = fields.take_any("systemInstruction"), fields.path_of("systemInstruction")
    if given is None:
        return
    content = CamelCaseFields(_as_content(given), path)
    content.discard("role")
    parts = tuple(_decode_parts(content, CallHistory(notes)))
    if parts:
        yield Message("system", parts, content.rest())


def _decode_messages(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    given, path = fields.take_any("contents"), fields.path_of("contents")
    history = CallHistory(notes)
    for index, item in enumerate(given if isinstance(given, list) else [given]):
        if item is not None:
            content = CamelCaseFields(_as_content(item), f"{path}[{index}]")
            yield from _decode_message(content, history)


def _as_content(value: Any) -> Any:
    """Wrap a text, parts or a part into a content object."""
    if isinstance(value, str):
        return {"parts": [{"text": value}]}
    if isinstance(value, list):
        return {"parts": value}
    if isinstance(value, dict) and value and not value.keys() & {"parts", "role"}:
        return {"parts": [value]}
    return value


def _decode_message(fields: CamelCaseFields, history: CallHistory) -> Iterator[Message]:
    word = fields.take_text("role") or "user"
    if word not in _ROLES:
        raise WireError(f"Expected `user` or `model`, got `{word}`", fields.path_of("role"))
    parts = _decode_parts(fields, history)
    yield from split_results(_ROLES[word], parts, fields.rest())


def _decode_parts(fields: CamelCaseFields, history: CallHistory) -> list[Part]:
    parts: list[Part] = []
    given = fields.take_any("parts")
    for index, item in enumerate(given if isinstance(given, list) else [given]):
        path = f"{fields.path_of('parts')}[{index}]"
        if isinstance(item, str):
            parts.append(Text(item))
        elif item is not None:
            _decode_part(CamelCaseFields(item, path), item, parts, history)
    return parts


def _decode_part(
    fields: CamelCaseFields, item: Json, parts: list[Part], history: CallHistory
) -> None:
    """Append a part. Its signature belongs to the reasoning before it."""
    if is_other_part(fields):
        parts.append(Other(dict(item)))
        return
    signature = decode_signature(fields)
    if fields.take("thought", bool):
        parts.append(Reasoning(fields.take_text("text"), signature, fields.rest()))
        return
    if signature:
        _sign_reasoning(parts, signature)
    if call := fields.take_object("functionCall"):
        parts.append(_decode_call(call, fields, history))
    elif result := fields.take_object("functionResponse"):
        parts.append(_decode_result(result, fields, history))
    elif fields.has("text"):
        text, extra = fields.take_text("text"), fields.rest()
        if text or extra or not signature:
            parts.append(Text(text, extra))
    elif media := decode_media(fields):
        parts.append(media)
    elif not signature:
        parts.append(Other(dict(item)))


def _sign_reasoning(parts: list[Part], signature: str) -> None:
    last = parts[-1] if parts else None
    if isinstance(last, Reasoning) and last.signature is None:
        parts[-1] = structs.replace(last, signature=signature)
    else:
        parts.append(Reasoning("", signature))


def _decode_call(call: CamelCaseFields, part: CamelCaseFields, history: CallHistory) -> ToolCall:
    identity = call.take_text("id")
    name, arguments = call.require("name", str), call.take_any("args")
    extra = part.rest() | nest("functionCall", call.rest())
    extra |= {} if identity else {ORIGINAL_ID: ""}
    return history.decode_call(identity, name, arguments, call.path_of("args"), extra=extra)


def _decode_result(
    result: CamelCaseFields, part: CamelCaseFields, history: CallHistory
) -> ToolResult:
    identity, name = result.take_text("id"), result.take_text("name")
    call_id, name, extra = history.match_result(identity, name, result.path)
    response = result.take_any("response")
    text, is_error = decode_response(response)
    content: list[Part] = [Text(text)] if text else []
    for item, path in result.take_items("parts"):
        content.append(decode_media(CamelCaseFields(item, path)) or Other(dict(item)))
    extra |= part.rest() | nest("functionResponse", result.rest())
    if response != encode_response(text, is_error):
        extra[ORIGINAL_RESPONSE] = response
    return ToolResult(
        call_id=call_id,
        name=name,
        content=as_result_content(content),
        is_error=is_error,
        extra=extra,
    )


def decode_response(response: Any) -> tuple[str, bool]:
    """Return a result's response as text, and whether it is an error."""
    if isinstance(response, str):
        return response, False
    if not isinstance(response, dict):
        return ("" if response is None else encode_json(response)), False
    is_error = bool(response.get("error"))
    if len(response) == 1:
        [(key, value)] = response.items()
        if isinstance(value, str) and (key in _TEXT_KEYS or is_error):
            return value, is_error
    return encode_json(response), is_error


def encode_response(text: str, is_error: bool) -> Json:
    return {"error" if is_error else "result": text}


# Tools and settings.


@memoize_by_json("tools")
def _decode_tools(fields: CamelCaseFields) -> tuple[tuple[Tool, ...] | None, list[Json]]:
    """Return the tools that any model can be offered, and those that only Google can run."""
    if not fields.has("tools"):
        return None, []
    tools: list[Tool] = []
    hosted: list[Json] = []
    for item, path in fields.take_one_or_more("tools"):
        group = CamelCaseFields(item, path)
        for declaration, at in group.take_one_or_more("functionDeclarations"):
            tools.append(_decode_tool(CamelCaseFields(declaration, at)))
        hosted += [{kind: settings} for kind, settings in group.rest().items()]
    return tuple(tools), hosted


def _decode_tool(fields: CamelCaseFields) -> Tool:
    parameters = fields.take("parametersJsonSchema", dict)
    extra: Json = {}
    if parameters is None and fields.has("parameters"):
        original = fields.take_any("parameters")
        extra = {ORIGINAL_PARAMETERS: original}
        parameters = to_json_schema(original, fields.path_of("parameters"))
    return Tool(
        name=fields.require("name", str),
        description=fields.take_text("description"),
        parameters=parameters or {},
        extra=fields.rest() | extra,
    )


def _decode_tool_choice(fields: CamelCaseFields, notes: list[Note]) -> tuple[ToolChoice, Json]:
    """Return the tool choice, and as `extra` what only this API supports."""
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
        # Its pieces are values at paths, which no other API has, and which are optional.
        message = "Arguments are not streamed; they come in one piece."
        notes.append(Note("unsupported", message, config.path_of("streamFunctionCallArguments")))
    rest = given.rest() | nest("functionCallingConfig", config.rest())
    choice = structs.replace(_CHOICES[mode], names=names if mode != "NONE" else ())
    return choice, nest("toolConfig", rest)


def _decode_response_format(config: CamelCaseFields) -> tuple[ResponseFormat | None, Json]:
    """Return the response format, and as `extra` a schema in Gemini's own form."""
    kind = config.peek("responseMimeType")
    if kind not in (None, "application/json", "text/plain"):
        return None, {}
    config.discard("responseMimeType")
    key = "responseJsonSchema" if config.has("responseJsonSchema") else "responseSchema"
    schema, path = config.take_any(key), config.path_of(key)
    if schema is not None and not isinstance(schema, dict):
        raise WireError(f"Expected `object`, got `{json_type(schema)}`", path)
    if schema is None:
        return (ResponseFormat() if kind == "application/json" else None), {}
    extra = {ORIGINAL_SCHEMA: schema} if key == "responseSchema" else {}
    return ResponseFormat(to_json_schema(schema, path)), extra


def _decode_thinking(config: CamelCaseFields) -> tuple[Thinking, Json]:
    """Return the reasoning settings, and what remains of `generationConfig.thinkingConfig`."""
    given = config.take_object("thinkingConfig")
    if given is None:
        return Thinking(), {}
    shown, budget = given.take("includeThoughts", bool), given.take("thinkingBudget", int)
    level = given.take_text("thinkingLevel").lower().removeprefix("thinking_level_unspecified")
    # A budget of -1 leaves it to the model, and 0 disables reasoning.
    enabled = {-1: True, 0: False}.get(budget) if budget is not None else None
    thinking = Thinking(enabled, level or None, None if enabled is not None else budget, shown)
    return thinking, nest("thinkingConfig", given.rest())
