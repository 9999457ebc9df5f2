"""Gemini: names, part types and signatures that requests and replies share.

Every field may be spelled in camelCase or snake_case:

{"functionCall": {"name": "f", "args": {}}}      {"function_call": {"name": "f", "args": {}}}
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...calls.schema import to_camel_case
from ...types import Document, Image, Other, Part, Reasoning, ToolCall, ToolResult
from ..calls import ORIGINAL_ID
from ..encoding import omit_none
from ..fields import ARGUMENTS_TEXT, Fields, Json, T, nest

NAME = "gemini"
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?")
_PART_TYPES = ("functionCall", "functionResponse", "text", "inlineData", "fileData")


class CamelCaseFields(Fields):
    """Fields by their camelCase names. Those that remain keep the client's spelling."""

    __slots__ = ("_spelling",)

    def __init__(self, value: Any, path: str = "$") -> None:
        super().__init__(value, path)
        self._spelling: dict[str, str] = {}
        if "_" in "".join(self._left):
            self._rename()

    def _rename(self) -> None:
        for key in list(self._left):
            name = to_camel_case(key)
            if name != key and self._left.get(name) is None:
                self._left[name] = self._left.pop(key)
                self._spelling[name] = key

    def take(self, key: str, kind: type[T]) -> T | None:
        if kind is int:
            self._parse_number(key)
        return super().take(key, kind)

    def take_number(self, key: str) -> float | None:
        self._parse_number(key)
        return super().take_number(key)

    def _parse_number(self, key: str) -> None:
        if isinstance(value := self._left.get(key), str):
            self._left[key] = parse_number(value)

    def take_object(self, key: str) -> CamelCaseFields | None:
        value = self.take(key, dict)
        return None if value is None else CamelCaseFields(value, self.path_of(key))

    def path_of(self, key: str) -> str:
        return super().path_of(self._spelling.get(key, key))

    def rest(self) -> Json:
        rest = super().rest() if self._left else {}
        if not self._spelling:
            return rest
        return {self._spelling.get(key, key): value for key, value in rest.items()}


def parse_number(value: Any) -> Any:
    """Return a number that Google's JSON may hold as a string; anything else unchanged."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)


# Parts.


def is_other_part(fields: CamelCaseFields) -> bool:
    """Return True if only Gemini has this type of part. An image within reasoning is one."""
    types = [key for key in _PART_TYPES if fields.has(key)]
    if fields.peek("thought") is True:
        return types != ["text"]
    rest = fields.rest().keys() - {"thoughtSignature", "thought_signature"}
    return not types and (bool(rest) or not fields.has("thoughtSignature"))


def decode_media(fields: CamelCaseFields) -> Image | Document | None:
    """Decode an image or file, by value or by URL."""
    inline = fields.take_object("inlineData")
    source = inline or fields.take_object("fileData")
    if source is None:
        return None
    data = source.take_text("data") if inline else None
    url = None if inline else source.take_text("fileUri")
    media_type = source.take_text("mimeType") or mimetypes.guess_type(url or "")[0] or ""
    extra = fields.rest() | nest("inlineData" if inline else "fileData", source.rest())
    media = Image if media_type.startswith("image/") else Document
    return media(url=url, data=data, media_type=media_type, extra=extra)


def _encode_media(part: Image | Document, is_type_known: bool) -> tuple[Json, str]:
    """Return an image or file, and the field for it."""
    if part.data is not None:
        return {"mimeType": part.media_type, "data": part.data}, "inlineData"
    guess = None if is_type_known else mimetypes.guess_type(part.url or "")[0]
    return omit_none(mimeType=guess or part.media_type or None, fileUri=part.url), "fileData"


def decode_call(call: CamelCaseFields, part: CamelCaseFields) -> tuple[str, str, Any, Json]:
    """Return a call's id or "", its name, its arguments and its `extra`."""
    identity = call.take_text("id")
    name, arguments = call.require("name", str), call.take_any("args")
    extra = part.rest() | nest("functionCall", call.rest())
    return identity, name, arguments, extra if identity else extra | {ORIGINAL_ID: ""}


def encode_part(
    part: Reasoning | ToolCall | Image | Document,
    extra: Json,
    name: str | None = None,
    *,
    is_type_known: bool = False,
) -> Json:
    """Encode a part with this `extra`; a call under the name by which it is sent. Unless it
    `is_type_known`, the media type of a URL may be a guess."""
    match part:
        case Reasoning():
            return {"text": part.text, "thought": True, **extra}
        case ToolCall():
            rest = dict(extra)
            rest.pop(ARGUMENTS_TEXT, None)
            identity = omit_none(id=rest.pop(ORIGINAL_ID, part.id) or None)
            call = {**identity, "name": name or part.name, "args": part.arguments}
            return {"functionCall": call | rest.pop("functionCall", {}), **rest}
        case _:
            source, key = _encode_media(part, is_type_known)
            return {**extra, key: source | extra.get(key, {})}


# Signatures of reasoning.

PLACEHOLDERS = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""Accepted in place of a signature that was lost or never existed."""
_MARK = b"toolspeak"
_ENCODED_MARK = base64.urlsafe_b64encode(_MARK).decode()


def wrap_signature(signature: str) -> str:
    """Return another API's signature as base64. Clients re-encode every signature as base64, which
    would otherwise change it."""
    return base64.urlsafe_b64encode(_MARK + signature.encode("utf-8", "surrogatepass")).decode()


def decode_signature(fields: CamelCaseFields) -> str | None:
    signature = fields.take_text("thoughtSignature")
    if not signature.startswith(_ENCODED_MARK):
        return signature if signature and signature not in PLACEHOLDERS else None
    try:
        padded = signature + "=" * (-len(signature) % 4)
        return base64.urlsafe_b64decode(padded)[len(_MARK) :].decode("utf-8", "surrogatepass")
    except ValueError:
        return signature


def encode_signed_parts(
    parts: Iterable[Part],
    encode_part: Callable[[Part], Json],
    encode_signature: Callable[[str], str] = str,
) -> list[Json]:
    """Encode parts, with the signature of reasoning on the part that follows it."""
    out: list[Json] = []
    signature, reasoning = "", None
    for part in parts:
        if isinstance(part, Reasoning):
            out += _place_signature(signature, reasoning)
            signature = encode_signature(part.signature) if part.signature else ""
            is_empty = not part.text and not part.extra and bool(signature)
            reasoning = None if is_empty else encode_part(part)
            out += [reasoning] if reasoning else []
            continue
        encoded = encode_part(part)
        if not encoded:
            continue
        if signature and not isinstance(part, (Other, ToolResult)):
            encoded["thoughtSignature"] = signature
            signature = ""
        out.append(encoded)
    return [*out, *_place_signature(signature, reasoning)]


def _place_signature(signature: str, reasoning: Json | None) -> Iterator[Json]:
    """Put a signature that no part follows on the reasoning itself, or on an empty part."""
    if signature and reasoning:
        reasoning["thoughtSignature"] = signature
    elif signature:
        yield {"text": "", "thoughtSignature": signature}
