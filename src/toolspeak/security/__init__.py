"""Untrusted text: secrets, escaping of markup, copied calls, refusals."""
