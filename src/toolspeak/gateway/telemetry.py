from typing import Any

Tracing = Any


def open_tracing(x):
    return None
