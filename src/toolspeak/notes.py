"""The catalog of note codes: each code is stable, and its text says what happened.

Note("coerced", message='"3" became 3', where="$.days")
"""

from __future__ import annotations

NOTES: dict[str, str] = {
    # A block was rejected as a call; it stays in the text.
    "malformed": "A block has the markers of a call, but its body cannot be parsed.",
    "unknown-tool": "A call names a tool that was not offered; the message names some that were.",
    "undecodable-arguments": "A call's arguments are neither an object nor JSON text of an object.",
    "invalid-arguments": "A call's arguments do not match the tool's schema and cannot be coerced.",
    "placeholder": "An argument is a placeholder (`...`, `<city>`), so the call is an example.",
    "unexpected-dialect": "Trust is strict, and a call is in a dialect that was not expected.",
    "example": "A call is only an example: in code, in a message to the user, announced as one, or "
    "copied from the prompt.",
    "near-call": "Text has the shape of a call, but is not in a form that is accepted here.",
    "echoed": "A call repeats one from a tool result or a document.",
    "truncated": "The reply ends inside a call.",
    "too-long": "A call is longer than the limit.",
    "unsearched-text": "The reply is so long that the rest of its text is not searched for calls.",
    "not-a-call": "A marker is followed by nothing that can be parsed as a call.",
    "no-call": "The model states in its dialect that it calls no tool.",
    # A call was accepted with a change, or dropped.
    "name-corrected": "A tool was called by a variant of its declared name.",
    "name-inferred": "A call names no tool; its arguments match exactly one.",
    "coerced": "A value was converted to the type that the schema requires; `where` is its path.",
    "id-replaced": "A call got a new id: its own was in use, or arrived after its arguments.",
    "duplicate-call": "The same call appears twice; it was passed on once.",
    "extra-call": "The request allows one call, and the reply has more; the first was passed on.",
    "wrong-closer": "A call was closed by the closing marker of another dialect.",
    "unclosed": "The marker or bracket that closes a call is missing.",
    "schema-unusable": "A tool's schema is partly invalid; only its valid keywords were checked.",
    "text-call": "A model with native tools wrote a call into its text; it was accepted.",
    # Between two APIs.
    "unsupported": "The API does not support a field or a part; it was dropped.",
    "converted": "A field or part has no exact equivalent in the API; the nearest one was used.",
    "skipped-tool": "A tool that only another API can run was not offered.",
    "renamed-tool": "The API does not allow a tool's name; the tool was sent under another.",
    "tools-rebuilt": "The request declares no tools; they were rebuilt from its earlier calls.",
    "model-substituted": "The requested model is unknown; the default model was asked instead.",
    "late-arguments": "Arguments for a call that had ended, or had never started, were ignored.",
    "no-model-call": "The user's message contains the whole call; the model was not called.",
    "field-rejected": "The upstream rejected a field by name; it was dropped or renamed, and the "
    "request was sent again.",
    "learned-mode": "The mode was learned from an earlier request or probe.",
    "tools-rejected": "The upstream rejected native tools; the tools were put into the prompt.",
    "fallback": "An upstream failed, and the next one was asked.",
    "dialect-changed": "The expected dialect cannot represent the request; another one was used.",
    "wrong-format": "The answer is not in the requested format.",
    "retried": "A reply was not usable, and the model was asked again; `where` is the outcome.",
    "prompt-truncated": "The upstream cut the prompt: it counted fewer tokens than the prompt has.",
    "forbidden-call": "A tool was called although calls were forbidden; the call was dropped.",
    "dropped-text": "Text of an earlier reply had been sent, so the text of the retry was dropped.",
    "reasoning-as-text": "The reply is only reasoning, which is also given as its text.",
    # Repairs: none changes the inside of a string.
    "repaired-arguments-beside-name": "The arguments were beside the name, not in an object.",
    "repaired-bare-input": "The input was plain text, for a tool with one required parameter.",
    "repaired-comment": "Comments were removed.",
    "repaired-code-fence": "The body was in a code fence inside the markers.",
    "repaired-doubled-braces": "Braces were doubled, as in a template: `{{`.",
    "repaired-double-encoding": "The arguments were encoded as JSON more than once.",
    "repaired-escaped-newline": "Line breaks between tags were written as `\\n`.",
    "repaired-extra-closer": "There was one closing bracket or tag too many.",
    "repaired-inner-closers": "A value contained the tags that close a value.",
    "repaired-inner-quotes": "A string contained unescaped quotes.",
    "repaired-invalid-escape": "A string contained a backslash escape that JSON does not have.",
    "repaired-markdown-escape": "Underscores were escaped as in Markdown: `\\_`.",
    "repaired-missing-closer": "Closing brackets were missing before the closing marker.",
    "repaired-missing-comma": "The comma between two calls of a list was missing.",
    "repaired-missing-quote": "The closing quote of the last string was missing.",
    "repaired-missing-tag": "The closing tag of a parameter was missing.",
    "repaired-unusual-whitespace": "There were invisible characters or unusual spaces.",
    "repaired-extra-keys": "The call's JSON object had other keys, which were ignored.",
    "repaired-wrong-punctuation": "Punctuation was wrong: `=` for `:`, or `(` for `{`.",
    "repaired-positional-arguments": "Arguments without names were named in schema order.",
    "repaired-extra-text": "Text between the opening marker and the call was removed.",
    "repaired-python-literal": "A value was Python, not JSON: `True`, `+3`, `.5`, a tuple.",
    "repaired-python-set": "A Python set was read as a list.",
    "repaired-wrong-input-key": "The text for a freeform tool was under a key other than `input`.",
    "repaired-quoted": "A name or a whole call was in quotes.",
    "repaired-raw-newline": "A string contained unescaped line breaks or tabs.",
    "repaired-several-calls": "There were several calls between markers meant for one.",
    "repaired-single-quotes": "Strings were in single quotes.",
    "repaired-smart-quotes": "Strings were in typographic quotes.",
    "repaired-trailing-comma": "There was a comma before a closing bracket.",
    "repaired-unquoted-key": "Keys were not quoted.",
    "repaired-unquoted-value": "A string was not quoted.",
    "repaired-wrong-tag": "A parameter was closed by the wrong tag.",
    "repaired-wrapped-arguments": "All arguments were inside one argument named `arguments`.",
    "repaired-wrapped-call": "The call was itself the argument of `tool_call` or `print`.",
    # Around calls.
    "stray-closer": "A closing tag is left over: a value may have contained one and ended there.",
    "after-answer": "A call after the final answer or another role's turn was left as text.",
    "fabricated-result": "The model wrote a tool result itself; it was removed.",
    "control-token": "A control token of a chat template was removed from the text.",
    "unclosed-reasoning": "The reasoning was not closed: it ended at a call or, after text, at the "
    "end of the reply.",
    "unopened-reasoning": "A tag ends reasoning that nothing opened; the message says whether the "
    "text before it became reasoning.",
    "calls-in-reasoning": "Reasoning has an end but no start; calls before the end are not made.",
    "call-from-reasoning": "The only calls were in the reasoning; lenient trust accepts them.",
    "notes-omitted": "There were too many notes; the rest was omitted.",
}
_OTHER_REPAIRS = ("name-corrected", "name-inferred", "coerced", "wrong-closer", "unclosed")
REPAIRS = frozenset(code for code in NOTES if code.startswith("repaired-")).union(_OTHER_REPAIRS)
"""The codes of notes on calls that were accepted only after a repair."""
