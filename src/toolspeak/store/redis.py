"""A store in Redis, which the processes of a gateway share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from ..errors import UsageError
from .base import finite_amounts
from .remote import TIMEOUT, RemoteStore

PREFIX = "toolspeak:"
_CONNECTIONS = 32

# Each of them is one step to everybody else, and one journey.
_PUSH = """
redis.call('LPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], 0, ARGV[2] - 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
_SET = """
for at = 1, #KEYS do
  redis.call('SET', KEYS[at], ARGV[at + 1], 'PX', ARGV[1])
end
"""
_ADD = """
for at = 1, #ARGV, 2 do
  redis.call('HINCRBYFLOAT', KEYS[1], ARGV[at], ARGV[at + 1])
end
"""


class RedisStore(RemoteStore):
    """A store at `redis://…`, `rediss://…` or `unix://…`, under keys that begin with `PREFIX`."""

    errors = (RedisError, OSError)

    def __init__(self, url: str, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._pool = _pool(url)
        self._redis = Redis(connection_pool=self._pool)

    async def get(self, key: str) -> bytes | None:
        return await self._ask(None, "GET", _name(key))

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await self._ask(None, "SET", _name(key), value, "PX", _milliseconds(seconds))

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        if values:
            names = map(_name, values)
            await self._ask(
                None, "EVAL", _SET, len(values), *names, _milliseconds(seconds), *values.values()
            )

    async def delete(self, key: str) -> None:
        await self._ask(None, "DEL", _name(key))

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        await self._ask(
            None, "EVAL", _PUSH, 1, _name(key), value, max_items, _milliseconds(seconds)
        )

    async def list_items(self, key: str) -> list[bytes]:
        return await self._ask([], "LRANGE", _name(key), 0, -1)

    async def increment(self, key: str, amounts: Mapping[str, float]) -> None:
        pairs = [
            part for name, by in finite_amounts(amounts).items() for part in (_bytes(name), by)
        ]
        if pairs:
            await self._ask(None, "EVAL", _ADD, 1, _name(key), *pairs)

    async def read_counters(self, key: str) -> dict[str, float]:
        sums: dict[bytes, bytes] = await self._ask({}, "HGETALL", _name(key))
        return {_text(name): float(amount) for name, amount in sums.items()}

    async def ping(self) -> bool:
        """Whether Redis answers now: this tries even if another operation has just failed."""
        return await self._try(False, "PING")

    async def close(self) -> None:
        try:
            await self._pool.aclose()
        except (RedisError, OSError) as error:
            self._fail(error)

    async def _execute(self, *command: Any) -> Any:
        return await self._redis.execute_command(*command)

    def _is_answer(self, error: Exception) -> bool:
        return isinstance(error, ResponseError)

    def _told(self, error: Exception) -> str:
        """The error in words, without credentials: servers repeat commands that they do not know,
        and `AUTH` may be one."""
        if isinstance(error, TimeoutError):
            return f"no answer from Redis within {TIMEOUT:g} s"
        text = str(error).partition(", with args beginning with")[0] or type(error).__name__
        for secret in ("password", "username"):
            text = text.replace(self._pool.connection_kwargs.get(secret) or "\0", "***")
        return text


def _pool(url: str) -> BlockingConnectionPool:
    """The connections to an address; none of them is made yet."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in url and "@" not in parts.netloc:
            raise ValueError
        # Version 3 of the protocol would hide from redis-py that a resting connection has ended.
        pool = BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=None, protocol=2, socket_timeout=None
        )
        pool.connection_kwargs["decode_responses"] = False
        pool.make_connection()
    except (ValueError, TypeError, RedisError):
        # Their texts may hold a part of the password.
        raise UsageError(
            "the address of the store cannot be read: it is redis://user:password@host:port/0, with"
            " user and password percent-encoded, and with options that redis-py has"
        ) from None
    return pool


def _name(key: str) -> bytes:
    return _bytes(PREFIX + key)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
