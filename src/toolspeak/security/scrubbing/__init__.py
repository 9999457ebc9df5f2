"""Secrets are taken out of what tools give back, before a model or a screen gets to see them.

scrub('{"api_key": "sk-1234567890"}').text      -> '{"api_key": "sk-1*[REDACTED]"}'

Only values change: JSON stays JSON, and a file keeps its shape. `rules.toml` says what is found,
`Scrubber` reads streams, and with a `Vault` secrets can be put back where that was allowed.
"""

from .marks import SecretFinding
from .scrubber import MAX_HELD, Scrubber, ScrubResult, mask, scrub
from .vault import Secret, SecretUse, Vault

__all__ = [
    "MAX_HELD",
    "ScrubResult",
    "Scrubber",
    "Secret",
    "SecretFinding",
    "SecretUse",
    "Vault",
    "mask",
    "scrub",
]
