"""Upstreams' errors: their kinds, and the format that several APIs share.

{"error": {"message": "…", "type": "invalid_request_error", "param": null, "code": null}}
"""

from __future__ import annotations

import re
from typing import Any

from ..types import Failure, FailureKind
from .fields import Json

_KIND_BY_STATUS: dict[int, FailureKind] = {
    400: "bad_request",
    401: "unauthorized",
    402: "forbidden",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "bad_request",
    429: "rate_limit",
    502: "upstream",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_MAX_RAW_ERROR = 1000
UNKNOWN_STATUS = 500
"""The status of an error within a stream, until its code tells more."""
_STATUS_BY_CODE = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "upstream_error": 502,
    "timeout_error": 504,
    "overloaded_error": 529,
    "server_is_overloaded": 529,
}
"""Statuses by error code, for errors that come without one."""
ERROR_TYPES: dict[FailureKind, str] = {
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "timeout": "timeout_error",
}
"""The types of errors that the APIs of OpenAI and Anthropic have in common."""
_CONTEXT_PHRASES = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "context_size",
    "context limit",
    "context the overflows",
    "prompt is too long",
    "prompt too long",
    "prompt token count",
    "maximum prompt length",
    "input is too long",
    "input token count",
    "input tokens exceed",
    "token limit",
    "reduce the length of the messages",
    "request too large for model",
    "too many tokens",
    "`max_new_tokens` must be <=",
    "exceeds the maximum number of tokens",
    "exceeds the maximum allowed length",
    "range of input length",
)
IMAGE_NOT_SUPPORTED = "image_not_supported"
"""The code of the error that a model cannot read images."""
_REJECTS_IMAGES = re.compile(
    r"images?(?: inputs?| content)? (?:is|are) not supported|(?:not|n['’]t) support images?\b"
    r"|(?:not|n['’]t) support (?:vision|multimodal|multi-modal)|support(?:s|ing)? image input"
    r"|at most 0 image|not a (?:vision|multimodal|multi-modal) model|unknown variant .?image"
    r"|image_url is only supported by certain models|missing data required for image input",
    re.I,
)


def classify_failure(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    details: Json | None = None,
    counts: TokenCounts = (None, None),
) -> Failure:
    """Return the failure that an upstream's status, code and message describe.

    `counts` are those of a context error, if the upstream has fields for them.
    """
    kind = _KIND_BY_STATUS.get(status, "upstream" if status >= 500 else "bad_request")
    text = f"{code} {message}".lower()
    if kind in ("bad_request", "too_large") and any(phrase in text for phrase in _CONTEXT_PHRASES):
        kind, status = "context_length", 400
        counts = counts if all(counts) else read_token_counts(message)
    elif kind in ("bad_request", "not_found", "upstream") and _REJECTS_IMAGES.search(message):
        kind, status, code = "bad_request", 400, IMAGE_NOT_SUPPORTED
    return Failure(
        kind,
        message or f"The upstream responded with status {status}.",
        status,
        code,
        param,
        details,
        *(counts if kind == "context_length" else (None, None)),
    )


# Context errors: the size of the request, and the limit.

TokenCounts = tuple[int | None, int | None]
"""The number of tokens of a request, and how many are allowed."""
_COUNT = re.compile(r"(?<![\w.<-])\d[\d,_]{2,}(?![\w-]|\.\d)")
_LIMIT_WORDS = r"(?:context (?:length|size|window|limit)|prompt length|limit|allowed|maximum)"
_LIMITS = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"(?:>|<=) *(\d[\d,_]*)",
        _LIMIT_WORDS + r"\W+(?:(?:is|of|only|to|tokens?)\W+)*(\d[\d,_]{2,})",
        r"(\d[\d,_]{2,})(?: tokens?)? " + _LIMIT_WORDS,
    )
)
"""Text around the limit; the first pattern that matches decides."""
_SUMS = (
    re.compile(r"(\d[\d,_]*) \+ (\d[\d,_]*) >"),
    re.compile(r"(\d[\d,_]*) > \d[\d,_]* - (\d[\d,_]*)"),
)
"""The prompt and the longest reply, which count together: `19000 + 1000 > 8192`."""
_EXCESS = re.compile(r"exceed\w*(?: \w+){0,4} by (\d[\d,_]*)", re.I)
"""How much larger than the limit a request is: `size limit exceeded by 11808 tokens`."""
_MAX_LEAD = 20


def read_token_counts(message: str) -> TokenCounts:
    """Return the counts that the message of a context error states, in whatever order.

    maximum context length is 8192 tokens. However, you requested 20000     (20000, 8192)
    prompt is too long: 20000 tokens > 8192 maximum                         (20000, 8192)
    """
    counts = list(dict.fromkeys(map(_parse_count, _COUNT.findall(message))))
    if found := _EXCESS.search(message):
        excess = _parse_count(found[1])
        counts = [count for count in counts if count != excess]
        if len(counts) == 1:
            return counts[0] + excess, counts[0]
    if len(counts) == 2:
        # The request is the larger one.
        return max(counts), min(counts)
    limits = (match for pattern in _LIMITS if (match := pattern.search(message)))
    limit = next((_parse_count(match[1]) for match in limits), None)
    if limit is None:
        return None, None
    for pattern in _SUMS:
        if total := pattern.search(message):
            return _parse_count(total[1]) + _parse_count(total[2]), limit
    others = [count for count in counts if count != limit]
    prompt = next((size for size in (max(others, default=0), sum(others)) if size > limit), None)
    return prompt, limit


def _parse_count(text: str) -> int:
    return int(text.replace(",", "").replace("_", ""))


def write_context_message(failure: Failure, sentence: str, mark: str) -> str:
    """Return the message of a context error with the API's own `sentence`, by which clients
    recognise it and read the numbers; unless it begins with the `mark` of such a sentence."""
    message, prompt, limit = failure.message, failure.prompt_tokens, failure.token_limit
    if failure.kind != "context_length" or prompt is None or limit is None:
        return message
    numbers = {"prompt": prompt, "limit": limit, "excess": prompt - limit}
    is_own = mark.format(**numbers) in message[: len(mark) + _MAX_LEAD]
    return message if is_own else f"{sentence.format(**numbers)} {message}"


def decode_failure(status: int, body: Any) -> Failure:
    """Decode the body of an error: in the shared format, or plain text."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return classify_failure(status, str(error or ""))
    codes = (error.get("code"), error.get("type"))
    code = codes[0] or codes[1]
    message = str(error.get("message") or error.get("detail") or "")
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        # OpenRouter wraps the error of the server behind it.
        message = f"{message}: {metadata['raw'][:_MAX_RAW_ERROR]}"
    if status == UNKNOWN_STATUS:
        status = next((found for code in codes if (found := _find_status(code))), status)
    param, details = error.get("param"), error.get("details")
    counts = error.get("n_prompt_tokens"), error.get("n_ctx")
    return classify_failure(
        status,
        message,
        str(code) if code else None,
        str(param) if param else None,
        details if isinstance(details, dict) else None,
        counts if all(type(count) is int for count in counts) else (None, None),
    )


def _find_status(code: Any) -> int | None:
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return _STATUS_BY_CODE.get(str(code))
