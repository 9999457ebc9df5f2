"""Every dialect, as data: one file per family.

Where several dialects share a marker, the parser tries them in this order.
"""

from __future__ import annotations

from ..template import Dialect
from . import code_calls, json_calls, named_calls, prompted, tagged_parameters

ALL_DIALECTS: tuple[Dialect, ...] = (
    *json_calls.DIALECTS,
    *named_calls.DIALECTS,
    *tagged_parameters.DIALECTS,
    *code_calls.DIALECTS,
    *named_calls.FRAMED_DIALECTS,
    *prompted.DIALECTS,
)
