"""Conversations by the vendors' SDKs, behind one interface.

talk.add_question("How is Oslo?")
talk.ask()
talk.add_results(Result(call, "rain"))
talk.ask()
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


class SdkReply(Struct, frozen=True):
    """A reply as an SDK has decoded it."""

    text: str
    calls: tuple[ToolCall, ...]
    reason: str


class Result(Struct, frozen=True):
    """The result of a call to a tool of the client."""

    call: ToolCall
    text: str
    is_error: bool = False


class Conversation(ABC):
    """A conversation by an SDK, in the way that its documentation shows."""

    reasons: ClassVar[dict[str, str]]
    """The API's stop reasons of a reply with calls and of one without."""

    def __init__(self, sdk: Any, model: str, stream: bool) -> None:
        self.sdk = sdk
        self.model = model
        self.stream = stream
        self.messages: list[Any] = []
        self.extra_fields: dict[str, Any] = {}
        """Other fields of each request."""

    @staticmethod
    @abstractmethod
    def connect(url: str) -> Any:
        """Return the SDK's client."""

    @abstractmethod
    def add_question(self, text: str) -> None:
        """Add a message of the user."""

    @abstractmethod
    def add_results(self, *results: Result) -> None:
        """Add the results of tools."""

    @abstractmethod
    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        """Request a reply, and add it to the conversation."""


class Chat(Conversation):
    reasons: ClassVar = {"calls": "tool_calls", "stop": "stop"}

    @staticmethod
    def connect(url: str) -> Any:
        return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def add_question(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def add_results(self, *results: Result) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": result.call.id, "content": result.text}
            for result in results
        ]

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        body: dict[str, Any] = {"model": self.model, "messages": self.messages, **self.extra_fields}
        if tools is not None:
            body["tools"] = [
                {"type": "function", "function": encode_function(tool)} for tool in tools
            ]
        if choice:
            named_choice = {"type": "function", "function": {"name": "".join(choice.names)}}
            body["tool_choice"] = named_choice if choice.names else choice.mode
        if self.stream:
            with self.sdk.chat.completions.stream(**body) as stream:
                reply = stream.get_final_completion()
        else:
            reply = self.sdk.chat.completions.create(**body)
        [first] = reply.choices
        self.messages.append(first.message)
        calls = tuple(
            ToolCall(
                id=call.id, name=call.function.name, arguments=json.loads(call.function.arguments)
            )
            for call in first.message.tool_calls or ()
        )
        return SdkReply(first.message.content or "", calls, first.finish_reason)


class Responses(Conversation):
    reasons: ClassVar = {"calls": "completed", "stop": "completed"}

    def __init__(self, sdk: Any, model: str, stream: bool) -> None:
        super().__init__(sdk, model, stream)
        self.response: Any = None
        """The last response."""

    connect = staticmethod(Chat.connect)

    def add_question(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def add_results(self, *results: Result) -> None:
        self.messages += [
            {
                "type": f"{'custom_tool' if result.call.freeform else 'function'}_call_output",
                "call_id": result.call.id,
                "output": result.text,
            }
            for result in results
        ]

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        body: dict[str, Any] = {"model": self.model, "input": self.messages, **self.extra_fields}
        if tools is not None:
            body["tools"] = [_encode_response_tool(tool) for tool in tools]
        if choice:
            named_choice = {"type": "function", "name": "".join(choice.names)}
            body["tool_choice"] = named_choice if choice.names else choice.mode
        if self.stream:
            with self.sdk.responses.stream(**body) as stream:
                reply = stream.get_final_response()
        else:
            reply = self.sdk.responses.create(**body)
        self.response = reply
        self.messages += reply.output
        calls = tuple(_decode_item(item) for item in reply.output if item.type.endswith("_call"))
        return SdkReply(reply.output_text, calls, reply.status)


def _encode_response_tool(tool: Tool) -> dict[str, Any]:
    if tool.freeform:
        return {"type": "custom", "name": tool.name, "description": tool.description}
    function = {"type": "function", "strict": False} | encode_function(tool)
    if not tool.namespace:
        return function
    description = f"All about {tool.namespace}."
    return {
        "type": "namespace",
        "name": tool.namespace,
        "description": description,
        "tools": [function],
    }


def _decode_item(item: Any) -> ToolCall:
    freeform = item.type == "custom_tool_call"
    return ToolCall(
        id=item.call_id,
        name=item.name,
        arguments={"input": item.input} if freeform else json.loads(item.arguments),
        namespace=getattr(item, "namespace", None),
        freeform=freeform,
    )


class Messages(Conversation):
    reasons: ClassVar = {"calls": "tool_use", "stop": "end_turn"}
    modes: ClassVar = {"required": "any", "none": "none", "auto": "auto"}

    @staticmethod
    def connect(url: str) -> Any:
        return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)

    def add_question(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def add_results(self, *results: Result) -> None:
        blocks = [
            {
                "type": "tool_result",
                "tool_use_id": result.call.id,
                "content": result.text,
                "is_error": result.is_error,
            }
            for result in results
        ]
        self.messages.append({"role": "user", "content": blocks})

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        body: dict[str, Any] = {"model": self.model, "messages": self.messages, **self.extra_fields}
        body["max_tokens"] = 100
        if tools is not None:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters}
                for t in tools
            ]
        if choice:
            named_choice = {"type": "tool", "name": "".join(choice.names)}
            body["tool_choice"] = (
                named_choice if choice.names else {"type": self.modes[choice.mode]}
            )
        if self.stream:
            with self.sdk.messages.stream(**body) as stream:
                reply = stream.get_final_message()
        else:
            reply = self.sdk.messages.create(**body)
        self.messages.append({"role": "assistant", "content": reply.content})
        text = "".join(block.text for block in reply.content if block.type == "text")
        calls = tuple(
            ToolCall(id=block.id, name=block.name, arguments=block.input)
            for block in reply.content
            if block.type == "tool_use"
        )
        return SdkReply(text, calls, reply.stop_reason)


