"""Fields of a request that an upstream rejects by name, and that it can be sent without.

    400 Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.    rename
    422 {"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}   drop
    400 tools.0.function.strict: Extra inputs are not permitted                        drop in tools

`recovery` sends the request again with the change, and `upstream/learned_modes.py` remembers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, structs

from ..types import Failure, Quirks, Request
from ..wires import WIRES
from ..wires.errors import IMAGE_NOT_SUPPORTED
from ..wires.fields import Json

_RENAMED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Fields that have another name at some upstreams."""
_OPTIONAL = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "random_seed", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs"),
        *("top_logprobs", "reasoning_effort", "reasoning", "thinking", "think", "verbosity"),
        *("stream_options", "metadata", "user", "store", "service_tier", "safety_identifier"),
        *("prompt_cache_key", "prompt_cache_retention", "include", "truncation", "keep_alive"),
        *("parallel_tool_calls", "tool_choice", "context_management", "output_config"),
    }
)
"""Fields without which the reply is still of use. The gateway enforces `tool_choice` itself; `stop`
and `response_format` are not here, because their clients rely on them."""
_OPTIONAL_IN_TOOLS = frozenset({"strict", "cache_control"})
_OPTIONAL_IN_MESSAGES = frozenset({"reasoning_content", "reasoning_details", "cache_control"})
_OTHER_NAMES = {"think": "thinking"}
"""Other names for a field in error texts."""
_UNSUPPORTED = re.compile(
    r"unsupported|(?:not|n['’]t) support|unknown|unrecogni[sz]ed|unexpected|deprecated|no such"
    r"|extra[ _](?:inputs?|fields?|forbidden)|additional propert|cannot find field"
    r"|(?:not|n['’]t) (?:permitted|allowed|accepted|recogni[sz]ed|implemented|available)"
    r"|not (?:accept|exist)|use ['\"`]?\w+['\"`]? instead",
    re.I,
)
"""Error texts that reject a field as such, and not only its value."""
_STATUSES = frozenset({400, 422})
_LABEL = (
    r"(?:['\"`\[(.]|\b(?:parameter|field|argument|property|option|key|name|input|support|supported"
    r"|unsupported|supplied|unknown)s?:? |^)"
)
"""The text before the name of a field, where that name is also a common word."""

Place = Literal["body", "tools", "messages"]


class FieldChange(Struct, frozen=True):
    """A field that an upstream does not take; it is renamed, or dropped if `replacement` is ""."""

    name: str
    place: Place = "body"
    """The object with the field: the request, or each of its tools or messages."""
    replacement: str = ""

    def describe(self) -> str:
        done = f"sent as `{self.replacement}`" if self.replacement else "dropped"
        where = "" if self.place == "body" else f" in `{self.place}`"
        return f"the upstream rejected `{self.name}`{where}; it was {done}"

    def apply(self, quirks: Quirks) -> Quirks:
        """Return the quirks of an upstream that needs this change, too."""
        if self.place == "tools":
            return structs.replace(quirks, drop_in_tools=(*quirks.drop_in_tools, self.name))
        if self.place == "messages":
            return structs.replace(quirks, drop_in_messages=(*quirks.drop_in_messages, self.name))
        # Quirks apply to the names before they are renamed.
        renamed = {old: new for old, new in quirks.rename.items() if new != self.name}
        if self.replacement:
            return structs.replace(quirks, rename={**renamed, self.name: self.replacement})
        old_names = [old for old, new in quirks.rename.items() if new == self.name]
        return structs.replace(quirks, rename=renamed, drop=(*quirks.drop, self.name, *old_names))


def find_rejected_field(failure: Failure, body: Json) -> FieldChange | None:
    """Return the change that lets an upstream take a request; None if its error is about something
    else."""
    text = f"{failure.code or ''} {failure.message}"
    if failure.kind != "bad_request" or failure.status not in _STATUSES:
        return None
    if not _UNSUPPORTED.search(text):
        return None
    candidates = dict(_list_candidates(body))
    if failure.param:
        words = re.findall(r"\w+", failure.param)
        name = next((word for word in reversed(words) if word in candidates), None)
    else:
        found = ((_find_mention(name, failure.message), name) for name in candidates)
        name = min(((at, name) for at, name in found if at >= 0), default=(0, None))[1]
    return FieldChange(name, candidates[name], _RENAMED.get(name, "")) if name else None


def name_rejected_image(failure: Failure, request: Request, model: str) -> Failure:
    """Return the failure; if the model cannot read images, with the field that contains them in the
    client's API."""
    if failure.code != IMAGE_NOT_SUPPORTED:
        return failure
    field = WIRES[request.wire].messages_field if request.wire in WIRES else "messages"
    message = f"the model {model!r} cannot read images; remove the images from `{field}`, or "
    message += "choose a model that reads them"
    return structs.replace(failure, message=message, param=field)


def _list_candidates(body: Json) -> Iterator[tuple[str, Place]]:
    """Yield the names of fields that the request has and can be sent without."""
    for message in _list_objects(body.get("messages")):
        for name in _OPTIONAL_IN_MESSAGES & message.keys():
            yield name, "messages"
    for tool in _list_objects(body.get("tools")):
        for part in (tool, *_list_objects([tool.get("function")])):
            for name in _OPTIONAL_IN_TOOLS & part.keys():
                yield name, "tools"
    for name in (_OPTIONAL | _RENAMED.keys()) & body.keys():
        yield name, "body"


def _list_objects(value: Any) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _find_mention(name: str, text: str) -> int:
    """Return the position at which a text mentions a field, or -1."""
    found = _mention_pattern(name).search(text)
    return found.start() if found else -1


@lru_cache(maxsize=256)
def _mention_pattern(name: str) -> re.Pattern[str]:
    names = "|".join(filter(None, (name, _OTHER_NAMES.get(name))))
    before = r"(?<![\w-])" if "_" in name else _LABEL
    return re.compile(rf"{before}(?:{names})(?![\w-])", re.I)
