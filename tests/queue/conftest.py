"""Settings and a worker's hands for the tests of the queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import WebhookEvent


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Give a function that sets options for all providers."""

    def change(**options: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, **options}

    return change


@pytest.fixture(autouse=True)
def queued(configure: Callable[..., None]) -> None:
    """Let every provider be queued."""
    configure(PROCESSING="queued", WAIT=0.5)


@pytest.fixture
def drain() -> Callable[[], int]:
    """Give a function that runs what is due until nothing is, and counts the runs."""

    def run() -> int:
        rotation, runs = Rotation(), 0
        while (claim := rotation.claim()) is not None:
            run_claim(claim)
            runs += 1
        return runs

    return run


@pytest.fixture
def later() -> Callable[..., None]:
    """Give a function that makes what waits for its next attempt due."""

    def pass_by(**filters: Any) -> None:
        past = timezone.now() - timedelta(seconds=1)
        waiting = WebhookEvent.objects.filter(lane__isnull=False, **filters)
        waiting.filter(lease_expires_at__isnull=False).update(lease_expires_at=past)
        waiting.update(next_attempt_at=past)

    return pass_by