class Ollama(Conversation):
    reasons: ClassVar = {"calls": "stop", "stop": "stop"}

    @staticmethod
    def connect(url: str) -> Any:
        return ollama.Client(host=url)

    def add_question(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def add_results(self, *results: Result) -> None:
        self.messages += [
            {"role": "tool", "tool_name": result.call.name, "content": result.text}
            for result in results
        ]

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        assert choice is None, "this API has no tool choice"
        body: dict[str, Any] = {"model": self.model, "messages": self.messages}
        if tools is not None:
            body["tools"] = [
                {"type": "function", "function": encode_function(tool)} for tool in tools
            ]
        replies = (
            list(self.sdk.chat(**body, stream=True)) if self.stream else [self.sdk.chat(**body)]
        )
        assert [reply.done for reply in replies] == [False] * (len(replies) - 1) + [True]
        text = "".join(reply.message.content or "" for reply in replies)
        calls = [call for reply in replies for call in reply.message.tool_calls or ()]
        self.messages.append(
            ollama.Message(role="assistant", content=text, tool_calls=calls or None)
        )
        decoded = tuple(
            ToolCall(id="", name=call.function.name, arguments=dict(call.function.arguments))
            for call in calls
        )
        return SdkReply(text, decoded, replies[-1].done_reason)


class Gemini(Conversation):
    reasons: ClassVar = {"calls": "STOP", "stop": "STOP"}
    modes: ClassVar = {"required": "ANY", "none": "NONE", "auto": "AUTO"}

    @staticmethod
    def connect(url: str) -> Any:
        return genai.Client(api_key="none", http_options={"base_url": url})

    def add_question(self, text: str) -> None:
        self.messages.append(genai.types.Content(role="user", parts=[genai.types.Part(text=text)]))

    def add_results(self, *results: Result) -> None:
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
        self.messages.append(genai.types.Content(role="user", parts=parts))

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
        if tools is not None:
            declarations = [
                {
                    "name": t.name,
                    "description": t.description,
                    "parameters_json_schema": t.parameters,
                }
                for t in tools
            ]
            config["tools"] = [{"function_declarations": declarations}]
        if choice:
            calling: dict[str, Any] = {"mode": self.modes[choice.mode]}
            if choice.names:
                calling["allowed_function_names"] = list(choice.names)
            config["tool_config"] = {"function_calling_config": calling}
        body: dict[str, Any] = {"model": self.model, "contents": self.messages, "config": config}
        replies = (
            list(self.sdk.models.generate_content_stream(**body))
            if self.stream
            else [self.sdk.models.generate_content(**body)]
        )
        parts = [part for reply in replies for part in reply.candidates[0].content.parts or ()]
        self.messages.append(genai.types.Content(role="model", parts=parts))
        text = "".join(part.text or "" for part in parts if not part.thought)
        calls = tuple(
            ToolCall(
                id=part.function_call.id or "",
                name=part.function_call.name,
                arguments=part.function_call.args or {},
            )
            for part in parts
            if part.function_call
        )
        return SdkReply(text, calls, replies[-1].candidates[0].finish_reason.name)


def encode_function(tool: Tool) -> dict[str, Any]:
    """Return a tool as OpenAI's APIs encode it."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


class GeminiWithoutIds(Gemini):
    """A client that does not keep the ids of calls."""

    def ask(
        self, tools: Sequence[Tool] | None = TOOLS, choice: ToolChoice | None = None
    ) -> SdkReply:
        reply = super().ask(tools, choice)
        for part in self.messages[-1].parts:
            if part.function_call:
                part.function_call.id = None
        return structs.replace(
            reply, calls=tuple(structs.replace(call, id="") for call in reply.calls)
        )


CLIENTS: dict[str, type[Conversation]] = {
    "openai chat": Chat,
    "openai responses": Responses,
    "anthropic": Messages,
    "ollama": Ollama,
    "google-genai": Gemini,
}
