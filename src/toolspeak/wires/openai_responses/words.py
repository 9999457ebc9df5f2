"""The words of Responses that more than one direction uses."""

from __future__ import annotations

import re

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
STOPS_OUT = {"length": "max_output_tokens", "filter": "content_filter"}

INSTRUCTIONS = f"{OWN}instructions"
"""In the `extra` of a message: it stood beside the input."""
CHOICE = f"{OWN}tool_choice"
"""In the `extra` of a request: a choice among tools that only this API can run, as it was given."""
SUMMARY = f"{OWN}summary"
"""In the `extra` of a request: how thoughts are to be summed up, if not as the model likes."""
CUSTOM = f"{OWN}custom"
"""In the `extra` of a result: it answers a call of a freeform tool."""
ID = f"{OWN}id"
"""In the `extra` of a thought: the id of its item."""
TEXTS = f"{OWN}texts"
"""In the `extra` of a thought: the texts it is made of, if they are not one summary."""
ITEM = f"{OWN}item"
"""In the `extra` of a picture: all else that its item says."""

MADE_ID = re.compile(r"rs_\d+_")
"""An id that our encoder gave a thought. No upstream knows it, and some would look for it."""
