"""Every dialect, as data. A file holds a family; the order decides who is asked first where several
dialects share a marker.
"""

from __future__ import annotations

from ..template import Dialect
from . import code, framed, headed, json_blocks, prompted, seeds, tagged_values

ALL: tuple[Dialect, ...] = (
    *json_blocks.DIALECTS,
    *headed.DIALECTS,
    *tagged_values.DIALECTS,
    *code.DIALECTS,
    *framed.DIALECTS,
    *prompted.DIALECTS,
    *seeds.DIALECTS,
)
