"""What to paste into each client so that it speaks to the gateway."""

from __future__ import annotations

from msgspec import Struct

_NO_KEY = "none"
"""What clients show that insist on a key, where none is needed."""


class Snippet(Struct, frozen=True):
    """A few lines for one client."""

    client: str
    text: str
    where: str = ""
    """The file that they belong into; nothing for a shell or a program."""


def snippets(url: str, model: str, key: str = "") -> tuple[Snippet, ...]:
    """What to paste for a gateway at that address, to use that model."""
    key = key or _NO_KEY
    return (
        Snippet("OpenAI SDK", f'OpenAI(base_url="{url}/v1", api_key="{key}")'),
        Snippet("Anthropic SDK", f'Anthropic(base_url="{url}", api_key="{key}")'),
        Snippet("Ollama SDK", f'Client(host="{url}")'),
        Snippet(
            "Gemini SDK",
            f'genai.Client(api_key="{key}", http_options={{"base_url": "{url}"}})',
        ),
        Snippet(
            "Claude Code",
            f"ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} claude --model {model}",
        ),
        Snippet(
            "Codex",
            f'model = "{model}"\nmodel_provider = "toolspeak"\n'
            f'[model_providers.toolspeak]\nname = "toolspeak"\nbase_url = "{url}/v1"\n'
            f'wire_api = "responses"\n'
            f'http_headers = {{ "Authorization" = "Bearer {key}" }}',
            "~/.codex/config.toml",
        ),
        Snippet(
            "Gemini CLI, once",
            '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
            "~/.gemini/settings.json",
        ),
        Snippet(
            "Gemini CLI",
            f"GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY={key} gemini -m {model}",
        ),
        Snippet(
            "OpenCode",
            f'{{"provider": {{"toolspeak": {{"npm": "@ai-sdk/openai-compatible", '
            f'"options": {{"baseURL": "{url}/v1", "apiKey": "{key}"}}, '
            f'"models": {{"{model}": {{"tool_call": true}}}}}}}}}}',
            "~/.config/opencode/opencode.json",
        ),
    )
