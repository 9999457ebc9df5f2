"""The words of Responses that more than one direction uses."""

from __future__ import annotations

import re

from ...events import ITEM_ID
from ...types import StopReason
from ..common import EFFORTS as EFFORTS
from ..fields import OWN

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

CONTINUED = f"{OWN}previous_response_id"
"""In a request: the response that it goes on from, where its conversation is there already."""
INSTRUCTIONS = f"{OWN}instructions"
"""In the `extra` of a message: it stood beside the input."""
CHOICE = f"{OWN}tool_choice"
"""In the `extra` of a request: a choice of tools that says in which namespaces they are."""
HOSTED_CHOICE, HOSTED_CHOICES = "tool_choice", "tool_choice.tools"
"""In the `extra` of a request: a choice of a tool that only this API can run; or of several, some
of which others can run too. Elsewhere it is noted as left out."""
SPACE = f"{OWN}namespace"
"""In a tool that only this API can run: the namespace that it is in, without its tools."""
SUMMARY = f"{OWN}summary"
"""In the `extra` of a request: how thoughts are to be summed up, if not as the model likes."""
CUSTOM = f"{OWN}custom"
"""In the `extra` of a result: it answers a call of a freeform tool."""
ID = ITEM_ID
"""In any `extra`: the id of the item."""
STATUS = f"{OWN}status"
"""In any `extra`: how far the item has come."""
TEXTS = f"{OWN}texts"
"""In the `extra` of a thought: the texts it is made of, if they are not one summary."""
ITEM = f"{OWN}item"
"""In the `extra` of a picture: all else that its item says."""

MADE_ID = re.compile(r"(rs|msg|fc|ctc|ig)_\d+_")
"""An id that our encoder gave an item. No upstream knows it, and some would look for it."""
