"""Every note there is: its code, which is stable, and what it means."""

from __future__ import annotations

NOTES: dict[str, str] = {
    # A block stays text.
    "malformed": "A block has the markers of a call, but its body cannot be read.",
    "unknown-tool": "A call names a tool that was not offered; the message lists the nearest.",
    "bad-arguments": "A call's arguments are not an object, and no JSON text of one.",
    "invalid-arguments": "A call's arguments do not fit the tool's schema, and cannot be made to.",
    "placeholder": "A call's arguments only stand for values (`...`, `<city>`): it is an example.",
    "example": "A call stands in inline code or in a code fence within a longer reply.",
    "echoed": "A call repeats one that stands in a tool result or document.",
    "truncated": "The reply ends inside a call, which is not made.",
    "too-long": "A call is longer than allowed.",
    "not-a-call": "A marker begins nothing that can be read as a call.",
    "no-calls": "The model says that it makes no call.",
    # A call is made, with a liberty taken.
    "renamed": "A tool's name was spelled in another way than it was declared.",
    "guessed-name": "A call names no tool, and its arguments fit only one.",
    "coerced": "A value was made into what the schema asks for; `where` is its path.",
    "id-replaced": "A call's id was already taken by another call.",
    "repeated": "The same call, or one with the same id, stands there twice; it is made once.",
    "wrong-closer": "A call was closed by the end of another tag.",
    "unclosed": "The reply ends inside the marker that closes a call.",
    "schema-unusable": "A tool's schema cannot be used as it is; what could be checked was.",
    # Repairs: none changes what stands inside a string.
    "repaired-arguments-beside-name": "The arguments stood beside the name, under no key.",
    "repaired-bare-input": "The input was bare text, for a tool that needs only one parameter.",
    "repaired-comment": "Comments were left out.",
    "repaired-extra-closer": "There were more closing brackets than opening ones.",
    "repaired-inner-quotes": "A text held its own quotes unescaped.",
    "repaired-invalid-escape": "A text held a backslash that escapes nothing; it was kept.",
    "repaired-markdown": "Underscores were escaped as Markdown wants it.",
    "repaired-missing-closer": "Closing brackets were missing before the closing marker.",
    "repaired-missing-quote": "The last text's closing quote was missing.",
    "repaired-missing-tag": "The closing tag of a parameter was missing.",
    "repaired-positional": "Arguments without names were named in the order of the schema.",
    "repaired-noise": "Prose between the marker and the JSON was left out.",
    "repaired-python-literal": "`True`, `None`, a tuple: Python instead of JSON.",
    "repaired-python-set": "A Python set was read as a list.",
    "repaired-single-quotes": "Texts stood in single quotes.",
    "repaired-smart-quotes": "Typographic quotes stood around texts.",
    "repaired-trailing-comma": "A comma stood before a closing bracket.",
    "repaired-unquoted-key": "Keys stood without quotes.",
    "repaired-unquoted-value": "A text stood without quotes.",
    # Around calls.
    "after-answer": "What looks like a call follows an answer that was complete; it is prose.",
    "control-token": "A token of some chat template stood in the text, and was left out.",
    "reasoning-unclosed": "A call ended reasoning that was never closed.",
    "calls-were-thoughts": "Reasoning that nothing opened was closed: calls before were thoughts.",
    "from-reasoning": "The reply makes no call, and its reasoning does; trust is lenient.",
    "more-notes": "There were too many notes; the rest was left out.",
}
