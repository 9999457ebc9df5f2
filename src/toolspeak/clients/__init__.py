"""The clients: how each is told where the gateway is."""

from .table import CLIENTS, DEFAULT_URL, NO_KEY, Client, Gateway, Launch, Snippet, launch, snippets

__all__ = [
    "CLIENTS",
    "DEFAULT_URL",
    "NO_KEY",
    "Client",
    "Gateway",
    "Launch",
    "Snippet",
    "launch",
    "snippets",
]
