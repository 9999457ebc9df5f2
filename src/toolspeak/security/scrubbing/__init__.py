"""Removes secrets from tool results before a model or a screen shows them.

scrub('{"api_key": "sk-1234567890"}').text      -> '{"api_key": "sk-1*[REDACTED]"}'

Only values change: JSON stays JSON, and a file keeps its structure. `rules.toml` defines what is
found, `Scrubber` reads streams, and a `Vault` can restore secrets where that was approved.
"""

from .placeholders import Secret, SecretFinding, SecretUse, Vault
from .scrubber import MAX_HELD, Scrubber, ScrubResult, mask, scrub

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
