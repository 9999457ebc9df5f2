"""Answers in the form that a client has asked for, where it offers tools too.

While a model may call, it cannot be held to that form; so what it answers is checked.
"""

from __future__ import annotations

import json

from ..calls.json_values import strip_code_fence
from ..calls.schema_validator import get_validator
from ..types import ResponseFormat


def match_format(text: str, wanted: ResponseFormat) -> str | None:
    """The answer in that form, out of its code fence; None if it is not in it."""
    inside = strip_code_fence(text).strip()
    try:
        value = json.loads(inside)
    except (ValueError, RecursionError):
        return None
    if wanted.schema is None:
        return inside if isinstance(value, dict) else None
    return inside if get_validator(wanted.schema).is_valid(value) else None
