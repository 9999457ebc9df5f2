"""What a command may know of this program's environment: all but what looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...security.scrubbing import scrub

_SECRET = re.compile(
    r"key|token(?!iz)|secret|passw|passphrase|credential|cookie|dsn"
    r"|auth(?!or(?:_|$))|(?:^|_)(?:pass|pat|creds?)(?:_|$)|.pwd$",
    re.IGNORECASE,
)
"""Names of secrets, and of ways to them: `SSH_AUTH_SOCK` lets others use keys. Rather one too many
than one too few, but `GIT_AUTHOR_NAME` and `TOKENIZERS_PARALLELISM` are none."""
_NEEDED = frozenset({"OLDPWD"})


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names and values do not look like secrets."""
    return {name: value for name, value in variables.items() if not _is_secret(name, value)}


def _is_secret(name: str, value: str) -> bool:
    if name in _NEEDED:
        return False
    said = f"{name}={value}"
    return _SECRET.search(name) is not None or scrub(said).text != said
