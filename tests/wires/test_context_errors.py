"""Errors about the context window and images, in the wordings of all upstreams."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toolspeak.types import Failure
from toolspeak.wires import WIRES
from toolspeak.wires.errors import IMAGE_NOT_SUPPORTED, classify_failure, decode_failure

WORDINGS: dict[str, tuple[int, Any]] = {
    "openai": (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "20000 tokens. Please reduce the length of the messages.",
    ),
    "vllm": (
        400,
        "This model's maximum context length is 8192 tokens. However, you requested 20000 tokens "
        "(19000 in the messages, 1000 in the completion). Please reduce the length.",
    ),
    "vllm, newer": (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 12000. This model's maximum context "
        "length is 8192 tokens and your request has 8000 input tokens (12000 > 8192 - 8000).",
    ),
    "openrouter": (
        400,
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 20000 "
        "tokens (19000 of text input, 1000 in the output).",
    ),
    "anthropic": (400, "prompt is too long: 20000 tokens > 8192 maximum"),
    "anthropic with a limit": (
        400,
        "input length and `max_tokens` exceed context limit: 19000 + 1000 > 8192, decrease input "
        "length or `max_tokens` and try again",
    ),
    "gemini": (
        400,
        "The input token count (20000) exceeds the maximum number of tokens allowed (8192).",
    ),
    "llama.cpp": (
        400,
        "request (20000 tokens) exceeds the available context size (8192 tokens), try increasing",
    ),
    "llama.cpp in fields": (
        400,
        {
            "message": "the request exceeds the available context size. try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 20000,
            "n_ctx": 8192,
        },
    ),
    "mistral": (
        400,
        "Prompt contains 20000 tokens and 0 draft tokens, too large for model with 8192 maximum "
        "context length",
    ),
    "xai": (
        400,
        "This model's maximum prompt length is 8192 but the request contains 20000 tokens.",
    ),
    "cohere": (
        400,
        "too many tokens: total number of tokens in the prompt cannot exceed 8192 - received "
        "20000. Try using a shorter prompt.",
    ),
    "together": (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 20000 "
        "`inputs` tokens and 1000 `max_new_tokens`",
    ),
    "groq": (
        413,
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_01j5` service "
        "tier `on_demand` on tokens per minute (TPM): Limit 8192, Requested 20000, please reduce "
        "your message size and try again.",
    ),
    "cerebras": (
        400,
        "Please reduce the length of the messages or completion. Current length is 20000 while "
        "limit is 8192",
    ),
    "kimi": (
        400,
        "Your request exceeded model token limit: 8192 (requested: 20000)",
    ),
    "copilot": (400, "prompt token count of 20000 exceeds the limit of 8192"),
    "sglang": (
        400,
        "The input (20,000 tokens) is longer than the model's context length (8,192 tokens).",
    ),
    "fireworks": (400, "The prompt is too long: 20000, model maximum context length: 8192"),
    "lm studio": (
        400,
        "Trying to keep the first 20000 tokens when context the overflows. However, the model is "
        "loaded with context length of only 8192 tokens.",
    ),
    "a model with a date": (
        400,
        "gpt-4-0613: Error code: 400 - maximum context length is 8192, but 20000 were sent",
    ),
    "a server behind openrouter": (
        400,
        {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": '{"error": "prompt is too long: 20000 tokens > 8192 maximum"}'},
        },
    ),
}
SENTENCES = {
    "openai_chat": "This model's maximum context length is 8192 tokens.",
    "openai_responses": "This model's maximum context length is 8192 tokens.",
    "anthropic": "prompt is too long: 20000 tokens > 8192 maximum",
    "gemini": "The input token count (20000) exceeds the maximum number of tokens allowed (8192).",
    "ollama": "prompt too long; exceeded max context length by 11808 tokens",
}
OPENAI_SENTENCES = {"openai", "vllm", "openrouter"}
"""Wordings that clients of OpenAI's APIs read as they are."""


