"""What a model behind an upstream can do, found out by asking it.

    report = await probe(served, upstreams)
    report.mode, report.reason      how it is best given tools, and why

The walk: `questions` are what is asked, `asking` asks, `trials` find out one thing each, `scores`
counts what each way of giving tools comes to, `verdict` chooses, `saving` writes it down.
"""

from .run import Report, probe
from .saving import Advice, advice, save

__all__ = ["Advice", "Report", "advice", "probe", "save"]
