"""Streams of each vendor's SDK: the texts of a reply, or the exception that the SDK raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import ollama
import openai
from google import genai


def stream_openai_chat(url: str) -> Iterator[str]:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.create(model="m", messages=messages, stream=True) as stream,
    ):
        for chunk in stream:
            yield from (choice.delta.content or "" for choice in chunk.choices)


def stream_openai_responses(url: str) -> Iterator[str]:
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.responses.create(model="m", input="Hi", stream=True) as stream,
    ):
        for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta


def stream_anthropic(url: str) -> Iterator[str]:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with (
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=10, messages=messages) as stream,
    ):
        yield from stream.text_stream


def stream_ollama(url: str) -> Iterator[str]:
    messages = [{"role": "user", "content": "Hi"}]
    with ollama.Client(host=url) as client:
        for part in client.chat(model="m", messages=messages, stream=True):
            yield part.message.content or ""


def stream_google_genai(url: str) -> Iterator[str]:
    options: Any = {"base_url": url}
    with genai.Client(api_key="none", http_options=options) as client:
        for part in client.models.generate_content_stream(model="m", contents="Hi"):
            yield part.text or ""


SdkStream = Callable[[str], Iterator[str]]
SDKS: dict[SdkStream, type[Exception]] = {
    stream_openai_chat: openai.APIError,
    stream_openai_responses: openai.APIError,
    stream_anthropic: anthropic.APIStatusError,
    stream_ollama: ollama.ResponseError,
    stream_google_genai: genai.errors.APIError,
}
"""How to stream with each SDK, and its exception for errors of a server."""
