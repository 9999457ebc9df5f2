"""Generates the tables of scrubbing.md from the rules."""

from __future__ import annotations

from toolspeak.security.scrubbing.rules import RULES, SecretNameRule


def tables() -> dict[str, str]:
    """Return each generated part of the page."""
    return {"names": _names(), "shapes": _shapes(), "patterns": _patterns()}


def _names() -> str:
    rows = [f"| {_words(rule)} | {rule.kind} | {_remark(rule)} |" for rule in RULES.names]
    return "\n".join(["| name | kind | condition |", "|---|---|---|", *rows])


def _words(rule: SecretNameRule) -> str:
    return ", ".join(f"`{word}`" for word in rule.words)


def _remark(rule: SecretNameRule) -> str:
    remarks: list[str] = []
    if rule.only_after:
        remarks.append("after " + ", ".join(f"`{word}`" for word in rule.only_after))
    if rule.not_after:
        remarks.append("not after " + ", ".join(f"`{word}`" for word in rule.not_after))
    if rule.random_only:
        remarks.append("if the value looks random")
    if rule.multi_word:
        remarks.append("also values of several words")
    if rule.header:
        remarks.append("the scheme of a header and the names of cookies are kept")
    return "; ".join(remarks)


def _shapes() -> str:
    kinds = dict.fromkeys(shape.kind for shape in RULES.shapes)
    blocks = dict.fromkeys(block.kind for block in RULES.blocks)
    return ", ".join([*kinds, *blocks]) + "."


def _patterns() -> str:
    kinds: dict[str, list[str]] = {}
    for row in RULES.patterns:
        kinds.setdefault(row.kind, []).append(f"`{row.cue}`")
    rows = [f"| {kind} | {', '.join(dict.fromkeys(cues))} |" for kind, cues in kinds.items()]
    return "\n".join(["| kind | found after |", "|---|---|", *rows])
