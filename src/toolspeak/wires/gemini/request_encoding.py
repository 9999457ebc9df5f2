"""A generateContent request to an upstream."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from ...calls.openapi import to_json_schema
from ...errors import WireError
from ...types import (
    Document,
    Image,
    Message,
    Other,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from ..call_history import ORIGINAL_ID
from ..content import part_type, render_document
from ..encoding import (
    LossLog,
    choose_effort,
    convert_freeform_tool,
    encode_choice_names,
    encode_sampling,
    name_tools,
    omit_none,
)
from ..fields import ARGUMENTS_TEXT, HOSTED_TOOLS, Json
from ..names import NameRule, ToolNames
from ..wire import EncodedRequest
from .parts import NAME, PARAMETERS, PLACEHOLDERS, RESPONSE, SAMPLING, SCHEMA
from .request_decoding import response_of, said_by

_NAMES = NameRule(r"a-zA-Z0-9_.:\-", 64, "a-zA-Z_")
_FULL_NAMES = ("models/", "tunedModels/", "publishers/", "projects/")
_LEVELS = ("low", "medium", "high")
"""Some models have a `minimal` one, too."""
_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}
"""For Gemini 2, which knows no levels."""
_LEAST = "thinking cannot be switched off; its effort is the least there is"
_NEEDS_NO_SIGNATURES = re.compile("gemini-[12]")
_TAKES_NO_WISHES = re.compile(r"gemini-(1|2\.0)|-image|-tts")
"""Models that refuse to be told how much to think."""


def encode_request(request: Request) -> EncodedRequest:
    """The request in this API's words."""
    unsaid = LossLog(NAME, request.wire)
    names = name_tools(request, _NAMES)
    extra = dict(unsaid.carry(request.extra, "$"))
    system, messages = _apart(request.messages, unsaid)
    body: Json = {"contents": list(_contents(messages, _Writer(names, unsaid, request.model)))}
    if system:
        body["systemInstruction"] = system
    body |= _tools(request, names, unsaid, extra)
    own = extra.pop(SCHEMA, None)
    if config := _config(request, own, unsaid) | extra.pop("generationConfig", {}):
        body["generationConfig"] = config
    for key in request.metadata:
        unsaid.drop(f"metadata.{key}", f"$.metadata.{key}")
    notes = (*unsaid.notes(), *names.notes)
    return EncodedRequest(_path(request), body | extra, names, notes)


def _path(request: Request) -> str:
    action = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return f"/{encode_model_path(request.model)}:{action}"


def encode_model_path(model: str) -> str:
    """A model's name as part of an address, of which it may not become anything else."""
    full = model if model.startswith(_FULL_NAMES) else f"models/{model}"
    if any(step in (".", "..") for step in full.split("/")):
        raise WireError(f"{model!r} is no name of a model", "$.model")
    return quote(full, safe="/:@")


# Messages.


def _apart(
    messages: tuple[Message, ...], unsaid: LossLog
) -> tuple[Json, list[tuple[Message, str]]]:
    """The system instruction, and the messages with their paths."""
    system: Json = {}
    rest: list[tuple[Message, str]] = []
    writer = _Writer(ToolNames((), _NAMES), unsaid)
    for index, message in enumerate(messages):
        path = f"$.messages[{index}]"
        if message.role not in ("system", "developer"):
            rest.append((message, path))
            continue
        if rest:
            unsaid.change("instructions within the conversation go to its start", path)
        if message.role == "developer":
            unsaid.change("a developer's message is part of the system instructions", path)
        parts = writer.parts(message, path)
        if parts:
            system.setdefault("parts", []).extend(parts)
            system |= unsaid.carry(message.extra, path)
    return system, rest


