"""Finds replies that claim to be unable to do what an offered tool does.

    find_refusal("I don't have access to real-time weather data.", tools)
        -> Refusal("false", "i don t have access to real time weather data", "get_weather")
    find_refusal("Sorry, I can't book flights.", tools)     -> Refusal("honest", …)
    find_refusal("It is 12 °C in Oslo.", tools)             -> None

A refusal is false only if an offered tool provides what the model claims to lack; in doubt it is
honest. `OpeningDetector` decides, while a stream arrives, whether it may begin with a refusal.

`claims.py` finds sentences that claim inability, by the words of each language; `detection.py`
decides whether such a claim is false or honest.
"""

from .claims import MAX_UNDECIDED, OpeningDetector, begins_like_refusal
from .detection import Refusal, find_refusal, load_vocabulary

__all__ = [
    "MAX_UNDECIDED",
    "OpeningDetector",
    "Refusal",
    "begins_like_refusal",
    "find_refusal",
    "load_vocabulary",
]