def decode(name: str) -> Failure:
    status, error = WORDINGS[name]
    error = {"message": error} if isinstance(error, str) else error
    return decode_failure(status, {"error": error})


def read_message(encoded: Any) -> str:
    error = encoded["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("name", WORDINGS)
def test_context_error_in_any_wording_has_both_numbers(name: str) -> None:
    failure = decode(name)
    assert (failure.kind, failure.status) == ("context_length", 400)
    assert (failure.prompt_tokens, failure.token_limit) == (20000, 8192)


@pytest.mark.parametrize("name", WORDINGS)
@pytest.mark.parametrize("wire", SENTENCES)
def test_context_error_is_written_in_the_sentence_of_the_clients_api(name: str, wire: str) -> None:
    failure = decode(name)
    message = read_message(WIRES[wire].encode_failure(failure))
    if wire.startswith("openai") and name in OPENAI_SENTENCES:
        assert message == failure.message
    else:
        assert message.startswith(SENTENCES[wire])
    assert re.search(r"\b20000\b", message) or wire == "ollama"
    assert message.endswith(failure.message)


COUNTLESS: dict[str, tuple[int | None, int | None]] = {
    "Your input exceeds the context window of this model.": (None, None),
    "input is too long for requested model": (None, None),
    "too many tokens: size limit exceeded by 11808 tokens.": (None, None),
    "prompt too long; exceeded max context length by 4 tokens": (None, None),
    "the maximum context length of this model is only 8192 tokens": (None, None),
    "the context length is 8192": (None, 8192),
}


@pytest.mark.parametrize("message", COUNTLESS)
@pytest.mark.parametrize("wire", SENTENCES)
def test_context_error_without_both_numbers_invents_none(message: str, wire: str) -> None:
    failure = classify_failure(400, message)
    assert failure.kind == "context_length"
    assert failure.prompt_tokens is None
    written = read_message(WIRES[wire].encode_failure(failure))
    assert written.removeprefix("prompt is too long: ") == message


OTHER_ERRORS = {
    "Request Entity Too Large": 413,
    "Request exceeds the maximum size": 413,
    "max_tokens: 20000 > 8192, which is the maximum allowed number of output tokens": 400,
    "Rate limit reached: Limit 8192, Used 8000, Requested 2000": 429,
}


@pytest.mark.parametrize("message", OTHER_ERRORS)
def test_other_error_with_numbers_is_no_context_error(message: str) -> None:
    assert classify_failure(OTHER_ERRORS[message], message).kind != "context_length"


IMAGES_REJECTED = {
    "image input is not supported - hint: if this is unexpected, provide the mmproj": 500,
    "At most 0 image(s) may be provided in one request.": 400,
    "m is not a multimodal model": 400,
    "this model is missing data required for image input": 500,
    "Invalid content type. image_url is only supported by certain models.": 400,
    "Failed to deserialize the JSON body: unknown variant `image_url`, expected `text`": 422,
    "No endpoints found that support image input": 404,
    "This model does not support images.": 400,
    "This model doesn't support vision": 400,
}
IMAGE_ERRORS = {
    "image exceeds 5 MB maximum": 400,
    "Could not process image": 400,
    "the image format `bmp` is not supported": 400,
    "failed to load the image": 500,
}


@pytest.mark.parametrize("message", IMAGES_REJECTED)
def test_image_for_a_text_model_is_a_bad_request(message: str) -> None:
    failure = classify_failure(IMAGES_REJECTED[message], message)
    assert (failure.kind, failure.status, failure.code) == (
        "bad_request",
        400,
        IMAGE_NOT_SUPPORTED,
    )


@pytest.mark.parametrize("message", IMAGE_ERRORS)
def test_error_about_one_image_stays_as_it_is(message: str) -> None:
    failure = classify_failure(IMAGE_ERRORS[message], message)
    assert (failure.status, failure.code) == (IMAGE_ERRORS[message], None)
