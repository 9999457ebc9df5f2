"""The server that stands between clients and upstreams, and speaks to each in its own API."""

from .application import GatewayApplication, create_app

__all__ = ["GatewayApplication", "create_app"]
