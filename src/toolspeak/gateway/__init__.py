"""The server that stands between clients and upstreams, and speaks to each in its own API."""
