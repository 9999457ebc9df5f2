"""The inspector: shows what the gateway has done, request by request and live.

`recorder.py` captures requests, `request_log.py` keeps them, and `request_view.py` renders one with
its secrets masked. `gateway/inspector_routes.py` serves them to `static/`, the page.
"""
