"""Stores for what requests share: in memory, in Redis, or in another process."""
