"""Every text format in which models write tool calls, read and written by one engine.

template   what a dialect is          catalog    the dialects themselves, as data
grammar    what to search for         parser     the machine that reads
reader     the text as it arrives     bodies     what stands between the markers
scan       where a value ends         render     writing
"""

from .parser import Parser
from .registry import DIALECTS, for_model, get
from .render import render_calls, render_results, render_tools
from .template import Dialect

__all__ = [
    "DIALECTS",
    "Dialect",
    "Parser",
    "for_model",
    "get",
    "render_calls",
    "render_results",
    "render_tools",
]
