"""Gemini's generateContent and streamGenerateContent."""

from .reply import GeminiStreamEncoder

__all__ = ["GeminiStreamEncoder"]
