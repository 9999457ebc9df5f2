"""The words of Responses that more than one direction uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..._util import encode_json
from ...events import ITEM_ID
from ...types import Image, Other, Reasoning, StopReason, Text, ToolCall
from ..encoding import EFFORTS as EFFORTS
from ..encoding import omit_none
from ..fields import PRIVATE, Fields, Json

NAME = "openai_responses"
SAMPLING = {key: key for key in ("temperature", "top_p")}
STOPS: dict[str, StopReason] = {
    "max_output_tokens": "length",
    "content_filter": "filter",
    "max_messages": "pause",
    "steered": "pause",
}
"""Why a reply is incomplete."""
FILTERED = "content_filter"
STOPS_OUT = {"length": "max_output_tokens", "filter": FILTERED}

CONTINUED = f"{PRIVATE}previous_response_id"
"""In a request: the response that it goes on from, where its conversation is there already."""
INSTRUCTIONS = f"{PRIVATE}instructions"
"""In the `extra` of a message: it stood beside the input."""
CHOICE = f"{PRIVATE}tool_choice"
"""In the `extra` of a request: a choice of tools that says in which namespaces they are."""
HOSTED_CHOICE, HOSTED_CHOICES = "tool_choice", "tool_choice.tools"
"""In the `extra` of a request: a choice of a tool that only this API can run; or of several, some
of which others can run too. Elsewhere it is noted as left out."""
SPACE = f"{PRIVATE}namespace"
"""In a tool that only this API can run: the namespace that it is in, without its tools."""
SUMMARY = f"{PRIVATE}summary"
"""In the `extra` of a request: how thoughts are to be summed up, if not as the model likes."""
CUSTOM = f"{PRIVATE}custom"
"""In the `extra` of a result: it answers a call of a freeform tool."""
ID = ITEM_ID
"""In any `extra`: the id of the item."""
STATUS = f"{PRIVATE}status"
"""In any `extra`: how far the item has come."""
TEXTS = f"{PRIVATE}texts"
"""In the `extra` of a thought: the texts it is made of, if they are not one summary."""
ITEM = f"{PRIVATE}item"
"""In the `extra` of a picture: all else that its item says."""

MADE_ID = re.compile(r"(rs|msg|fc|ctc|ig)_\d+_")
"""An id that our encoder gave an item. No upstream knows it, and some would look for it."""


BETWEEN = "\n\n"
"""Stands between the texts of one thought."""
_OF_A_PART = frozenset({"annotations", "logprobs", "prompt_cache_breakpoint"})
"""What a text says beside its words; all else in its `extra` is said of its whole message."""


# Read.


def thought(fields: Fields) -> Reasoning | Other:
    """What a model thought. One that shows neither words nor a signature is known by its id alone,
    which only this API can look up."""
    item = fields.rest()
    summary, content = fields.take("summary", list) or [], fields.take("content", list) or []
    text = BETWEEN.join(texts_of(summary) or texts_of(content))
    signature = fields.take("encrypted_content", str)
    if not text and signature is None:
        return Other({"type": "reasoning", **item})
    extra = _bookkeeping(fields) | leftover(fields)
    if content or len(summary) > 1:
        extra[TEXTS] = {"summary": summary} | ({"content": content} if content else {})
    return Reasoning(text, signature, extra)


def texts_of(parts: Iterable[Any]) -> list[str]:
    """What the texts say that a thought is made of."""
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def picture(fields: Fields) -> Image | None:
    """A picture that a model made, if its item holds one."""
    if not isinstance(fields.peek("result"), str):
        return None
    kind, data = fields.peek("output_format"), fields.take_text("result")
    media_type = f"image/{kind}" if isinstance(kind, str) else "image/png"
    return Image(data=data, media_type=media_type, extra={ITEM: fields.rest()})


def leftover(fields: Fields) -> Json:
    """What nobody took, without what the API keeps for itself."""
    for bookkeeping in ("type", "id", "status"):
        fields.take_any(bookkeeping)
    return {key: value for key, value in fields.rest().items() if value != []}


def reminders(fields: Fields) -> Json:
    """What an item is known by and how far it has come: this API alone wants to hear it again, and
    not if we made it up."""
    found = _bookkeeping(fields)
    return {} if MADE_ID.match(found.get(ID, "")) else found


def _bookkeeping(fields: Fields) -> Json:
    found = {ID: fields.peek("id"), STATUS: fields.peek("status")}
    return {key: value for key, value in found.items() if isinstance(value, str) and value}


# Written.


def said(extra: Json) -> Json:
    """What an `extra` says to others than us."""
    return {key: value for key, value in extra.items() if not key.startswith(PRIVATE)}


def remembered(extra: Json) -> Json:
    """What an item is known by and how far it has come, in its own fields."""
    return omit_none(id=extra.get(ID), status=extra.get(STATUS))


def message_item(texts: Iterable[Text]) -> Json:
    """What an assistant said. A text without words says more of the one before."""
    content: list[Json] = []
    item: Json = {"type": "message", "role": "assistant", "content": content}
    for text in texts:
        if text.text or not content:
            content.append(text_part(text))
        else:
            content[-1] |= _of_the_part(text)
        item |= remembered(text.extra) | of_the_message(text)
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
        for key, value in said(text.extra).items()
        if key not in _OF_A_PART and key != "type"
    }


def reasoning_item(thought: Reasoning) -> Json:
    """What a model thought. Its id is left to the caller."""
    plain = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    texts = thought.extra.get(TEXTS) or {"summary": plain}
    item = {"type": "reasoning", **texts} | omit_none(encrypted_content=thought.signature)
    return item | omit_none(status=thought.extra.get(STATUS)) | said(thought.extra)


def input_of(call: ToolCall) -> str:
    """What a call says, as text."""
    given = call.arguments.get("input")
    if not call.freeform or isinstance(given, str):
        return call.input
    return "" if given is None else encode_json(given)


def call_item(call: ToolCall, name: str, text: str) -> Json:
    """A call, with its arguments or its input as this text."""
    kind, told = _CALLS[call.freeform]
    item = {"type": kind, "call_id": call.id, "name": name, told: text}
    return item | omit_none(namespace=call.namespace)


_CALLS = {False: ("function_call", "arguments"), True: ("custom_tool_call", "input")}


def image_item(image: Image) -> Json:
    """A picture that a model made."""
    told: Json = image.extra.get(ITEM) or {"output_format": image.media_type.removeprefix("image/")}
    return {"type": "image_generation_call", "status": "completed", "result": image.data, **told}
