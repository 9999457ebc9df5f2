"""Decodes a client's generateContent request; encodes one for an upstream. Its path holds the model
and whether to stream.

{"systemInstruction": {"parts": [{"text": "Be brief."}]},
 "contents": [{"role": "user", "parts": [{"text": "Weather in Oslo?"}]}],
 "tools": [{"functionDeclarations": [{"name": "get_weather", "parametersJsonSchema": {…}}]}],
 "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
 "generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"thinkingLevel": "HIGH"}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from msgspec import structs

from ..._util import format_json
from ...calls.schema import to_json_schema
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
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from ..calls import ORIGINAL_ID, CallHistory
from ..content import (
    as_result_content,
    decode_tool,
    decode_tools,
    part_type,
    render_document,
    split_result_messages,
)
from ..encoding import (
    EncodedRequest,
    LocatedMessage,
    NameRule,
    RequestEncoder,
    choose_effort,
    convert_freeform_tool,
    omit_none,
)
from ..fields import HOSTED_TOOLS, PRIVATE, Json, json_type, nest
from ..openai_chat.request import unpack_messages
from .parts import (
    NAME,
    PLACEHOLDERS,
    CamelCaseFields,
    decode_call,
    decode_media,
    decode_signature,
    encode_part,
    encode_signed_parts,
    is_other_part,
)

_ORIGINAL_RESPONSE = f"{PRIVATE}response"
"""In the `extra` of a result: the object that it came as."""
_ORIGINAL_PARAMETERS, _ORIGINAL_SCHEMA = f"{PRIVATE}parameters", f"{PRIVATE}responseSchema"
"""In the `extra` of a tool or request: a schema in Gemini's own form."""
_SAMPLING = {
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
_FULL_MODEL_NAMES = ("models/", "tunedModels/", "publishers/", "projects/")
_LEVELS = ("low", "medium", "high")
"""Some models have `minimal`, too."""
_BUDGET_BY_EFFORT = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}
"""For Gemini 2, which has no levels."""
_CANNOT_DISABLE = "Reasoning cannot be disabled; the lowest effort was sent."
_NEEDS_NO_SIGNATURES = re.compile("gemini-[12]")
_REFUSES_THINKING = re.compile(r"gemini-(1|2\.0)|-image|-tts")
"""Models that refuse every reasoning setting."""


# Decoding.


def decode_request(body: Any, *, model: str = "", stream: bool | None = None) -> Request:
    fields = CamelCaseFields(body)
    notes: list[Note] = []
    named = fields.take_text("model")
    decoded = (*_decode_system(fields, notes), *_decode_messages(fields, notes))
    messages = unpack_messages(decoded, notes, "$.contents")
    tools, hosted = decode_tools(fields, _decode_tool_group, "tools")
    choice, extra = _decode_tool_choice(fields, notes)
    config = fields.take_object("generationConfig") or CamelCaseFields({})
    sampling = {key: config.take_number(name) for key, name in _SAMPLING.items()}
    thinking, thinking_rest = _decode_thinking(config)
    response_format, format_extra = _decode_response_format(config)
    max_tokens, stop = config.take("maxOutputTokens", int), config.take_texts("stopSequences")
    extra = fields.rest() | format_extra | extra
    extra |= nest("generationConfig", thinking_rest | config.rest()) | nest(HOSTED_TOOLS, hosted)
    return Request(
        model=(model or named).removeprefix("models/"),
        messages=messages,
        tools=tools,
        tool_choice=choice,
        response_format=response_format,
        thinking=thinking,
        stream=bool(stream),
        max_tokens=max_tokens,
        stop=stop,
        sampling={key: value for key, value in sampling.items() if value is not None},
        wire=NAME,
        notes=tuple(notes),
        extra=extra,
    )


