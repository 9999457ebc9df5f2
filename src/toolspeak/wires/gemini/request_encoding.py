"""Encodes a generateContent request for an upstream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from ...calls.tools import to_json_schema
from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from ..calls import ORIGINAL_ID
from ..content import part_type, render_document
from ..encoding import (
    EncodedRequest,
    NameRule,
    RequestEncoder,
    choose_effort,
    convert_freeform_tool,
    omit_none,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json, nest
from .parts import (
    NAME,
    ORIGINAL_PARAMETERS,
    ORIGINAL_RESPONSE,
    ORIGINAL_SCHEMA,
    PLACEHOLDERS,
    encode_call,
    encode_media,
    encode_signed_parts,
)
from .request_decoding import SAMPLING, decode_response, encode_response

_FULL_MODEL_NAMES = ("models/", "tunedModels/", "publishers/", "projects/")
_LEVELS = ("low", "medium", "high")
"""Some models have `minimal`, too."""
_BUDGET_BY_EFFORT = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}
"""For Gemini 2, which has no levels."""
_CANNOT_DISABLE = "Reasoning cannot be disabled; the lowest effort is sent."
_NEEDS_NO_SIGNATURES = re.compile("gemini-[12]")
_REFUSES_THINKING = re.compile(r"gemini-(1|2\.0)|-image|-tts")
"""Models that refuse every reasoning setting."""


def encode_request(request: Request) -> EncodedRequest:
    return GeminiRequestEncoder(request).encode()


def encode_model_path(model: str) -> str:
    """Return a model's name as part of a URL path, which it cannot escape from."""
    full = model if model.startswith(_FULL_MODEL_NAMES) else f"models/{model}"
    if any(step in (".", "..") for step in full.split("/")):
        raise WireError(f"{model!r} is not a model name", "$.model")
    return quote(full, safe="/:@")


class GeminiRequestEncoder(RequestEncoder):
    wire = NAME
    name_rule = NameRule(r"a-zA-Z0-9_.:\-", 64, "a-zA-Z_")

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._needs_signatures = not _NEEDS_NO_SIGNATURES.search(request.model)
        self._call_names: dict[str, str] = {}
        """The names of the calls by their ids."""

    def encode(self) -> EncodedRequest:
        request, extra = self.request, self.extra
        system, messages = self._split_system(request.messages)
        body: Json = {"contents": list(self._encode_messages(messages))}
        if system:
            body["systemInstruction"] = system
        body |= self._encode_tools()
        if config := self._encode_settings() | extra.pop("generationConfig", {}):
            body["generationConfig"] = config
        self.drop_metadata()
        action = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return self.finish(f"/{encode_model_path(request.model)}:{action}", body | extra)

    # Messages.

    def _split_system(
        self, messages: tuple[Message, ...]
    ) -> tuple[Json, list[tuple[Message, str]]]:
        """Return the system instruction, and the other messages with their paths."""
        system: Json = {}
        rest: list[tuple[Message, str]] = []
        for index, message in enumerate(messages):
            path = f"$.messages[{index}]"
            if message.role not in ("system", "developer"):
                rest.append((message, path))
                continue
            if rest:
                text = "Instructions within the conversation are moved to the system prompt."
                self.losses.change(text, path)
            if message.role == "developer":
                self.losses.change("A developer message becomes part of the system prompt.", path)
            parts = self._encode_parts(message, path)
            if parts:
                system.setdefault("parts", []).extend(parts)
                system |= self.losses.carry(message.extra, path)
        return system, rest

    def _encode_messages(self, messages: Iterable[tuple[Message, str]]) -> Iterator[Json]:
        """Encode contents as turns: the results of one turn's calls must stand in one content, and
        a turn of calls must follow one of the user's."""
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
                extra = self.losses.carry(part.extra, path)
                return {"text": part.text, "thought": True, **extra}
            case Image() | Document():
                return self._encode_media(part, path)
            case ToolCall():
                return self._encode_call(part, path)
            case ToolResult():
                return self._encode_result(part, path)
            case Other():
                if self.is_same_wire:
                    return dict(part.data)
                self.losses.drop(f"the part type `{part_type(part)}`", path)
                return {}

    def _encode_media(self, part: Image | Document, path: str) -> Json:
        extra = dict(self.losses.carry(part.extra, path))
        if isinstance(part, Document):
            if part.data is None and (part.text or part.url is None):
                self.losses.change("A document is sent as text.", path)
                return {"text": render_document(part), **extra}
            if part.title:
                self.losses.drop("titles of documents", path)
        elif part.detail not in (None, "auto"):
            self.losses.drop("`detail` of an image", path)
        source, key = encode_media(part, is_type_known=self.is_same_wire)
        return {key: {**source, **extra.pop(key, {})}, **extra}

    def _encode_call(self, call: ToolCall, path: str) -> Json:
        extra = dict(self.losses.carry(call.extra, path))
        extra.pop(ARGUMENTS_TEXT, None)
        name = self._call_names[call.id] = self.names.to_wire(call.name, call.namespace)
        encoded = encode_call(call, name, extra.pop(ORIGINAL_ID, call.id))
        return {"functionCall": {**encoded, **extra.pop("functionCall", {})}, **extra}

    def _encode_result(self, result: ToolResult, path: str) -> Json:
        extra = dict(self.losses.carry(result.extra, path))
        response = extra.pop(ORIGINAL_RESPONSE, None)
        if response is None or decode_response(response) != (result.text, result.is_error):
            response = encode_response(result.text, result.is_error)
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
        original = extra.pop(ORIGINAL_PARAMETERS, None)
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
                    message = "With a choice among tools, Gemini validates calls by their schemas."
                    self.losses.change(message, "$.tool_choice")
        return omit_none(mode=mode, allowedFunctionNames=names or None)

    def _encode_settings(self) -> Json:
        request = self.request
        out = self.encode_sampling(SAMPLING)
        out |= omit_none(
            maxOutputTokens=request.max_tokens,
            stopSequences=list(request.stop) or None,
            thinkingConfig=self._encode_thinking() or None,
        )
        return out | self._encode_response_format()

    def _encode_response_format(self) -> Json:
        form, original = self.request.response_format, self.extra.pop(ORIGINAL_SCHEMA, None)
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
            self.losses.drop("a reasoning budget beside an effort", "$.thinking")
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
            message = f"Effort {effort!r} is sent as a reasoning budget of {budget} tokens."
            self.losses.change(message, "$.thinking")
            return {"thinkingBudget": budget}
        if thinking.budget is None:
            return {"thinkingBudget": -1} if thinking.enabled else {}
        budget = min(max(thinking.budget, least), most)
        if budget != thinking.budget:
            message = f"The reasoning budget of {model} must be {least} to {most} tokens."
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
    """Tell whether a part of a result is nothing but text."""
    match part:
        case Image() | Other():
            return False
        case Document():
            return bool(part.text) or (part.data is None and part.url is None)
        case _:
            return True
