"""Every text format in which models write tool calls, read and written by one engine.

template   what a dialect is          catalog    the dialects themselves, as data
table    what to search for         parser     the machine that reads
buffer     the text as it arrives     bodies     what stands between the markers
scan       where a value ends         render     writing
"""

from .parser import Parser
from .registry import DIALECTS, dialects_for_model, get_dialect
from .render import render_calls, render_results, render_tools
from .template import Dialect

__all__ = [
    "DIALECTS",
    "Dialect",
    "Parser",
    "dialects_for_model",
    "get_dialect",
    "render_calls",
    "render_results",
    "render_tools",
]
