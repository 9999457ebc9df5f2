"""Ollama's /api/chat, and /api/generate for clients."""
