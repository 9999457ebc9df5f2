"""The wire of a request, by its path."""

from __future__ import annotations

import pytest

from toolspeak.wires.routes import Route, match_route


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v1/chat/completions", Route("openai_chat")),
        ("/chat/completions", Route("openai_chat")),
        ("/v1/responses/", Route("openai_responses")),
        ("/v1/messages?beta=true", Route("anthropic")),
        ("/api/chat", Route("ollama")),
        ("/api/generate", Route("ollama", implied_fields={"prompt": ""})),
        ("/v1beta/models/m:generateContent", Route("gemini", "m", False)),
        ("/v1/models/m:generateContent?key=k", Route("gemini", "m", False)),
        ("/models/m:generateContent", Route("gemini", "m", False)),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", Route("gemini", "m", True)),
        ("/v1beta/models/m:streamGenerateContent", Route("gemini", "m", True, is_array=True)),
        ("/v1beta/models/a%2Fb:generateContent", Route("gemini", "a/b", False)),
        ("/v1beta/models/a/b:generateContent", Route("gemini", "a/b", False)),
        ("/v1/models", None),
        ("/", None),
        ("//[x", None),
    ],
)
def test_match_route_by_path_and_query(target: str, expected: Route | None) -> None:
    assert match_route(target) == expected
