"""Run each contract test over every face, and the leased ones over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from tests import services
from tests.contract.faces import OWN, REGISTERED, script
from tests.deliveries import deliver

REDIS_URL = "redis://127.0.0.1:6379/9"


@dataclass
class Face:
    """One way in."""

    path: str
    atomic: bool
    client: Client

    @property
    def name(self) -> str:
        return self.path.strip("/").rsplit("/", 1)[-1]

    def deliver(self, event_id: str = "evt_1", event_type: str = "paid", **more: Any) -> Any:
        headers = {"Sangho-Event-ID": event_id, **more.pop("headers", {})}
        return deliver(
            self.client, "sangho", event_id, event_type, path=self.path, headers=headers, **more
        )


CASES = [
    *((f"/atomic/{name}/", True, "database") for name in OWN),
    *((path, True, "database") for path in REGISTERED),
    *((f"/leased/{name}/", False, "database") for name in OWN),
    *((path, False, "database") for path in REGISTERED),
    *((f"/leased/{name}/", False, "redis") for name in OWN),
    *((path, False, "redis") for path in REGISTERED),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].strip('/')}-{case[1]}-{case[2]}")
def face(request: Any, settings: Any, handlers: Any, transactional_db: None) -> Iterator[Face]:
    """A face whose handler is `script`."""
    path, atomic, store = request.param
    settings.ROOT_URLCONF = "tests.contract.faces"
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "STORE": store, "WAIT": 0.05}
    if store == "redis":
        from redis import Redis

        services.require("redis")
        settings.WEBHOOK_IDEMPOTENCY["REDIS_URL"] = REDIS_URL
        redis = Redis.from_url(REDIS_URL)
        redis.flushdb()
        redis.close()
    script.reset()
    handlers.add(script, atomic=atomic, name="script")
    # CSRF is enforced as in production: every way in must be exempt (WB-072).
    yield Face(path, atomic, Client(enforce_csrf_checks=True))
    script.reset()
