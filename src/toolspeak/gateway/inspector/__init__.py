"""What the gateway has done, for people to look at: one request after the other, and live.

`trace.py` says what is kept of a request, `ring.py` how much of it and for how long, `view.py` what
it looks like without its secrets, `pages.py` who gets to see it. `static/` is the page itself.
"""
