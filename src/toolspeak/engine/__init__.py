"""One request on its way from a client's words to an upstream's, and back. No I/O.

    exchange = Exchange(request, target)      what to send: exchange.outgoing
    answer = exchange.answer()                what came back: answer.feed(data), answer.finish()

The walk: `plan` decides how, `offered` says which tools there are, `prompting` and `inert` write
the conversation for a model without tools, `understanding` finds the calls in what it says.
"""

from .attempt import Attempt, ReplyReader
from .plan import ModelProfile, plan_request

__all__ = ["Attempt", "ModelProfile", "ReplyReader", "plan_request"]
