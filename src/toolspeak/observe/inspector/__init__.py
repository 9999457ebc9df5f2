"""What the gateway has done, for people to look at: one request after the other, and live.

`ring.py` says how many requests are kept and for how long, `view.py` what one looks like without
its secrets, `pages.py` who gets to see it. `static/` is the page itself.
"""