def _contents(messages: Iterable[tuple[Message, str]], writer: _Writer) -> Iterator[Json]:
    """Contents in turns: the results of one turn's calls have to stand in one, and a turn of calls
    has to follow one of the user's."""
    turn: Json = {}
    joins = False
    for message, path in messages:
        role = "model" if message.role == "assistant" else "user"
        extra = writer.unsaid.carry(message.extra, path)
        parts = writer.parts(message, path)
        is_reply = role == "model" and not writer.unsaid.is_same_wire
        joined = is_reply or any("functionResponse" in part for part in parts)
        if not parts and not writer.unsaid.is_same_wire:
            writer.unsaid.drop("an empty message", path)
        elif turn and role == turn["role"] and not extra and (joins or joined):
            turn["parts"] += parts
            joins = True
        else:
            if turn:
                yield turn
            turn = {"role": role, "parts": parts, **extra}
            joins = joined
    if turn:
        yield turn


class _Writer:
    """Writes the parts of a conversation."""

    def __init__(self, names: ToolNames, unsaid: LossLog, model: str = "") -> None:
        self._names = names
        self.unsaid = unsaid
        self._is_signed = not _NEEDS_NO_SIGNATURES.search(model)
        self._written: dict[str, str] = {}
        """The names of the calls, by their ids."""

    def parts(self, message: Message, path: str) -> list[Json]:
        """The parts of a message. Calls that nobody has signed get a placeholder: without one,
        Gemini 3 refuses the first call of a turn."""
        parts = signed(message.parts, lambda part: self._part(part, path), lambda text: text)
        first = next((part for part in parts if "functionCall" in part), None)
        if first is not None and self._is_signed:
            first.setdefault("thoughtSignature", PLACEHOLDERS[0])
        return parts

    def _part(self, part: Part, path: str) -> Json:
        match part:
            case Text():
                extra = self.unsaid.carry(part.extra, path)
                empty = not part.text and not self.unsaid.is_same_wire
                return {} if empty else {"text": part.text, **extra}
            case Reasoning():
                extra = self.unsaid.carry(part.extra, path)
                return {"text": part.text, "thought": True, **extra}
            case Image() | Document():
                return self._media(part, path)
            case ToolCall():
                return self._call(part, path)
            case ToolResult():
                return self._result(part, path)
            case Other():
                if self.unsaid.is_same_wire:
                    return dict(part.data)
                self.unsaid.drop(f"a part of the kind {part_type(part)!r}", path)
                return {}

    def _media(self, part: Image | Document, path: str) -> Json:
        extra = dict(self.unsaid.carry(part.extra, path))
        if isinstance(part, Document):
            if part.data is None and (part.text or part.url is None):
                self.unsaid.change("a document is written as text", path)
                return {"text": render_document(part), **extra}
            if part.title:
                self.unsaid.drop("the title of a document", path)
        elif part.detail not in (None, "auto"):
            self.unsaid.drop("how closely to look at a picture", path)
        source, key = media_out(part, known=self.unsaid.is_same_wire)
        return {key: {**source, **extra.pop(key, {})}, **extra}

    def _call(self, call: ToolCall, path: str) -> Json:
        extra = dict(self.unsaid.carry(call.extra, path))
        extra.pop(ARGUMENTS_TEXT, None)
        name = self._written[call.id] = self._names.to_wire(call.name, call.namespace)
        out = call_out(call, name, extra.pop(ORIGINAL_ID, call.id))
        return {"functionCall": {**out, **extra.pop("functionCall", {})}, **extra}

    def _result(self, result: ToolResult, path: str) -> Json:
        extra = dict(self.unsaid.carry(result.extra, path))
        response = extra.pop(RESPONSE, None)
        if response is None or said_by(response) != (result.text, result.is_error):
            response = response_of(result.text, result.is_error)
        identity = extra.pop(ORIGINAL_ID, result.call_id) or None
        name = self._written.get(result.call_id) or self._names.to_wire(result.name)
        out = omit_none(id=identity, name=name, response=response)
        content = () if isinstance(result.content, str) else result.content
        shown = [self._part(part, path) for part in content if _is_shown(part)]
        if any(shown):
            out["parts"] = list(filter(None, shown))
        return {"functionResponse": {**out, **extra.pop("functionResponse", {})}, **extra}


