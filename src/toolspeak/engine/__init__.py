"""The engine: one request, from the client's request to the events of its reply. No I/O.

Read `pipeline.py` first. `attempt.py` and `prompt.py` write what is sent, `reply_reader.py` reads
what comes back, `recovery.py` decides what to ask next.
"""

from .attempt import Attempt, prepare_attempt
from .pipeline import Pipeline, run_pipeline
from .plan import ModelProfile, plan_request
from .reply_reader import ReplyReader

__all__ = [
    "Attempt",
    "ModelProfile",
    "Pipeline",
    "ReplyReader",
    "plan_request",
    "prepare_attempt",
    "run_pipeline",
]
