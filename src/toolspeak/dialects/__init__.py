"""Every text format in which models write tool calls, parsed and rendered from one description.

template      the definition of a dialect   catalog     the dialects themselves, as data
markers       the dialects to recognize     parser      how text becomes events: read this first
render        calls, results and tool lists as text
"""

from .markers import DIALECTS, dialects_for_model, get_dialect
from .parser import Parser
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
