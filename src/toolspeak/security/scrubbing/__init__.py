"""Removes secrets from tool results before a model or a screen shows them.

scrub('{"api_key": "sk-1234567890"}').text      -> '{"api_key": "sk-1*[REDACTED]"}'

Only values change: JSON stays JSON, and a file keeps its structure. `rules.toml` defines what is
found, `Scrubber` reads streams, and a `Vault` can restore secrets where that was approved.
"""

from .scrubber import MAX_HELD, Scrubber, ScrubResult, SecretFinding, scrub
from .vault import Secret, SecretUse, Vault

__all__ = [
    "MAX_HELD",
    "ScrubResult",
    "Scrubber",
    "Secret",
    "SecretFinding",
    "SecretUse",
    "Vault",
    "scrub",
]
