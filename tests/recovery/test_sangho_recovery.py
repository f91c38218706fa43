"""End to end: the runner has Sangho retry what did not arrive, and the retries come over HTTP."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

import httpx
import pytest

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import MissingEvent, WebhookEvent
from django_webhook_idempotency.recovery import asking
from django_webhook_idempotency.recovery.configured import recoveries
from django_webhook_idempotency.recovery.report import SourceReport
from django_webhook_idempotency.recovery.runner import recover
from tests.deliveries import deliver, signed_headers

from .http_api import Asked, Reply
from .sangho_api import KEY, SanghoApi, error

pytestmark = pytest.mark.django_db(transaction=True)


class SendingApi(SanghoApi):
    """Sends the webhook of a delivery that it is told to retry."""

    target = ""

    def answer(self, asked: Asked) -> Reply:
        before = len(self.retried)
        reply = super().answer(asked)
        if len(self.retried) > before:
            row = reply.body
            body = body_of(row["event_id"])
            headers = signed_headers("sangho", body, row["event_id"])
            headers["Content-Type"] = "application/json"
            status = httpx.post(self.target, content=body, headers=headers).status_code
            self.add(f"{row['id']}_retry", row["event_id"], age=0, delivered=status < 300)
        return reply


def body_of(event_id: str) -> bytes:
    return json.dumps({"id": event_id, "type": "payment.succeeded"}).encode()


@pytest.fixture
def api(monkeypatch, live_server, settings):
    monkeypatch.setattr(asking, "PAUSES", (0.01, 0.01))
    served = SendingApi()
    served.target = f"{live_server.url}/webhooks/sangho/"
    with served.served():
        own = settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"]["sangho"]
        recovery = {"API_KEY": KEY, "ENDPOINTS": ["we_1"], "BASE_URL": f"{served.url}/v1"}
        short = {name: timedelta(microseconds=1) for name in ("BACKOFF", "BACKOFF_MAX")}
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"sangho": {**own, **short, "RECOVERY": recovery}}
        }
        yield served


def run(**options) -> SourceReport:
    (recovery,) = recoveries(["sangho"])
    (report,) = recover(recovery, **options)
    return report


def test_one_run_leaves_each_processed_once_and_the_next_does_nothing(api, client, handlers):
    effects: Counter[str] = Counter()
    failing = {"evt_5", "evt_6"}

    def count(event):
        if event.event_id in failing:
            failing.remove(event.event_id)
            raise RuntimeError
        effects[event.event_id] += 1

    handlers.add(count, "sangho")
    for number in range(40):
        # Up to 4 came and were too slow for Sangho, 5 and 6 failed here, the last did not come.
        event_id, came = f"evt_{number}", number < 30
        api.add(f"del_{number}", event_id, age=7200 - number, delivered=7 <= number < 30)
        if came:
            deliver(client, "sangho", body=body_of(event_id), event_id=event_id)

    report = run()

    assert report.problems == []
    assert (report.redelivered, report.rerun, report.processed) == (10, 2, 28)
    assert sorted(api.retried) == [f"del_{number}" for number in range(30, 40)]
    assert set(effects) == {f"evt_{number}" for number in range(40)}
    assert set(effects.values()) == {1}

    again = run()

    assert (again.problems, again.redelivered, again.rerun) == ([], 0, 0)
    assert len(api.retried) == 10
    assert set(WebhookEvent.objects.values_list("status", flat=True)) == {EventStatus.PROCESSED}


def test_a_delivery_that_is_not_retried_does_not_stop_the_others(api, handlers):
    handlers.add(lambda event: None, "sangho")
    api.add("del_1", "evt_1")
    api.add("del_2", "evt_2")
    api.faults.extend([None, error(409, "too_old", "Too old.")])

    report = run()

    assert report.redelivered == 1
    assert report.problems == ["Sangho refuses what it is asked, with status 409."]
    assert [row.event_id for row in MissingEvent.objects.all()] != []


def test_deliveries_that_cannot_be_read_are_told_and_the_rest_is_got(api, handlers):
    handlers.add(lambda event: None, "sangho")
    api.add("del_1", "evt_1")
    api.add_raw({"id": "del_2", "note": "no event, no time"})

    report = run()

    assert api.retried == ["del_1"]
    assert report.problems[0].endswith("cannot be read: 1.")
