"""What a lease store does, and which one the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from django.core.checks import CheckMessage

from ..conf import conf, made

BUILT_IN: Mapping[str, str] = {
    "database": "django_webhook_idempotency.stores.database.DatabaseStore",
    "redis": "django_webhook_idempotency.stores.redis.RedisStore",
}


class LeaseStore(Protocol):
    """Keeps at most one live lease for each dedupe key.

    The ledger writes the token into the event's row as well and checks it before every finish,
    so a store that forgets a lease costs a second run and never a second finish. Every method
    raises StoreUnavailable when the store cannot be reached.
    """

    #: Whether `acquire` alone decides. If not, the ledger's own update of the row does.
    exclusive: bool

    def acquire(self, key: str, token: str, lease: timedelta) -> bool:
        """Take the lease of `key` for `token` unless another token holds it."""
        ...

    def renew(self, key: str, token: str, lease: timedelta) -> bool:
        """Start the lease's time again; False if `token` no longer holds it."""
        ...

    def release(self, key: str, token: str) -> None:
        """Give the lease back if `token` still holds it."""
        ...

    def check(self) -> list[CheckMessage]:
        """What is wrong with the store as it is set up."""
        ...


def lease_store() -> LeaseStore:
    """The store that `STORE` names. Raises ImproperlyConfigured."""
    store: LeaseStore = made("STORE", conf.store, BUILT_IN)
    return store