def _decode_system(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    value, path = fields.take_any("systemInstruction"), fields.path_of("systemInstruction")
    if value is None:
        return
    content = CamelCaseFields(_as_content(value), path)
    content.discard("role")
    parts = tuple(_decode_parts(content, CallHistory(notes)))
    if parts:
        yield Message("system", parts, content.rest())


def _decode_messages(fields: CamelCaseFields, notes: list[Note]) -> Iterator[Message]:
    history = CallHistory(notes)
    for item, path in fields.take_one_or_more("contents"):
        yield from _decode_message(CamelCaseFields(_as_content(item), path), history)


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
    role = fields.take_text("role") or "user"
    if role not in _ROLES:
        raise WireError(f"Expected `user` or `model`, got `{role}`", fields.path_of("role"))
    parts = _decode_parts(fields, history)
    yield from split_result_messages(_ROLES[role], parts, fields.rest())


def _decode_parts(fields: CamelCaseFields, history: CallHistory) -> list[Part]:
    parts: list[Part] = []
    for item, path in fields.take_one_or_more("parts"):
        if isinstance(item, str):
            parts.append(Text(item))
        else:
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
        identity, name, arguments, extra = decode_call(call, fields)
        path = call.path_of("args")
        parts.append(history.decode_call(identity, name, arguments, path, extra=extra))
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


def _decode_result(
    result: CamelCaseFields, part: CamelCaseFields, history: CallHistory
) -> ToolResult:
    identity, name = result.take_text("id"), result.take_text("name")
    call_id, name, extra = history.match_result(identity, name, result.path)
    response = result.take_any("response")
    text, is_error = _decode_response(response)
    content: list[Part] = [Text(text)] if text else []
    for item, path in result.take_items("parts"):
        content.append(decode_media(CamelCaseFields(item, path)) or Other(dict(item)))
    extra |= part.rest() | nest("functionResponse", result.rest())
    if response != _encode_response(text, is_error):
        extra[_ORIGINAL_RESPONSE] = response
    return ToolResult(
        call_id=call_id,
        name=name,
        content=as_result_content(content),
        is_error=is_error,
        extra=extra,
    )


def _decode_response(response: Any) -> tuple[str, bool]:
    """Return a result's response as text, and whether it is an error."""
    if isinstance(response, str):
        return response, False
    if not isinstance(response, dict):
        return ("" if response is None else format_json(response)), False
    is_error = bool(response.get("error"))
    if len(response) == 1:
        [(key, value)] = response.items()
        if isinstance(value, str) and (key in _TEXT_KEYS or is_error):
            return value, is_error
    return format_json(response), is_error


def _encode_response(text: str, is_error: bool) -> Json:
    return {"error" if is_error else "result": text}


def _decode_tool_group(item: Any, path: str) -> Iterator[Tool | Json]:
    """Yield the tools of a group, which may declare functions and name hosted tools."""
    group = CamelCaseFields(item, path)
    for declaration, at in group.take_one_or_more("functionDeclarations"):
        yield _decode_function(CamelCaseFields(declaration, at))
    yield from ({kind: settings} for kind, settings in group.rest().items())


def _decode_function(fields: CamelCaseFields) -> Tool:
    extra: Json = {}
    if not fields.has("parametersJsonSchema") and fields.has("parameters"):
        original, path = fields.take_any("parameters"), fields.path_of("parameters")
        extra = {_ORIGINAL_PARAMETERS: original}
        fields.update({"parametersJsonSchema": to_json_schema(original, path)})
    return decode_tool(fields, "parametersJsonSchema", extra)


def _decode_tool_choice(fields: CamelCaseFields, notes: list[Note]) -> tuple[ToolChoice, Json]:
    """Return the tool choice, and as `extra` what only this API supports."""
    outer = fields.take_object("toolConfig")
    if outer is None:
        return ToolChoice(), {}
    config = outer.take_object("functionCallingConfig") or CamelCaseFields({})
    mode = (config.take_text("mode") or "AUTO").upper()
    if mode not in _CHOICES:
        expected = ", ".join(f"`{name}`" for name in _CHOICES)
        raise WireError(f"Expected one of {expected}, got `{mode}`", config.path_of("mode"))
    names = tuple(map(str, config.take("allowedFunctionNames", list) or ()))
    if config.take_any("streamFunctionCallArguments"):
        # Gemini streams arguments as values at paths, as no other API does. Streaming is optional.
        message = "Arguments were not streamed; each call was sent whole."
        notes.append(Note("unsupported", message, config.path_of("streamFunctionCallArguments")))
    rest = outer.rest() | nest("functionCallingConfig", config.rest())
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
    extra = {_ORIGINAL_SCHEMA: schema} if key == "responseSchema" else {}
    return ResponseFormat(to_json_schema(schema, path)), extra


def _decode_thinking(config: CamelCaseFields) -> tuple[Thinking, Json]:
    """Return the reasoning settings, and what remains of `generationConfig.thinkingConfig`."""
    settings = config.take_object("thinkingConfig")
    if settings is None:
        return Thinking(), {}
    shown, budget = settings.take("includeThoughts", bool), settings.take("thinkingBudget", int)
    level = settings.take_text("thinkingLevel").lower().removeprefix("thinking_level_unspecified")
    # A budget of -1 leaves it to the model, and 0 disables reasoning.
    enabled = {-1: True, 0: False}.get(budget) if budget is not None else None
    thinking = Thinking(enabled, level or None, None if enabled is not None else budget, shown)
    return thinking, nest("thinkingConfig", settings.rest())


# Encoding.


def encode_model_path(model: str) -> str:
    """Return a model's name as part of a URL path, which it cannot escape from."""
    full = model if model.startswith(_FULL_MODEL_NAMES) else f"models/{model}"
    if any(step in (".", "..") for step in full.split("/")):
        raise WireError(f"{model!r} is not a model name", "$.model")
    return quote(full, safe="/:@")


class GeminiRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = NameRule(r"a-zA-Z0-9_.:\-", 64, "a-zA-Z_")

    def __init__(self, request: Request, *, has_cache_control: bool = False) -> None:
        super().__init__(request, has_cache_control=has_cache_control)
        self._needs_signatures = not _NEEDS_NO_SIGNATURES.search(request.model)
        self._call_names: dict[str, str] = {}
        """The names of the calls by their ids."""

    def encode(self) -> EncodedRequest:
        request, extra = self.request, self.extra
        instructions, messages = self.split_system(request.messages)
        system = self._encode_system(instructions)
        body: Json = {"contents": list(self._encode_messages(messages)), **system}
        body |= self._encode_tools()
        settings = self._encode_settings() | extra.pop("generationConfig", {})
        body |= nest("generationConfig", settings)
        self.drop_metadata()
        action = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return self.finish(f"/{encode_model_path(request.model)}:{action}", body | extra)

    # Messages.

    def _encode_system(self, instructions: list[LocatedMessage]) -> Json:
        system: Json = {}
        for message, path in instructions:
            if parts := self._encode_parts(message, path):
                system.setdefault("parts", []).extend(parts)
                system |= self.losses.carry(message.extra, path)
        return nest("systemInstruction", system)

    def _encode_messages(self, messages: Iterable[LocatedMessage]) -> Iterator[Json]:
        """Encode messages as turns: the results of one turn's calls must be in one content, and a
        turn of calls must follow a turn of the user."""
        turn: Json = {}
        can_join = False
        for message, path in messages:
            role = "model" if message.role == "assistant" else "user"
            extra = self.losses.carry(message.extra, path)
            parts = self._encode_parts(message, path)
            is_reply = role == "model" and not self.is_same_wire
            is_joined = is_reply or any("functionResponse" in part for part in parts)
            if not parts and not self.is_same_wire:
                self.losses.drop("empty messages", path)
            elif turn and role == turn["role"] and not extra and (can_join or is_joined):
                turn["parts"] += parts
                can_join = True
            else:
                if turn:
                    yield turn
                turn = {"role": role, "parts": parts, **extra}
                can_join = is_joined
        if turn:
            yield turn

    def _encode_parts(self, message: Message, path: str) -> list[Json]:
        """Encode the parts of a message. The first call gets a placeholder if it has no signature:
        Gemini 3 refuses it otherwise."""
        parts = encode_signed_parts(message.parts, lambda part: self._encode_part(part, path))
        if self._needs_signatures:
            first = next((part for part in parts if "functionCall" in part), None)
            if first is not None:
                first.setdefault("thoughtSignature", PLACEHOLDERS[0])
        return parts

    def _encode_part(self, part: Part, path: str) -> Json:
        match part:
            case Text():
                extra = self.losses.carry(part.extra, path)
                is_empty = not part.text and not self.is_same_wire
                return {} if is_empty else {"text": part.text, **extra}
            case Reasoning():
                return encode_part(part, self.losses.carry(part.extra, path))
            case Image() | Document():
                return self._encode_media(part, path)
            case ToolCall():
                name = self._call_names[part.id] = self.names.to_wire(part.name, part.namespace)
                return encode_part(part, self.losses.carry(part.extra, path), name)
            case ToolResult():
                return self._encode_result(part, path)
            case Other():
                if self.is_same_wire:
                    return dict(part.data)
                self.losses.drop(f"the part type `{part_type(part)}`", path)
                return {}

    def _encode_media(self, part: Image | Document, path: str) -> Json:
        extra = self.losses.carry(part.extra, path)
        if isinstance(part, Document):
            if part.data is None and (part.text or part.url is None):
                self.losses.change("A document was sent as text.", path)
                return {"text": render_document(part), **extra}
            if part.title:
                self.losses.drop("document titles", path)
        elif part.detail not in (None, "auto"):
            self.losses.drop("`detail` of an image", path)
        return encode_part(part, extra, is_type_known=self.is_same_wire)

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        extra = dict(self.losses.carry(result.extra, path))
        response = extra.pop(_ORIGINAL_RESPONSE, None)
        if response is None or _decode_response(response) != (result.text, result.is_error):
            response = _encode_response(result.text, result.is_error)
        identity = extra.pop(ORIGINAL_ID, result.call_id) or None
        name = self._call_names.get(result.call_id) or self.names.to_wire(result.name)
        encoded = omit_none(id=identity, name=name, response=response)
        content = () if isinstance(result.content, str) else result.content
        parts = [self._encode_part(part, path) for part in content if not _is_text(part)]
        if any(parts):
            encoded["parts"] = list(filter(None, parts))
        return {"functionResponse": {**encoded, **extra.pop("functionResponse", {})}, **extra}

    # Tools and settings.

    def _encode_tools(self) -> Json:
        hosted: list[Json] = self.extra.pop(HOSTED_TOOLS, [])
        config = dict(self.extra.pop("toolConfig", {}))
        choice = self._encode_tool_choice() | config.pop("functionCallingConfig", {})
        declared = [self._encode_tool(tool) for tool in self.request.tools or ()]
        tools = [{"functionDeclarations": declared}, *hosted] if declared else hosted
        if choice and declared:
            config = {"functionCallingConfig": choice, **config}
        has_tools = tools or (self.request.tools is not None and self.is_same_wire)
        return ({"tools": tools} if has_tools else {}) | nest("toolConfig", config)

    def _encode_tool(self, tool: Tool) -> Json:
        path = f"$.tools[{tool.name!r}]"
        sent = convert_freeform_tool(tool, self.losses, path)
        if sent.strict:
            self.losses.drop("strict tools", path)
        out: Json = {"name": self.encode_name(tool)}
        out |= omit_none(description=sent.description or None)
        extra = dict(self.losses.carry(sent.extra, path))
        original = extra.pop(_ORIGINAL_PARAMETERS, None)
        if original is not None and to_json_schema(original, path) == sent.parameters:
            out["parameters"] = original
        elif sent.parameters:
            out["parametersJsonSchema"] = sent.parameters
        return out | extra

    def _encode_tool_choice(self) -> Json:
        choice = self.request.tool_choice
        if not self.request.parallel_tool_calls and self.request.tools:
            self.losses.drop("`parallel_tool_calls: false`", "$.parallel_tool_calls")
        names = self.encode_choice_names()
        match choice.mode:
            case "none":
                return {"mode": "NONE"}
            case "required":
                mode = "ANY"
            case "auto":
                mode = "VALIDATED" if choice.validated or names else None
                if names and not choice.validated:
                    message = (
                        "Gemini's mode `VALIDATED` was used: if no call is required, only this "
                        "mode can limit the choice of tools. It also validates calls."
                    )
                    self.losses.change(message, "$.tool_choice")
        return omit_none(mode=mode, allowedFunctionNames=names or None)

    def _encode_settings(self) -> Json:
        request = self.request
        sampling = self.encode_sampling(_SAMPLING)
        out: Json = {_SAMPLING[key]: value for key, value in sampling.items()}
        out |= omit_none(
            maxOutputTokens=request.max_tokens,
            stopSequences=list(request.stop) or None,
            thinkingConfig=self._encode_thinking() or None,
        )
        return out | self._encode_response_format()

    def _encode_response_format(self) -> Json:
        form, original = self.request.response_format, self.extra.pop(_ORIGINAL_SCHEMA, None)
        if form is None:
            return {}
        kind = {"responseMimeType": "application/json"}
        if original is not None and to_json_schema(original, "$") == form.schema:
            return {**kind, "responseSchema": original}
        return kind | omit_none(responseJsonSchema=form.schema)

    def _encode_thinking(self) -> Json:
        """Encode a budget or a level, of which a model accepts only one."""
        thinking, model = self.request.thinking, self.request.model
        effort, budget = thinking.effort, thinking.budget
        is_off = thinking.enabled is False or effort == "none" or budget == 0
        shown = omit_none(includeThoughts=thinking.shown)
        if self.is_same_wire:
            if is_off or (thinking.enabled and budget is None and effort is None):
                budget = 0 if is_off else -1
            level = effort.upper() if effort and not is_off else None
            return shown | omit_none(thinkingBudget=budget, thinkingLevel=level)
        if _REFUSES_THINKING.search(model):
            if (thinking.enabled or effort or budget) and not is_off:
                self.losses.drop(f"a reasoning effort or budget for {model}", "$.thinking")
            return {}
        if effort and budget and not is_off:
            self.losses.drop("a reasoning budget together with an effort", "$.thinking")
        return shown | (
            self._encode_budget(is_off) if "gemini-2" in model else self._encode_level(is_off)
        )

    def _encode_budget(self, is_off: bool) -> Json:
        """Encode a budget for Gemini 2, whose models each have a minimum and a maximum."""
        thinking, model = self.request.thinking, self.request.model
        is_pro = "-pro" in model
        least, most = (128, 32_768) if is_pro else (512 if "-lite" in model else 1, 24_576)
        if is_off and is_pro:
            self.losses.change(_CANNOT_DISABLE, "$.thinking")
            return {"thinkingBudget": least}
        if is_off:
            return {"thinkingBudget": 0}
        if thinking.effort:
            effort: Any = choose_effort(thinking, self.losses, _BUDGET_BY_EFFORT)
            budget = _BUDGET_BY_EFFORT[effort]
            message = f"Effort {effort!r} was sent as a reasoning budget of {budget} tokens."
            self.losses.change(message, "$.thinking")
            return {"thinkingBudget": budget}
        if thinking.budget is None:
            return {"thinkingBudget": -1} if thinking.enabled else {}
        budget = min(max(thinking.budget, least), most)
        if budget != thinking.budget:
            message = (
                f"A reasoning budget of {thinking.budget} tokens was sent as {budget}: {model} "
                f"allows {least} to {most}."
            )
            self.losses.change(message, "$.thinking")
        return {"thinkingBudget": budget}

    def _encode_level(self, is_off: bool) -> Json:
        """Encode a level for Gemini 3 and later, which reason by default, and some always."""
        thinking = self.request.thinking
        if is_off:
            self.losses.change(_CANNOT_DISABLE, "$.thinking")
            return {"thinkingLevel": "LOW"}
        if thinking.effort:
            supported = ("low", "high") if "gemini-3-pro" in self.request.model else _LEVELS
            level: Any = choose_effort(thinking, self.losses, supported)
            return {"thinkingLevel": level.upper()}
        return omit_none(thinkingBudget=thinking.budget)


def _is_text(part: Part) -> bool:
    """Return True if a part of a result is nothing but text."""
    match part:
        case Image() | Other():
            return False
        case Document():
            return bool(part.text) or (part.data is None and part.url is None)
        case _:
            return True
