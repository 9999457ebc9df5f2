"""Finds replies that claim to be unable to do what an offered tool does.

    find_refusal("I don't have access to real-time weather data.", tools)
        -> Refusal("false", "i don t have access to real time weather data", "get_weather")
    find_refusal("Sorry, I can't book flights.", tools)     -> Refusal("honest", …)
    find_refusal("It is 12 °C in Oslo.", tools)             -> None

A refusal is false only if a tool fits what the model claims to lack; in doubt it is honest.
`OpeningDetector` tells of a stream whether it may still begin with a refusal.
"""

from .detection import MAX_UNDECIDED, OpeningDetector, Refusal, begins_like_refusal, find_refusal

__all__ = ["MAX_UNDECIDED", "OpeningDetector", "Refusal", "begins_like_refusal", "find_refusal"]
