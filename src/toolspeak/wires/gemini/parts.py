"""The words of Gemini that more than one direction uses, and the two ways in which each is spelled.

{"functionCall": {"name": "f", "args": {}}}      {"function_call": {"name": "f", "args": {}}}
"""

from __future__ import annotations

import base64
import re
from typing import Any

from ...calls.openapi import to_camel_case
from ...types import StopReason
from ..fields import PRIVATE, Fields, Json, T

NAME = "gemini"
SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
RESPONSE = f"{PRIVATE}response"
"""In the `extra` of a result: the object that it came as."""
PARAMETERS, SCHEMA = f"{PRIVATE}parameters", f"{PRIVATE}responseSchema"
"""In the `extra` of a tool or request: a schema that came as Gemini's own kind."""
CANDIDATE = "candidate."
"""So begins, in the `extra` of a reply, what stood beside the content of its candidate."""
TOTAL, USED = f"{PRIVATE}totalTokenCount", f"{PRIVATE}toolUsePromptTokenCount"
"""In the `extra` of usage: what the counts of tokens are not enough to tell."""
BOOKKEEPING = frozenset(
    {
        "avgLogprobs",
        "finishMessage",
        "safetyRatings",
        "tokenCount",
        "createTime",
        "modelStatus",
        "promptFeedback",
        "promptTokensDetails",
        "cacheTokensDetails",
        "candidatesTokensDetails",
        "thoughtsTokensDetails",
        "toolUsePromptTokensDetails",
        "serviceTier",
        "trafficType",
    }
)
"""What a reply says of how it was made."""
STOPS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "pause",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
        ),
        "filter",
    ),
    **dict.fromkeys(
        (
            "OTHER",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MALFORMED_RESPONSE",
            "MISSING_THOUGHT_SIGNATURE",
            "NO_IMAGE",
            "IMAGE_OTHER",
        ),
        "error",
    ),
}
STOPS_OUT = {"length": "MAX_TOKENS", "filter": "SAFETY", "refusal": "SAFETY", "error": "OTHER"}


_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?")


def number_of(value: Any) -> Any:
    """A number, which Google's JSON may have as a string; anything else as it is."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)


class CamelCaseFields(Fields):
    """Fields that go by their camelCase names. What is left over keeps the client's spelling."""

    __slots__ = ("_spelled",)

    def __init__(self, value: Any, path: str = "$") -> None:
        super().__init__(value, path)
        self._spelled: dict[str, str] = {}
        if "_" in "".join(self._left):
            self._rename()

    def _rename(self) -> None:
        for key in list(self._left):
            name = to_camel_case(key)
            if name != key and self._left.get(name) is None:
                self._left[name] = self._left.pop(key)
                self._spelled[name] = key

    def take(self, key: str, kind: type[T]) -> T | None:
        if kind is int:
            self._read_number(key)
        return super().take(key, kind)

    def take_number(self, key: str) -> float | None:
        self._read_number(key)
        return super().take_number(key)

    def _read_number(self, key: str) -> None:
        if isinstance(value := self._left.get(key), str):
            self._left[key] = number_of(value)

    def take_object(self, key: str) -> CamelCaseFields | None:
        value = self.take(key, dict)
        return None if value is None else CamelCaseFields(value, self.path_of(key))

    def path_of(self, key: str) -> str:
        return super().path_of(self._spelled.get(key, key))

    def rest(self) -> Json:
        rest = super().rest() if self._left else {}
        if not self._spelled:
            return rest
        return {self._spelled.get(key, key): value for key, value in rest.items()}


# Signatures.

PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""What may stand in place of a signature that was lost, or was never there."""
_MARK = b"toolspeak"
_MARKED = base64.urlsafe_b64encode(_MARK).decode()


def wrapped(signature: str) -> str:
    """Another maker's signature. Clients take each for base64 and write it anew in their own
    alphabet, which that maker would not know again."""
    return base64.urlsafe_b64encode(_MARK + signature.encode("utf-8", "surrogatepass")).decode()


def signature_in(fields: CamelCaseFields) -> str | None:
    """The signature of a part, if it is one."""
    given = fields.take_text("thoughtSignature")
    if not given.startswith(_MARKED):
        return given if given and given not in PLACEHOLDERS else None
    try:
        padded = given + "=" * (-len(given) % 4)
        return base64.urlsafe_b64decode(padded)[len(_MARK) :].decode("utf-8", "surrogatepass")
    except ValueError:
        return given
