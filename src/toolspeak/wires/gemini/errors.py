"""Google's errors.

{"error": {"code": 400, "message": "…", "status": "INVALID_ARGUMENT", "details": [{…}]}}
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from ...types import Failure, FailureKind
from ..encoding import omit_none
from ..errors import classify_failure
from ..fields import Json

_STATUS_NAMES: dict[FailureKind, str] = {
    "unauthorized": "UNAUTHENTICATED",
    "forbidden": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
    "upstream": "UNAVAILABLE",
    "internal": "INTERNAL",
}
_VIOLATION = "type.googleapis.com/google.rpc.BadRequest"


def decode_failure(status: int, body: Any) -> Failure:
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    code, name = error.get("code"), error.get("status")
    if isinstance(code, int) and 400 <= code < 600:
        status = code
    items: Any = error.get("details")
    details = [item for item in items if isinstance(item, dict)] if type(items) is list else []
    failure = classify_failure(
        status,
        str(error.get("message") or ""),
        str(name) if name else None,
        _find_field(details),
        {"details": details} if details else None,
    )
    return structs.replace(failure, kind=_refine_kind(failure, details))


def _refine_kind(failure: Failure, details: list[Json]) -> FailureKind:
    """Return the kind of a failure, of which Google reports two as a plain 400."""
    if failure.kind == "bad_request" and "number of tokens" in failure.message:
        return "context_length"
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        return "unauthorized"
    return failure.kind


def _find_field(details: list[Json]) -> str | None:
    """Return the field of the request that is wrong."""
    for detail in details:
        violations = detail.get("fieldViolations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict) and isinstance(violation.get("field"), str):
                return violation["field"]
    return None


def encode_failure(failure: Failure) -> Json:
    error = {
        "code": failure.status,
        "message": failure.message,
        "status": _STATUS_NAMES.get(failure.kind, "INVALID_ARGUMENT"),
    }
    return {"error": error | omit_none(details=_encode_details(failure))}


def _encode_details(failure: Failure) -> list[Any] | None:
    if failure.details:
        own = failure.details.get("details")
        return own if isinstance(own, list) else [failure.details]
    if failure.param is None:
        return None
    violation = {"field": failure.param, "description": failure.message}
    return [{"@type": _VIOLATION, "fieldViolations": [violation]}]