def _is_shown(part: Part) -> bool:
    """Whether a part of a result is more than text."""
    match part:
        case Image() | Other():
            return True
        case Document():
            return not part.text and (part.data is not None or part.url is not None)
        case _:
            return False


def signed(
    parts: Iterable[Part], write: Callable[[Part], Json], sign: Callable[[str], str]
) -> list[Json]:
    """Parts, with the signature of each thought on what it led to: on the part that follows."""
    out: list[Json] = []
    signature, thought = "", None
    for part in parts:
        if isinstance(part, Reasoning):
            out += _unplaced(signature, thought)
            signature = sign(part.signature) if part.signature else ""
            thought = write(part) if part.text or part.extra or not signature else None
            out += [thought] if thought else []
            continue
        written = write(part)
        if not written:
            continue
        if signature and not isinstance(part, (Other, ToolResult)):
            written["thoughtSignature"] = signature
            signature = ""
        out.append(written)
    return [*out, *_unplaced(signature, thought)]


def _unplaced(signature: str, thought: Json | None) -> Iterator[Json]:
    """A signature that nothing follows, on the thought itself, or on an empty part."""
    if signature and thought:
        thought["thoughtSignature"] = signature
    elif signature:
        yield {"text": "", "thoughtSignature": signature}


def call_out(call: ToolCall, name: str, identity: str) -> Json:
    """A call; it need not have an id."""
    return {**omit_none(id=identity or None), "name": name, "args": call.arguments}


def media_out(part: Image | Document, *, known: bool = False) -> tuple[Json, str]:
    """A picture or file, and the field for it. What it is at an address may be not `known`."""
    if part.data is not None:
        return {"mimeType": part.media_type, "data": part.data}, "inlineData"
    kind = part.media_type if known else mimetypes.guess_type(part.url or "")[0] or part.media_type
    return omit_none(mimeType=kind or None, fileUri=part.url), "fileData"


# Tools and settings.


def _tools(request: Request, names: ToolNames, unsaid: LossLog, extra: Json) -> Json:
    hosted: list[Json] = extra.pop(HOSTED_TOOLS, [])
    config = dict(extra.pop("toolConfig", {}))
    calling = _choice(request, names, unsaid) | config.pop("functionCallingConfig", {})
    declared = [_tool(tool, names, unsaid) for tool in request.tools or ()]
    tools = [{"functionDeclarations": declared}, *hosted] if declared else hosted
    if calling and declared:
        config = {"functionCallingConfig": calling, **config}
    out: Json = (
        {"tools": tools} if tools or (request.tools is not None and unsaid.is_same_wire) else {}
    )
    return out | ({"toolConfig": config} if config else {})


def _tool(tool: Tool, names: ToolNames, unsaid: LossLog) -> Json:
    path = f"$.tools[{tool.name!r}]"
    function = convert_freeform_tool(tool, unsaid, path)
    if function.strict:
        unsaid.drop("strict tools", path)
    out: Json = {"name": names.to_wire(tool.name, tool.namespace)}
    extra = dict(unsaid.carry(function.extra, path))
    own = extra.pop(PARAMETERS, None)
    out |= omit_none(description=function.description or None)
    if own is not None and to_json_schema(own, path) == function.parameters:
        out["parameters"] = own
    elif function.parameters:
        out["parametersJsonSchema"] = function.parameters
    return out | extra


