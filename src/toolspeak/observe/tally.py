"""What a request that is over adds to the metrics."""

from __future__ import annotations

from ..notes import REPAIRS
from ..upstream.record import PREPARING, AttemptRecord, RequestRecord
from .metrics import Metrics

_REFUSALS = {"false-refusal": "false", "refusal": "honest"}


def tally(record: RequestRecord, metrics: Metrics) -> None:
    """Count a request."""
    count = metrics.count
    count("toolspeak_requests_total", record.wire, record.mode, str(record.status))
    if not record.is_chat:
        return
    metrics.observe(record.seconds, "toolspeak_request_seconds", record.wire)
    if record.overhead is not None:
        stream = "true" if record.is_stream else "false"
        metrics.observe(record.overhead, "toolspeak_overhead_seconds", stream)
    if record.holdback is not None:
        metrics.observe(record.holdback, "toolspeak_holdback_seconds")
    for question in record.attempts:
        _question(question, metrics)
    for reason in record.retries:
        count("toolspeak_retries_total", reason)
    for upstream, kind in record.failures:
        count("toolspeak_upstream_failures_total", upstream, kind)
    _reply(record, metrics)
    _notes(record, metrics)


def _question(question: AttemptRecord, metrics: Metrics) -> None:
    """Every reply of a model counts, not only the one that the client gets."""
    if question.first_byte is not None:
        taken = question.first_byte - question.started
        metrics.observe(taken, "toolspeak_upstream_seconds", question.server.name)
    if question.outcome and question.reason != PREPARING:
        metrics.count("toolspeak_replies_total", question.outcome)
        if question.outcome in _REFUSALS:
            metrics.count("toolspeak_refusals_total", _REFUSALS[question.outcome])
    if question.reply:
        for rejection in question.reply.rejected:
            metrics.count("toolspeak_rejected_calls_total", rejection.code)


def _reply(record: RequestRecord, metrics: Metrics) -> None:
    reply = record.reply
    if reply is None:
        return
    if calls := reply.calls:
        in_text = record.mode == "native" and any(call.raw for call in calls)
        stood = "text" if in_text else record.mode
        dialect = reply.dialect or "none"
        metrics.count("toolspeak_calls_total", stood, dialect, amount=len(calls))
    if reply.usage:
        metrics.count("toolspeak_tokens_total", "input", amount=reply.usage.input)
        metrics.count("toolspeak_tokens_total", "output", amount=reply.usage.output)


def _notes(record: RequestRecord, metrics: Metrics) -> None:
    codes = record.note_codes
    for code in codes:
        metrics.count("toolspeak_notes_total", code)
    # What was repaired in a reply that did not do for another reason was repaired, too.
    for question in record.attempts:
        if question.reply and question.reply.notes:
            codes += [note.code for note in question.reply.notes]
    if codes:
        for code in REPAIRS.intersection(codes):
            metrics.count("toolspeak_repairs_total", code)
