"""End to end: the runner asks Stripe's API for what its webhooks did not bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from django_webhook_idempotency.recovery import asking
from django_webhook_idempotency.recovery.configured import recoveries
from django_webhook_idempotency.recovery.report import SourceReport
from django_webhook_idempotency.recovery.runner import recover
from django_webhook_idempotency.recovery.stripe import StripeSource
from tests.deliveries import deliver

from .stripe_api import EXPIRED_KEY, KEY, StripeApi, broken, rate_limited, webhook

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(asking, "PAUSES", (0.01, 0.01))
    served = StripeApi()
    with served.served():
        yield served


@pytest.fixture
def configure(api, settings):
    """Give Stripe a RECOVERY that asks the fake API."""

    def put(more: Mapping[str, Any] | None = None, **options) -> None:
        own = settings.WEBHOOK_IDEMPOTENCY["PROVIDERS"]["stripe"]
        recovery = {"API_KEY": KEY, "API_BASE": api.url, **options}
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {
                "stripe": {
                    **own,
                    "RECOVERY": recovery,
                    "BACKOFF": timedelta(microseconds=1),
                    "BACKOFF_MAX": timedelta(microseconds=1),
                    **(more or {}),
                }
            }
        }

    return put


def run(**options) -> list[SourceReport]:
    (recovery,) = recoveries(["stripe"])
    return list(recover(recovery, **options))


def test_one_run_leaves_each_processed_once_and_the_next_does_nothing(
    api, configure, client, handlers
):
    configure(ACCOUNTS=["acct_1"])
    effects: Counter[str] = Counter()
    failing = {"evt_own_7", "evt_own_8", "evt_acct_1_9"}

    def count(event):
        if event.event_id in failing:
            failing.remove(event.event_id)
            raise RuntimeError
        effects[event.event_id] += 1

    handlers.add(count, "stripe", "invoice.*")
    made = {}
    for account, name in (("", "own"), ("acct_1", "acct_1")):
        for number in range(110):
            event_id = f"evt_{name}_{number}"
            # The first ten came, three of them failed here, and none of those has had its 2xx.
            came, accepted = number < 30, 10 <= number < 30
            event = api.add(event_id, account=account, age=86400 - number, delivered=accepted)
            made[event_id] = (event, account)
            if came:
                deliver(client, "stripe", body=webhook(event, account))
        api.add(f"evt_{name}_unwanted", "customer.updated", account=account)

    own, other = run()

    assert (own.problems, other.problems) == ([], [])
    assert (own.ingested, other.ingested) == (80, 80)
    assert (own.rerun, other.rerun) == (2, 1)
    assert (own.processed, other.processed) == (8, 9)
    assert (own.unwanted, other.unwanted) == (1, 1)
    assert set(effects) == set(made)
    assert set(effects.values()) == {1}

    again = run()

    assert [(each.ingested, each.rerun, each.redelivered) for each in again] == [(0, 0, 0)] * 2
    assert set(effects.values()) == {1}

    # The retries that Stripe goes on with for three days.
    for event, account in made.values():
        response = deliver(client, "stripe", body=webhook(event, account))
        assert response.json()["status"] == "duplicate"
    assert set(effects.values()) == {1}
    assert not WebhookDelivery.objects.filter(conflict=True).exists()
    assert set(WebhookEvent.objects.values_list("status", flat=True)) == {EventStatus.PROCESSED}


def test_two_events_with_one_secondary_key_are_one(api, configure, client, handlers):
    configure({"SECONDARY_KEY": lambda incoming: incoming.json["data"]["object"]["id"]})
    seen: list[str] = []
    handlers.add(lambda event: seen.append(event.event_id), "stripe")
    first = api.add("evt_1", data={"object": {"id": "in_1"}}, delivered=True)
    api.add("evt_2", data={"object": {"id": "in_1"}})
    deliver(client, "stripe", body=webhook(first))

    (report,) = run()

    assert report.problems == []
    assert seen == ["evt_1"]


def test_a_dry_run_only_counts(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    api.add("evt_1")

    (report,) = run(dry_run=True)

    assert report.ingested == 1
    assert not WebhookEvent.objects.exists()


def test_a_short_pause_is_waited_for_and_nothing_is_asked_twice(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    for number in range(250):
        api.add(f"evt_{number}", age=86400 - number)
    api.faults.extend([None, rate_limited(**{"Retry-After": "0"})])

    (report,) = run()

    assert report.ingested == 250
    assert report.problems == []
    assert [asked.params.get("starting_after") for asked in api.asked] == [
        None,
        "evt_150",
        "evt_150",
        "evt_50",
    ]


def test_a_long_pause_ends_the_run_after_what_was_listed(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    for number in range(250):
        api.add(f"evt_{number}", age=86400 - number)
    api.faults.extend([None, rate_limited(**{"Retry-After": "3600"})])

    (report,) = run()

    assert report.ingested == 100
    assert report.retry_at is not None

    (report,) = run()

    assert (report.processed, report.ingested) == (100, 150)


def test_one_event_with_an_absurd_time_keeps_no_other_out(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    api.add("evt_1")
    api.add("evt_2", created=253402300799)

    (report,) = run()

    assert report.ingested == 1
    assert "without an id or a time" in report.problems[0]


def test_one_account_that_is_refused_does_not_stop_the_other(api, configure, handlers):
    configure(ACCOUNTS=["acct_1"])
    handlers.add(lambda event: None, "stripe")
    api.events["acct_1"] = []
    api.add("evt_1", account="acct_1")
    api.faults.extend([broken(500)] * 3)

    own, other = run()

    assert own.problems == ["Stripe's API answers 500."]
    assert other.ingested == 1


def test_the_own_account_among_the_accounts_processes_nothing_twice(
    api, configure, client, handlers
):
    """Asked as itself, its events would have the scope of an account that is connected."""
    configure(ACCOUNTS=["acct_own"])
    seen: list[str] = []
    handlers.add(lambda event: seen.append(event.event_id), "stripe")
    for account in ("", "acct_own"):
        came = api.add("evt_1", account=account)
        api.add("evt_2", account=account)
    deliver(client, "stripe", body=webhook(came))

    own, same = run()

    assert (own.processed, own.ingested) == (1, 1)
    assert (same.processed, same.ingested) == (2, 0)
    assert seen == ["evt_1", "evt_2"]


class EveryAccount(StripeSource):
    """A source that knows the accounts from elsewhere, as the documentation shows."""

    @classmethod
    def configured(cls, provider, options):
        return super().configured(provider, {**options, "ACCOUNTS": ["acct_1", "acct_2"]})


def test_the_accounts_may_come_from_elsewhere(api, configure, handlers):
    configure(SOURCE=f"{__name__}.EveryAccount")
    handlers.add(lambda event: None, "stripe")
    api.add("evt_1", account="acct_1")
    api.add("evt_2", account="acct_2")

    assert [report.ingested for report in run()] == [0, 1, 1]


def test_an_expired_key_is_a_problem_that_does_not_show_it(api, configure, caplog):
    configure(API_KEY=EXPIRED_KEY)

    (report,) = run()

    assert "does not accept the key" in report.problems[0]
    assert EXPIRED_KEY[:12] not in report.problems[0] + caplog.text


def test_an_event_that_may_still_be_on_its_way_is_left_alone(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    api.add("evt_1", age=10)

    (report,) = run()

    assert (report.fresh, report.ingested) == (1, 0)


def test_a_clock_of_ours_that_is_ahead_hides_nothing(api, configure, handlers):
    configure()
    handlers.add(lambda event: None, "stripe")
    api.ahead = -7200
    run()
    api.add("evt_1", age=0)
    api.ahead = -7200 + 600

    (report,) = run()

    assert report.ingested == 1
