"""Secrets are taken out of what tools give back, before a model or a screen gets to see them.

scrub('{"api_key": "sk-1234567890"}').text      -> '{"api_key": "sk-1*[REDACTED]"}'

Only values change: JSON stays JSON, and a file keeps its shape. `rules.toml` says what is found,
`Scrubber` reads streams, and with a `Vault` secrets can be put back where that was allowed.
"""

from .marks import Found
from .scrubber import HELD_AT_MOST, Scrubbed, Scrubber, cover, scrub
from .vault import Secret, Use, Vault

__all__ = [
    "HELD_AT_MOST",
    "Found",
    "Scrubbed",
    "Scrubber",
    "Secret",
    "Use",
    "Vault",
    "cover",
    "scrub",
]