def _choice(request: Request, names: ToolNames, unsaid: LossLog) -> Json:
    choice = request.tool_choice
    if not request.parallel_tool_calls and request.tools:
        unsaid.drop("calls one at a time", "$.parallel_tool_calls")
    named = encode_choice_names(choice, names, request.tools or ())
    match choice.mode:
        case "none":
            return {"mode": "NONE"}
        case "required":
            mode = "ANY"
        case "auto":
            mode = "VALIDATED" if choice.validated or named else None
            if named and not choice.validated:
                unsaid.change("a choice among some tools is held to their schemas", "$.tool_choice")
    return omit_none(mode=mode, allowedFunctionNames=named or None)


def _config(request: Request, own_schema: Json | None, unsaid: LossLog) -> Json:
    out = encode_sampling(request, SAMPLING, unsaid)
    out |= omit_none(
        maxOutputTokens=request.max_tokens,
        stopSequences=list(request.stop) or None,
        thinkingConfig=_thinking(request.thinking, request.model, unsaid) or None,
    )
    return out | _format(request.response_format, own_schema)


def _format(form: ResponseFormat | None, own_schema: Json | None) -> Json:
    if form is None:
        return {}
    kind = {"responseMimeType": "application/json"}
    if own_schema is not None and to_json_schema(own_schema, "$") == form.schema:
        return {**kind, "responseSchema": own_schema}
    return kind | omit_none(responseJsonSchema=form.schema)


def _thinking(thinking: Thinking, model: str, unsaid: LossLog) -> Json:
    """A budget or a level, of which only one may be given: what a model does not take, it refuses.
    Whether to think at all is the first question, to which few of them know a no."""
    effort, budget = thinking.effort, thinking.budget
    is_off = thinking.enabled is False or effort == "none" or budget == 0
    if unsaid.is_same_wire:
        if is_off or (thinking.enabled and budget is None and effort is None):
            budget = 0 if is_off else -1
        level = effort.upper() if effort and not is_off else None
        return omit_none(includeThoughts=thinking.shown, thinkingBudget=budget, thinkingLevel=level)
    if _TAKES_NO_WISHES.search(model):
        if (thinking.enabled or effort or budget) and not is_off:
            unsaid.drop(f"how {model} has to think, its effort or budget", "$.thinking")
        return {}
    if effort and budget and not is_off:
        unsaid.drop("a budget beside an effort", "$.thinking")
    how = _budget if "gemini-2" in model else _level
    return omit_none(includeThoughts=thinking.shown) | how(thinking, model, unsaid, is_off=is_off)


def _budget(thinking: Thinking, model: str, unsaid: LossLog, *, is_off: bool) -> Json:
    """For Gemini 2: tokens, of which each model has its own least and most."""
    is_pro = "-pro" in model
    least, most = (128, 32_768) if is_pro else (512 if "-lite" in model else 1, 24_576)
    if is_off and is_pro:
        unsaid.change(_LEAST, "$.thinking")
        return {"thinkingBudget": least}
    if is_off:
        return {"thinkingBudget": 0}
    if thinking.effort:
        level: Any = choose_effort(thinking, unsaid, _BUDGETS)
        unsaid.change(f"{level!r} effort is a budget of {_BUDGETS[level]} tokens", "$.thinking")
        return {"thinkingBudget": _BUDGETS[level]}
    if thinking.budget is None:
        return {"thinkingBudget": -1} if thinking.enabled else {}
    budget = min(max(thinking.budget, least), most)
    if budget != thinking.budget:
        unsaid.change(f"the budget of {model} is from {least} to {most} tokens", "$.thinking")
    return {"thinkingBudget": budget}


def _level(thinking: Thinking, model: str, unsaid: LossLog, *, is_off: bool) -> Json:
    """For the models since, which think if nothing is said, and some of them in any case."""
    if is_off:
        unsaid.change(_LEAST, "$.thinking")
        return {"thinkingLevel": "LOW"}
    if thinking.effort:
        known = ("low", "high") if "gemini-3-pro" in model else _LEVELS
        level: Any = choose_effort(thinking, unsaid, known)
        return {"thinkingLevel": level.upper()}
    return omit_none(thinkingBudget=thinking.budget)
