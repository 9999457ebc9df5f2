"""Replies that are several messages, each with a header that says what it is."""

from __future__ import annotations

from ..template import Dialect, Frame, Keys

DIALECTS = (
    Dialect(
        name="harmony",
        call=(
            "<|start|>assistant<|channel|>commentary to=functions.$name <|constrain|>json"
            "<|message|>$arguments<|call|>",
        ),
        between="",
        reasoning=(),
        frame=Frame(
            openers=("<|start|>", "<|channel|>"),
            first="to=",
            header=r"<\|channel\|>",
            message="<|message|>",
            ends=("<|call|>", "<|end|>", "<|return|>"),
            recipient=r"to=([^\s<]+)",
            thought=r".*<\|channel\|>analysis",
            tools=r"functions\.|(?!(?:assistant|user|all)$)",
        ),
        silent=("<|call|>", "<|end|>", "<|return|>"),
        result="<|start|>functions.$name to=assistant<|channel|>commentary"
        "<|message|>$content<|end|>",
        models=("gpt-oss",),
        about="gpt-oss; channels for reasoning, calls and the answer",
    ),
    Dialect(
        name="inkling",
        call=(
            "<|message_model|>$name<|content_invoke_tool_json|>$object<|end_message|>",
            "<|content_invoke_tool_json|>$object<|end_message|>",
            "<|message_model|>$name<|content_invoke_tool_json|>$arguments<|end_message|>",
        ),
        between="",
        keys=Keys("name", "args"),
        reasoning=(("<|content_thinking|>", "<|end_message|>"),),
        silent=(
            "<|message_model|>",
            "<|message_user|>",
            "<|content_text|>",
            "<|content_audio_input|>",
            "<|audio_end|>",
            "<|end_message|>",
        ),
        result="<|message_tool|>$content<|end_message|>",
        models=("inkling",),
        about="Inkling",
    ),
)
