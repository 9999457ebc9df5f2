"""Conversations by the vendors' SDKs, all with the same few words.

talk.say("How is Oslo?")    talk.ask()    talk.give(Result(call, "rain"))    talk.ask()
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import anthropic
import ollama
import openai
from google import genai
from msgspec import Struct, structs

from tests.wires.scenarios import TOOLS
from toolspeak import Tool, ToolCall, ToolChoice


class Heard(Struct, frozen=True):
    """What an SDK made of a reply."""

    text: str
    calls: tuple[ToolCall, ...]
    reason: str


class Result(Struct, frozen=True):
    """What the client's tool gave for a call."""

    call: ToolCall
    text: str
    is_error: bool = False


class Talk(ABC):
    """One conversation by an SDK, in the way that its documentation shows."""

    reasons: ClassVar[dict[str, str]]
    """What the API calls the end of a reply with calls, and of one without."""

    def __init__(self, sdk: Any, model: str, stream: bool) -> None:
        self.sdk = sdk
        self.model = model
        self.stream = stream
        self.said: list[Any] = []
        self.more: dict[str, Any] = {}
        """Other fields of each request."""

    @staticmethod
    @abstractmethod
    def connect(url: str) -> Any:
        """The SDK's client."""

    @abstractmethod
    def say(self, text: str) -> None:
        """The user says something."""

    @abstractmethod
    def give(self, *results: Result) -> None:
        """Tools give results."""

    @abstractmethod
    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        """The model's turn. It becomes part of the conversation."""


class Chat(Talk):
    reasons: ClassVar = {"calls": "tool_calls", "stop": "stop"}

    @staticmethod
    def connect(url: str) -> Any:
        return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def give(self, *results: Result) -> None:
        self.said += [
            {"role": "tool", "tool_call_id": result.call.id, "content": result.text}
            for result in results
        ]

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "messages": self.said, **self.more}
        if tools is not None:
            asked["tools"] = [{"type": "function", "function": function(tool)} for tool in tools]
        if choice:
            named = {"type": "function", "function": {"name": "".join(choice.names)}}
            asked["tool_choice"] = named if choice.names else choice.mode
        if self.stream:
            with self.sdk.chat.completions.stream(**asked) as stream:
                reply = stream.get_final_completion()
        else:
            reply = self.sdk.chat.completions.create(**asked)
        [first] = reply.choices
        self.said.append(first.message)
        made = tuple(
            ToolCall(
                id=one.id, name=one.function.name, arguments=json.loads(one.function.arguments)
            )
            for one in first.message.tool_calls or ()
        )
        return Heard(first.message.content or "", made, first.finish_reason)


class Responses(Talk):
    reasons: ClassVar = {"calls": "completed", "stop": "completed"}

    def __init__(self, sdk: Any, model: str, stream: bool) -> None:
        super().__init__(sdk, model, stream)
        self.response: Any = None
        """The last one."""

    connect = staticmethod(Chat.connect)

    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def give(self, *results: Result) -> None:
        self.said += [
            {
                "type": f"{'custom_tool' if result.call.freeform else 'function'}_call_output",
                "call_id": result.call.id,
                "output": result.text,
            }
            for result in results
        ]

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "input": self.said, **self.more}
        if tools is not None:
            asked["tools"] = [_response_tool(tool) for tool in tools]
        if choice:
            named = {"type": "function", "name": "".join(choice.names)}
            asked["tool_choice"] = named if choice.names else choice.mode
        if self.stream:
            with self.sdk.responses.stream(**asked) as stream:
                reply = stream.get_final_response()
        else:
            reply = self.sdk.responses.create(**asked)
        self.response = reply
        self.said += reply.output
        made = tuple(_item(item) for item in reply.output if item.type.endswith("_call"))
        return Heard(reply.output_text, made, reply.status)


def _response_tool(tool: Tool) -> dict[str, Any]:
    if tool.freeform:
        return {"type": "custom", "name": tool.name, "description": tool.description}
    written = {"type": "function", "strict": False} | function(tool)
    if not tool.namespace:
        return written
    about = f"All about {tool.namespace}."
    return {"type": "namespace", "name": tool.namespace, "description": about, "tools": [written]}


def _item(item: Any) -> ToolCall:
    freeform = item.type == "custom_tool_call"
    return ToolCall(
        id=item.call_id,
        name=item.name,
        arguments={"input": item.input} if freeform else json.loads(item.arguments),
        namespace=getattr(item, "namespace", None),
        freeform=freeform,
    )


