"""Leases in Redis: a key that only its owner may renew or delete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from ..conf import SETTING, conf
from ..exceptions import MissingExtra, StoreUnavailable

if TYPE_CHECKING:
    from redis import Redis

PREFIX = "webhook-lease:"
#: The only policy under which Redis never drops a key that has not run out.
SAFE_POLICY = "noeviction"
#: Seconds to wait for a connection and for an answer; a delivery is waiting meanwhile.
TIMEOUT = 2.0
#: Seconds for which a look at the eviction policy is trusted.
POLICY_SECONDS = 60.0

#: Server address to the monotonic time until which its policy is known to be safe.
_safe_until: dict[str, float] = {}

# A lease that the server has forgotten is taken again, unless somebody was quicker.
_RENEW = """
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
    return 0
end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1
"""
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end
return 0
"""


@lru_cache(maxsize=8)
def _client(url: str) -> Redis:
    """One connection pool for each server that the settings have named."""
    from redis import Redis

    client: Redis = Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)
    return client


@contextmanager
def _reachable() -> Iterator[None]:
    """Turn every failure of Redis into StoreUnavailable, without the address it holds.

    Raises MissingExtra where its client is not installed.
    """
    try:
        from redis import RedisError
    except ImportError:
        raise MissingExtra("redis", 'STORE "redis"') from None

    try:
        yield
    except RedisError as error:
        raise StoreUnavailable(f"The lease store did not answer: {type(error).__name__}.") from None


def eviction_policy(url: str) -> str:
    """The server's `maxmemory-policy`; INFO tells it where CONFIG is not allowed."""
    with _reachable():
        memory: dict[str, Any] = _client(url).info("memory")
    return str(memory.get("maxmemory_policy", "unknown"))


class RedisStore:
    """`SET NX PX` takes a lease; scripts compare the token before they touch it.

    Raises ImproperlyConfigured when the server may evict keys: an evicted lease would let a
    second run start beside the first.
    """

    exclusive = True

    def acquire(self, key: str, token: str, lease: timedelta) -> bool:
        """Take the lease unless it is held."""
        self._refuse_eviction()
        with _reachable():
            taken = _client(conf.redis_url).set(
                PREFIX + key, token, nx=True, px=_milliseconds(lease)
            )
        return bool(taken)

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Start the lease's time again if the token still holds it."""
        with _reachable():
            renewed = _client(conf.redis_url).eval(
                _RENEW, 1, PREFIX + key, token, _milliseconds(lease)
            )
        return bool(renewed)

    def release(self, key: str, token: str) -> None:
        """Delete the lease if the token still holds it."""
        with _reachable():
            _client(conf.redis_url).eval(_RELEASE, 1, PREFIX + key, token)

    def check(self) -> list[CheckMessage]:
        """Ask the server for its eviction policy."""
        try:
            policy = eviction_policy(conf.redis_url)
        except MissingExtra as error:
            return [Error(str(error), hint="Install the extra.", id="webhooks.E010")]
        except StoreUnavailable as error:
            return [
                Warning(
                    str(error),
                    hint=f"Start Redis, or correct {SETTING}['REDIS_URL']. Until then leased "
                    "events are answered 503.",
                    id="webhooks.W011",
                )
            ]
        if policy == SAFE_POLICY:
            return []
        return [Error(_unsafe(policy), hint=_HINT, id="webhooks.E012")]

    def _refuse_eviction(self) -> None:
        """Look at the policy again when the last look is old: it can be changed at run time."""
        url = conf.redis_url
        if time.monotonic() < _safe_until.get(url, 0):
            return
        policy = eviction_policy(url)
        if policy != SAFE_POLICY:
            raise ImproperlyConfigured(f"{_unsafe(policy)} {_HINT}")
        _safe_until[url] = time.monotonic() + POLICY_SECONDS


_HINT = f"Run CONFIG SET maxmemory-policy {SAFE_POLICY}, or use a Redis of its own for leases."


def _unsafe(policy: str) -> str:
    return (
        f"The Redis of {SETTING}['REDIS_URL'] may drop leases: its maxmemory-policy is {policy!r}."
    )


def _milliseconds(lease: timedelta) -> int:
    return max(1, int(lease.total_seconds() * 1000))
