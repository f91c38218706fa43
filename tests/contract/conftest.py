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


#: Faces that run with real commits; the others share a test case's transaction, which is faster.
COMMITTING = {"plain", "asynchronous", "sangho"}


def cases(own: list[str], registered: list[str]) -> list[Any]:
    """Each of these faces atomic, leased, and leased in Redis."""
    atomic = [f"/atomic/{name}/" for name in own] + registered
    leased = [f"/leased/{name}/" for name in own] + registered
    return [
        *(case(path, True, "database") for path in atomic),
        *(case(path, False, "database") for path in leased),
        *(case(path, False, "redis") for path in leased),
    ]


def case(path: str, atomic: bool, store: str) -> Any:
    """One face as a parameter."""
    commits = path.strip("/").rsplit("/", 1)[-1] in COMMITTING
    return pytest.param(
        (path, atomic, store),
        marks=pytest.mark.django_db(transaction=commits),
        id=f"{path.strip('/')}-{'atomic' if atomic else store}",
    )


def faces(own: list[str], registered: list[str] | None = None) -> pytest.MarkDecorator:
    """Run a test over these faces only."""
    return pytest.mark.parametrize("face", cases(own, registered or []), indirect=True)


@pytest.fixture(params=cases(OWN, REGISTERED))
def face(request: Any, settings: Any, handlers: Any, db: None) -> Iterator[Face]:
    """A face whose handler is `script`."""
    path, atomic, store = request.param
    settings.ROOT_URLCONF = "tests.contract.faces"
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "STORE": store, "WAIT": 0.05}
    if store == "redis":
        from redis import Redis

        services.require("redis")
        url, _ = services.own_redis()
        settings.WEBHOOK_IDEMPOTENCY["REDIS_URL"] = url
        redis = Redis.from_url(url)
        redis.flushdb()
        redis.close()
    script.reset()
    handlers.add(script, atomic=atomic, name="script")
    # CSRF is enforced as in production: every way in must be exempt (WB-072).
    yield Face(path, atomic, Client(enforce_csrf_checks=True))
    script.reset()
