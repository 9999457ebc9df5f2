"""Whether a reply says that something cannot be done, though a tool was offered that does it.

    refusal("I don't have access to real-time weather data.", tools)
        -> Refusal("false", "i don t have access to real time weather data", "get_weather")
    refusal("Sorry, I can't book flights.", tools)     -> Refusal("honest", …)
    refusal("It is 12 °C in Oslo.", tools)             -> None

A claim is only called false where a tool fits what is said to be lacking; in doubt, it is honest.
`Beginning` says of a stream how long it may still begin with a refusal.
"""

from .detection import Refusal, find_refusal
from .opening import MAX_UNDECIDED, OpeningDetector, begins_like_refusal

__all__ = ["MAX_UNDECIDED", "OpeningDetector", "Refusal", "begins_like_refusal", "find_refusal"]
