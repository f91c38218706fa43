"""300 deliveries of which 60 failed in every way there is: one run, and all is done once."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.models import MissingEvent, WebhookEvent
from tests.app.models import Effect
from tests.recovery.conftest import HOOK, configure
from tests.recovery.fake_github import Event, FakeGitHub

pytestmark = pytest.mark.django_db(transaction=True)

SIZE = 3000 if os.environ.get("WEBHOOK_HAMMER") == "full" else 300
FAILURES = ("server down", "500", "timed out", "died in queue")
OF_EACH = SIZE // 20


def died_first(item: tuple[str, timedelta]) -> bool:
    return item[0] == "died in queue"


class Storm:
    """Sends events to a server that fails some of them, as GitHub would note it."""

    def __init__(self, github: FakeGitHub, settings: Any) -> None:
        self.github = github
        self.settings = settings
        self.failing: set[str] = set()

    def handle(self, event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        if event.event_id in self.failing:
            raise RuntimeError("the shop is broken")

    def send(self, event: Event, failure: str, age: timedelta) -> None:
        github = self.github
        if failure == "server down":
            github.note(HOOK, event, 502, "failed to connect to host", age=age)
        elif failure == "timed out":
            assert github.post(HOOK, event) == 200
            github.note(HOOK, event, 504, "timed out", age=age)
        elif failure == "500":
            self.failing.add(event.guid)
            assert github.deliver(HOOK, event, age=age)["status_code"] == 500
        elif failure == "died in queue":
            self.failing.add(event.guid)
            configure(self.settings, github, PROCESSING="queued", MAX_ATTEMPTS=1)
            assert github.deliver(HOOK, event, age=age)["status_code"] == 202
            run_claim(Rotation().claim())
            configure(self.settings, github)
        else:
            assert github.deliver(HOOK, event, age=age)["status_code"] == 200


@pytest.mark.slow
def test_one_run_leaves_each_processed_once(github, live_server, handlers, settings, run):
    github.target = f"{live_server.url}/webhooks/github/"
    storm = Storm(github, settings)
    handlers.add(storm.handle, "github")
    kinds = [failure for failure in FAILURES for _ in range(OF_EACH)]
    kinds += [""] * (SIZE - len(kinds))
    ages = [timedelta(minutes=10 + number * 4000 / SIZE) for number in range(SIZE)]
    random.Random(4).shuffle(ages)
    # Those that die in the queue first: a worker would take what failed in the request, too.
    for failure, age in sorted(zip(kinds, ages, strict=True), reverse=True, key=died_first):
        storm.send(github.happen("issues", "opened"), failure, age)
    statuses = Counter(WebhookEvent.objects.values_list("status", flat=True))
    assert statuses["failed"] == statuses["dead"] == OF_EACH
    storm.failing.clear()

    report = run()
    assert (report.found, report.processed) == (SIZE, SIZE - 3 * OF_EACH)
    assert (report.rerun, report.redelivered, report.failed) == (2 * OF_EACH, OF_EACH, 0)
    assert report.problems == []
    assert len(github.attempts) == OF_EACH
    effects = Counter(Effect.objects.values_list("event_id", flat=True))
    assert effects == dict.fromkeys(github.events, 1)
    assert set(WebhookEvent.objects.values_list("status", flat=True)) == {"processed"}

    again = run()
    assert again.processed == again.found
    assert len(github.attempts) == OF_EACH
    assert Counter(Effect.objects.values_list("event_id", flat=True)) == effects
    assert not MissingEvent.objects.exists()
    third = run()
    assert third.found == third.processed == OF_EACH, "only what was sent again just now"
