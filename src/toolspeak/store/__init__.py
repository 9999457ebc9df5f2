"""Stores for data that outlives a request: in memory, in a SQLite file, or in Redis."""
