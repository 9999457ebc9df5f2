"""OpenAI Responses, which Codex speaks."""
