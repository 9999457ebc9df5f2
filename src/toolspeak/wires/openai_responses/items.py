"""Output items: what an assistant thinks, says, calls and draws. They come back as input.

{"type": "reasoning", "summary": [{"type": "summary_text", "text": "…"}], "encrypted_content": "…"}
{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "…"}]}
{"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{\"city\": …}"}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...types import Image, Reasoning, Text, ToolCall
from ..fields import OWN, Fields, Json, present
from .words import ID, ITEM, TEXTS

BETWEEN = "\n\n"
"""Stands between the texts of one thought."""
_OF_A_PART = frozenset({"annotations", "logprobs", "prompt_cache_breakpoint"})
"""What a text says beside its words; all else in its `extra` is said of its whole message."""


# Read.


def thought(fields: Fields) -> Reasoning:
    """What a model thought. The id and the division into texts matter to this API alone."""
    summary, content = fields.take("summary", list) or [], fields.take("content", list) or []
    text = BETWEEN.join(texts_of(summary) or texts_of(content))
    signature = fields.take("encrypted_content", str)
    identity = fields.text("id")
    extra = leftover(fields)
    if identity:
        extra[ID] = identity
    if content or len(summary) > 1:
        extra[TEXTS] = {"summary": summary} | ({"content": content} if content else {})
    return Reasoning(text, signature, extra)


def texts_of(parts: Iterable[Any]) -> list[str]:
    """What the texts say that a thought is made of."""
    return [str(part.get("text") or "") for part in parts if isinstance(part, dict)]


def picture(fields: Fields) -> Image | None:
    """A picture that a model made, if its item holds one."""
    if not isinstance(fields.peek("result"), str):
        return None
    kind, data = fields.peek("output_format"), fields.text("result")
    media_type = f"image/{kind}" if isinstance(kind, str) else "image/png"
    return Image(data=data, media_type=media_type, extra={ITEM: fields.rest()})


def leftover(fields: Fields) -> Json:
    """What nobody took, without what the API keeps for itself."""
    for bookkeeping in ("type", "id", "status"):
        fields.any(bookkeeping)
    return {key: value for key, value in fields.rest().items() if value != []}


# Written.


def message_item(texts: Iterable[Text]) -> Json:
    """What an assistant said. A text without words says more of the one before."""
    content: list[Json] = []
    item: Json = {"type": "message", "role": "assistant", "content": content}
    for text in texts:
        if text.text or not content:
            content.append(text_part(text))
        else:
            content[-1] |= _of_the_part(text)
        item |= of_the_message(text)
    return item


def text_part(text: Text) -> Json:
    """One text in a message."""
    if is_refusal(text):
        return {"type": "refusal", "refusal": text.text}
    return {"type": "output_text", "text": text.text, "annotations": [], **_of_the_part(text)}


def _of_the_part(text: Text) -> Json:
    return {key: value for key, value in text.extra.items() if key in _OF_A_PART}


def is_refusal(text: Text) -> bool:
    """Whether a text says why there is no answer."""
    return text.extra.get("type") == "refusal"


def of_the_message(text: Text) -> Json:
    """What a text's `extra` says of its whole message, which it ends."""
    return {
        key: value
        for key, value in text.extra.items()
        if key not in _OF_A_PART and key != "type" and not key.startswith(OWN)
    }


def reasoning_item(thought: Reasoning) -> Json:
    """What a model thought. Its id is left to the caller."""
    plain = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    extra = {key: value for key, value in thought.extra.items() if not key.startswith(OWN)}
    texts = thought.extra.get(TEXTS) or {"summary": plain}
    return {"type": "reasoning", **texts} | present(encrypted_content=thought.signature) | extra


def call_item(call: ToolCall, name: str, text: str) -> Json:
    """A call, with its arguments or its input as this text."""
    kind, said = _CALLS[call.freeform]
    item = {"type": kind, "call_id": call.id, "name": name, said: text}
    return item | present(namespace=call.namespace)


_CALLS = {False: ("function_call", "arguments"), True: ("custom_tool_call", "input")}


def image_item(image: Image) -> Json:
    """A picture that a model made."""
    said: Json = image.extra.get(ITEM) or {"output_format": image.media_type.removeprefix("image/")}
    return {"type": "image_generation_call", "status": "completed", "result": image.data, **said}
