"""Metrics, logs, traces and the inspector, all read from the records of requests."""
