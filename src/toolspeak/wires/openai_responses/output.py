"""The items of a response while they are written: each begins, goes on and ends in its own events.

response.output_item.added  response.content_part.added  response.output_text.delta …
response.output_text.done  response.content_part.done  response.output_item.done
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ...calls import json_values as jsonish
from ...calls.drafts import equal
from ...events import CallStart
from ...types import Reasoning, Text, ToolCall
from ..fields import Json
from .items import call_item, input_of, is_refusal, message_item, reasoning_item, text_part


class OutputItem:
    """An item that has begun. `item` is all of it, once it has ended."""

    def __init__(self, index: int, identity: str) -> None:
        self._index = index
        self.id = identity
        self.item: Json = {}
        self._pieces: list[str] = []

    def _added(self, item: Json) -> Json:
        begun = {"id": self.id, **item}
        return self._whole("added", begun)

    def _done(self, item: Json) -> Json:
        self.item = {"id": self.id, **item}
        return self._whole("done", self.item)

    def _whole(self, state: str, item: Json) -> Json:
        return {
            "type": f"response.output_item.{state}",
            "output_index": self._index,
            "item": item,
        }

    def _event(self, kind: str, **said: object) -> Json:
        head = {"type": f"response.{kind}", "item_id": self.id, "output_index": self._index}
        return head | said


class WholeItem(OutputItem):
    """An item that comes in one piece."""

    def told(self, item: Json) -> Iterator[Json]:
        yield self._added(item)
        yield self._done(item)


class MessageItem(OutputItem):
    """What the model says."""

    def __init__(self, index: int, identity: str) -> None:
        super().__init__(index, identity)
        self._texts: list[Text] = []
        self._parts = 0
        self._part: Text | None = None
        """The one that is open, as yet without its words."""

    def begun(self) -> Json:
        return self._added({"status": "in_progress", **message_item(())})

    def more(self, text: str, refused: bool) -> Iterator[Json]:
        if self._part is None or is_refusal(self._part) != refused:
            yield from self._end_part({})
            yield self._begin_part(refused)
        self._pieces.append(text)
        if refused:
            yield self._said("refusal.delta", delta=text)
        else:
            yield self._said("output_text.delta", delta=text, logprobs=[])

    def told(self, extra: Json) -> Iterator[Json]:
        """What is said of the text, which it ends."""
        if self._part is None and self._texts:
            self._texts.append(Text("", extra))
            return
        if self._part is None:
            yield self._begin_part(False)
        yield from self._end_part(extra)

    def ended(self, status: str) -> Iterator[Json]:
        yield from self._end_part({})
        yield self._done({"status": status, **message_item(self._texts)})

    def _begin_part(self, refused: bool) -> Json:
        self._part = Text("", {"type": "refusal"} if refused else {})
        return self._said("content_part.added", part=text_part(self._part))

    def _end_part(self, extra: Json) -> Iterator[Json]:
        if self._part is None:
            return
        words = "".join(self._pieces)
        text = replace(self._part, text=words, extra=self._part.extra | extra)
        if is_refusal(text):
            yield self._said("refusal.done", refusal=words)
        else:
            yield self._said("output_text.done", text=words, logprobs=[])
        yield self._said("content_part.done", part=text_part(text))
        self._texts.append(text)
        self._parts += 1
        self._part, self._pieces = None, []

    def _said(self, kind: str, **said: object) -> Json:
        return self._event(kind, content_index=self._parts, **said)


class ReasoningItem(OutputItem):
    """What the model thinks, as a summary."""

    def begun(self) -> Json:
        return self._added(reasoning_item(Reasoning("")))

    def more(self, text: str) -> Iterator[Json]:
        if not self._pieces:
            yield self._said("part.added", part=_summary(""))
        self._pieces.append(text)
        yield self._said("text.delta", delta=text)

    def ended(self, signature: str | None, extra: Json) -> Iterator[Json]:
        text = "".join(self._pieces)
        if text:
            yield self._said("text.done", text=text)
            yield self._said("part.done", part=_summary(text))
        yield self._done(reasoning_item(Reasoning(text, signature, extra)))

    def _said(self, kind: str, **said: object) -> Json:
        return self._event(f"reasoning_summary_{kind}", summary_index=0, **said)


def _summary(text: str) -> Json:
    return {"type": "summary_text", "text": text}


class CallItem(OutputItem):
    """What the model calls."""

    def __init__(self, index: int, identity: str, event: CallStart) -> None:
        super().__init__(index, identity)
        self.call_index = event.index
        self._call = ToolCall(
            id=event.id,
            name=event.name,
            arguments={},
            namespace=event.namespace,
            freeform=event.freeform,
        )
        self._events, self._key = (
            ("custom_tool_call_input", "input")
            if event.freeform
            else ("function_call_arguments", "arguments")
        )

    def begun(self) -> Json:
        return self._added(self._item("in_progress", ""))

    def more(self, text: str) -> Json:
        self._pieces.append(text)
        return self._event(f"{self._events}.delta", delta=text)

    def ended(self, call: ToolCall, extra: Json) -> Iterator[Json]:
        """`extra` is what the item says beside the call."""
        if not self._pieces:
            yield self.more(input_of(call))
        text = "".join(self._pieces)
        yield from self._over("completed", text if _says(text, call) else input_of(call), extra)

    def taken_back(self) -> Iterator[Json]:
        """The call is not made. A client that acts on items has to see that this one is not whole;
        the response will not list it."""
        yield from self._over("incomplete", "".join(self._pieces), {})

    def _over(self, status: str, text: str, extra: Json) -> Iterator[Json]:
        yield self._event(f"{self._events}.done", **{self._key: text})
        yield self._done(self._item(status, text) | extra)

    def _item(self, status: str, text: str) -> Json:
        return {"status": status, **call_item(self._call, self._call.name, text)}


def _says(text: str, call: ToolCall) -> bool:
    """Whether the text that was sent is what the call came to be."""
    if call.freeform:
        return text == input_of(call)
    try:
        return equal(jsonish.decoder.decode(text), call.arguments)
    except (ValueError, RecursionError):
        return False