class Messages(Talk):
    reasons: ClassVar = {"calls": "tool_use", "stop": "end_turn"}
    modes: ClassVar = {"required": "any", "none": "none", "auto": "auto"}

    @staticmethod
    def connect(url: str) -> Any:
        return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def give(self, *results: Result) -> None:
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": result.call.id,
                "content": result.text,
                "is_error": result.is_error,
            }
            for result in results
        ]
        self.said.append({"role": "user", "content": blocks})

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        asked: dict[str, Any] = {"model": self.model, "messages": self.said, **self.more}
        asked["max_tokens"] = 100
        if tools is not None:
            asked["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters}
                for t in tools
            ]
        if choice:
            named = {"type": "tool", "name": "".join(choice.names)}
            asked["tool_choice"] = named if choice.names else {"type": self.modes[choice.mode]}
        if self.stream:
            with self.sdk.messages.stream(**asked) as stream:
                reply = stream.get_final_message()
        else:
            reply = self.sdk.messages.create(**asked)
        self.said.append({"role": "assistant", "content": reply.content})
        text = "".join(block.text for block in reply.content if block.type == "text")
        made = tuple(
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in reply.content
            if block.type == "tool_use"
        )
        return Heard(text, made, reply.stop_reason)


class Ollama(Talk):
    reasons: ClassVar = {"calls": "stop", "stop": "stop"}

    @staticmethod
    def connect(url: str) -> Any:
        return ollama.Client(host=url)

    def say(self, text: str) -> None:
        self.said.append({"role": "user", "content": text})

    def give(self, *results: Result) -> None:
        self.said += [
            {"role": "tool", "tool_name": result.call.name, "content": result.text}
            for result in results
        ]

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        assert choice is None, "this API has no choice"
        asked: dict[str, Any] = {"model": self.model, "messages": self.said}
        if tools is not None:
            asked["tools"] = [{"type": "function", "function": function(tool)} for tool in tools]
        replies = (
            list(self.sdk.chat(**asked, stream=True)) if self.stream else [self.sdk.chat(**asked)]
        )
        assert [reply.done for reply in replies] == [False] * (len(replies) - 1) + [True]
        text = "".join(reply.message.content or "" for reply in replies)
        made = [one for reply in replies for one in reply.message.tool_calls or ()]
        self.said.append(ollama.Message(role="assistant", content=text, tool_calls=made or None))
        found = tuple(
            ToolCall(id="", name=one.function.name, arguments=dict(one.function.arguments))
            for one in made
        )
        return Heard(text, found, replies[-1].done_reason)


class Gemini(Talk):
    reasons: ClassVar = {"calls": "STOP", "stop": "STOP"}
    modes: ClassVar = {"required": "ANY", "none": "NONE", "auto": "AUTO"}

    @staticmethod
    def connect(url: str) -> Any:
        return genai.Client(api_key="none", http_options={"base_url": url})

    def say(self, text: str) -> None:
        self.said.append(genai.types.Content(role="user", parts=[genai.types.Part(text=text)]))

    def give(self, *results: Result) -> None:
        parts = [
            genai.types.Part(
                function_response=genai.types.FunctionResponse(
                    id=result.call.id or None,
                    name=result.call.name,
                    response={"error" if result.is_error else "result": result.text},
                )
            )
            for result in results
        ]
        self.said.append(genai.types.Content(role="user", parts=parts))

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
        if tools is not None:
            declared = [
                {
                    "name": t.name,
                    "description": t.description,
                    "parameters_json_schema": t.parameters,
                }
                for t in tools
            ]
            config["tools"] = [{"function_declarations": declared}]
        if choice:
            calling: dict[str, Any] = {"mode": self.modes[choice.mode]}
            if choice.names:
                calling["allowed_function_names"] = list(choice.names)
            config["tool_config"] = {"function_calling_config": calling}
        asked: dict[str, Any] = {"model": self.model, "contents": self.said, "config": config}
        replies = (
            list(self.sdk.models.generate_content_stream(**asked))
            if self.stream
            else [self.sdk.models.generate_content(**asked)]
        )
        parts = [part for reply in replies for part in reply.candidates[0].content.parts or ()]
        self.said.append(genai.types.Content(role="model", parts=parts))
        text = "".join(part.text or "" for part in parts if not part.thought)
        made = tuple(
            ToolCall(
                id=part.function_call.id or "",
                name=part.function_call.name,
                arguments=part.function_call.args or {},
            )
            for part in parts
            if part.function_call
        )
        return Heard(text, made, replies[-1].candidates[0].finish_reason.name)


def function(tool: Tool) -> dict[str, Any]:
    """A tool as OpenAI writes it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


class GeminiWithoutIds(Gemini):
    """A client that writes its turns anew, and has no use for ids."""

    def ask(self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None) -> Heard:
        reply = super().ask(tools, choice)
        for part in self.said[-1].parts:
            if part.function_call:
                part.function_call.id = None
        return structs.replace(
            reply, calls=tuple(structs.replace(call, id="") for call in reply.calls)
        )


CLIENTS: dict[str, type[Talk]] = {
    "openai chat": Chat,
    "openai responses": Responses,
    "anthropic": Messages,
    "ollama": Ollama,
    "google-genai": Gemini,
}
