"""Settings, a worker's hands and a replay for the tests of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.replay import Report, replay


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Give a function that sets options for all providers."""

    def change(**options: Any) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, **options}

    return change


@pytest.fixture(params=["inline", "queued"])
def processing(request: Any, configure: Callable[..., None]) -> Iterator[str]:
    """Let every provider run its handlers in one of the two places."""
    configure(PROCESSING=request.param, WAIT=0.5)
    yield request.param


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
def later() -> Callable[[], None]:
    """Give a function that makes due what waits for its next attempt."""

    def pass_by() -> None:
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.filter(lane__isnull=False).update(next_attempt_at=past)

    return pass_by


@pytest.fixture
def again(drain: Callable[[], int]) -> Callable[..., Report]:
    """Give a function that replays events, all without arguments, and runs what is due then."""

    def run(*events: WebhookEvent, **options: Any) -> Report:
        chosen = events or WebhookEvent.objects.order_by("pk")
        report = replay(chosen, by="ann", reason="repaired", **options)
        drain()
        return report

    return run


class Recorder:
    """A handler that notes its calls, and raises what it is given, one after the other."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, event: WebhookEvent) -> None:
        self.calls += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def stored() -> WebhookEvent:
    """The only event."""
    return WebhookEvent.objects.get()
