"""A store in Redis, which several gateways share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from ..errors import UsageError
from .base import BATCH_SECONDS, finite_amounts
from .remote import TIMEOUT, RemoteStore

PREFIX = "toolspeak:"
_CONNECTIONS = 32

# Each script is atomic and needs one round trip.
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
if #KEYS == 2 and redis.call('GET', KEYS[2]) == ARGV[1] then
  return
end
for at = 3, #ARGV, 2 do
  redis.call('HINCRBYFLOAT', KEYS[1], ARGV[at], ARGV[at + 1])
end
if #KEYS == 2 then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
"""


class RedisStore(RemoteStore):
    """A store at `redis://…`, `rediss://…` or `unix://…`, with keys that begin with `PREFIX`."""

    errors = (RedisError, OSError)

    def __init__(self, url: str, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._pool = _make_pool(url)
        self._redis = Redis(connection_pool=self._pool)

    async def get(self, key: str) -> bytes | None:
        return await self._ask(None, "GET", _encode_key(key))

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await self._ask(None, "SET", _encode_key(key), value, "PX", _to_milliseconds(seconds))

    async def put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        if values:
            names = map(_encode_key, values)
            await self._ask(
                None, "EVAL", _SET, len(values), *names, _to_milliseconds(seconds), *values.values()
            )

    async def delete(self, key: str) -> None:
        await self._ask(None, "DEL", _encode_key(key))

    async def push(self, key: str, value: bytes, *, max_items: int, seconds: float) -> None:
        await self._ask(
            None, "EVAL", _PUSH, 1, _encode_key(key), value, max_items, _to_milliseconds(seconds)
        )

    async def list_items(self, key: str) -> list[bytes]:
        return await self._ask([], "LRANGE", _encode_key(key), 0, -1)

    async def increment(
        self, key: str, amounts: Mapping[str, float], *, writer: str = "", batch: int = 0
    ) -> None:
        pairs = [
            part for name, by in finite_amounts(amounts).items() for part in (_encode(name), by)
        ]
        if pairs:
            names = [key, f"{key}:{writer}"] if writer else [key]
            keys, lifetime = map(_encode_key, names), _to_milliseconds(BATCH_SECONDS)
            await self._ask(None, "EVAL", _ADD, len(names), *keys, batch, lifetime, *pairs)

    async def read_counters(self, key: str) -> dict[str, float]:
        sums: dict[bytes, bytes] = await self._ask({}, "HGETALL", _encode_key(key))
        return {_decode(name): float(amount) for name, amount in sums.items()}

    async def ping(self) -> bool:
        """Return True if Redis responds now; this tries even if an operation has just failed."""
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

    def _describe_error(self, error: Exception) -> str:
        """Describe an error without credentials: servers repeat unknown commands in their errors,
        and `AUTH` may be one of them."""
        if isinstance(error, TimeoutError):
            return f"no response from Redis within {TIMEOUT:g} s"
        text = str(error).partition(", with args beginning with")[0] or type(error).__name__
        for secret in ("password", "username"):
            text = text.replace(self._pool.connection_kwargs.get(secret) or "\0", "***")
        return text


def _make_pool(url: str) -> BlockingConnectionPool:
    """Return a pool of connections, none of which is open yet."""
    try:
        parts = urlsplit(url)
        if parts.scheme != "unix" and "@" in url and "@" not in parts.netloc:
            raise ValueError
        # With protocol 3, redis-py does not notice that an idle connection was closed.
        pool = BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=None, protocol=2, socket_timeout=None
        )
        pool.connection_kwargs["decode_responses"] = False
        pool.make_connection()
    except (ValueError, TypeError, RedisError):
        # The messages of these errors may contain a part of the password.
        raise UsageError(
            "`store` is not a valid URL: write redis://user:password@host:port/0, with a"
            " percent-encoded user and password, and only options that redis-py supports"
        ) from None
    return pool


def _encode_key(key: str) -> bytes:
    return _encode(PREFIX + key)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _to_milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
