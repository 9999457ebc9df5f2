"""A store in Redis, which several gateways share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError, ResponseError

from ..config.settings import StoreLimits
from ..errors import UsageError
from .base import BATCH_SECONDS, DEFAULT_LIMITS, finite_amounts
from .external import ExternalStore

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


class RedisStore(ExternalStore):
    """A store at `redis://…`, `rediss://…` or `unix://…`, with keys that begin with `PREFIX`.

    Redis itself limits the total size, by `maxmemory` and `maxmemory-policy`.
    """

    errors = (RedisError, OSError)

    def __init__(
        self,
        url: str,
        limits: StoreLimits = DEFAULT_LIMITS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(limits, now)
        self._pool = _make_pool(url)
        self._redis = Redis(connection_pool=self._pool)

    async def close(self) -> None:
        with suppress(*self.errors):
            await self._pool.aclose()

    async def _execute(self, name: str, *arguments: Any) -> Any:
        try:
            return await getattr(self, f"_{name}")(*arguments)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                return None
            raise

    # The operations.

    async def _get(self, key: str) -> bytes | None:
        return await self._send("GET", _encode_key(key))

    async def _put_many(self, values: Mapping[str, bytes], seconds: float) -> None:
        keys = map(_encode_key, values)
        lifetime = _to_milliseconds(seconds)
        await self._send("EVAL", _SET, len(values), *keys, lifetime, *values.values())

    async def _delete(self, key: str) -> None:
        await self._send("DEL", _encode_key(key))

    async def _push(self, key: str, value: bytes, max_items: int, seconds: float) -> None:
        lifetime = _to_milliseconds(seconds)
        await self._send("EVAL", _PUSH, 1, _encode_key(key), value, max_items, lifetime)

    async def _list_items(self, key: str) -> list[bytes]:
        return await self._send("LRANGE", _encode_key(key), 0, -1)

    async def _increment(
        self, key: str, amounts: Mapping[str, float], writer: str, batch: int
    ) -> None:
        pairs = [
            part for name, by in finite_amounts(amounts).items() for part in (_encode(name), by)
        ]
        if pairs:
            names = [key, f"{key}:{writer}"] if writer else [key]
            keys, lifetime = map(_encode_key, names), _to_milliseconds(BATCH_SECONDS)
            await self._send("EVAL", _ADD, len(names), *keys, batch, lifetime, *pairs)

    async def _read_counters(self, key: str) -> dict[str, float]:
        sums: dict[bytes, bytes] = await self._send("HGETALL", _encode_key(key))
        return {_decode(name): float(amount) for name, amount in sums.items()}

    async def _ping(self) -> bool:
        return await self._send("PING")

    async def _send(self, *command: Any) -> Any:
        return await self._redis.execute_command(*command)

    # Errors.

    def _is_reachable(self, error: Exception) -> bool:
        return isinstance(error, ResponseError)

    def _describe_error(self, error: Exception) -> str:
        """Describe an error without credentials: servers repeat unknown commands in their errors,
        and `AUTH` may be one of them."""
        if isinstance(error, TimeoutError):
            return f"no response from Redis within {self.timeout:g} s"
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
