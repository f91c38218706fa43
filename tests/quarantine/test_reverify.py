"""Verify what was refused once more: what holds takes effect once, the rest stays."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.http import Http404
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus, Origin, Outcome
from django_webhook_idempotency.models import (
    HandlerRun,
    QuarantinedDelivery,
    SecretUse,
    WebhookDelivery,
    WebhookEvent,
)
from django_webhook_idempotency.providers import Identity, Incoming
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.recovery.quarantine import reverify, reverify_chosen
from django_webhook_idempotency.signals import webhook_processed, webhook_received
from django_webhook_idempotency.signatures import Secret
from tests.app.models import Effect
from tests.deliveries import body_of, signed_headers

from . import views
from .conftest import PROVIDERS, RIGHT, WRONG, everything_stored, happened, send

pytestmark = pytest.mark.django_db(transaction=True)

Configure = Callable[..., None]


def refuse(client: Client, configure: Configure, *event_ids: str, provider: str = "stripe") -> None:
    """Let deliveries be refused for a wrong secret, then deploy the right one."""
    configure(WRONG)
    for event_id in event_ids:
        assert send(client, provider, event_id).status_code == 401
    configure(RIGHT)


def test_500_deliveries_of_an_hour_take_effect_once_each(
    client: Client, configure: Configure, effects: None
) -> None:
    """A wrong secret is deployed for an hour; the retries of some come when it is mended."""
    configure(WRONG)
    start, count = timezone.now() - timedelta(hours=3), 500
    sent = [(PROVIDERS[number % 5], f"evt_{number}") for number in range(count)]
    for number, (provider, event_id) in enumerate(sent):
        with time_machine.travel(start + timedelta(hours=1) * number / count):
            assert send(client, provider, event_id).status_code == 401
            if number % 10 == 0:  # the provider tries again at once
                assert send(client, provider, event_id).status_code == 401
    assert (QuarantinedDelivery.objects.count(), Effect.objects.count()) == (550, 0)
    still_wrong = reverify()
    assert (still_wrong.looked_at, still_wrong.refused, still_wrong.verified) == (550, 550, 0)

    configure(RIGHT)
    already = [each for number, each in enumerate(sent) if number % 25 == 0]
    for provider, event_id in already:  # the provider's retry, an hour later
        assert send(client, provider, event_id).json()["status"] == "processed"
    report = reverify()
    assert (report.looked_at, report.verified) == (550, 550)
    assert report.processed == count - len(already)
    assert report.duplicates == 50 + len(already)
    assert (report.refused, report.unreadable, report.problems) == (0, 0, [])
    assert happened() == sorted(event_id for _, event_id in sent)
    assert not QuarantinedDelivery.objects.exists()
    assert reverify().looked_at == 0
    assert WebhookEvent.objects.exclude(status=EventStatus.PROCESSED).count() == 0


def test_it_is_as_if_the_request_came_again(
    client: Client, configure: Configure, effects: None
) -> None:
    refuse(client, configure, "evt_1", provider="github")
    row = QuarantinedDelivery.objects.get()
    heard: list[tuple[Any, Any]] = []

    def hear(signal: Any, event: WebhookEvent, delivery: Any, **more: Any) -> None:
        heard.append((signal, delivery.origin))

    webhook_received.connect(hear)
    webhook_processed.connect(hear)
    try:
        reverify()
    finally:
        webhook_received.disconnect(hear)
        webhook_processed.disconnect(hear)
    assert heard == [(webhook_received, Origin.QUARANTINE), (webhook_processed, Origin.QUARANTINE)]
    event = WebhookEvent.objects.get()
    assert (event.event_id, event.event_type, event.scope) == ("evt_1", "thing.happened", "1")
    assert bytes(event.body) == body_of("github", "evt_1")
    assert event.received_at == row.received_at
    delivery = WebhookDelivery.objects.get(event=event)
    assert (delivery.origin, delivery.outcome) == (Origin.QUARANTINE, Outcome.PROCESSED)
    assert delivery.received_at == row.received_at
    fingerprint = Secret.parse(RIGHT["github"]).fingerprint
    assert delivery.secret_fingerprint == fingerprint
    assert delivery.headers == {
        "content-type": "application/json",
        "x-github-delivery": "evt_1",
        "x-github-event": "thing.happened",
        "x-github-hook-id": "1",
    }
    use = SecretUse.objects.get()
    assert (use.provider, use.fingerprint, use.last_used_at) == (
        "github",
        fingerprint,
        row.received_at,
    )


def test_no_signature_is_left_anywhere_afterwards(
    client: Client, configure: Configure, effects: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    refuse(client, configure, "evt_1")
    signature = QuarantinedDelivery.objects.get().signed_headers["stripe-signature"][-30:]
    reverify()
    for model in (WebhookDelivery, WebhookEvent, HandlerRun, QuarantinedDelivery):
        assert signature not in everything_stored(model)
    assert "outcome=processed" in caplog.text
    assert signature not in caplog.text


class TestTime:
    def test_the_tolerance_is_judged_as_of_the_receipt(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        with time_machine.travel(timezone.now() - timedelta(days=6), tick=False):
            refuse(client, configure, "evt_1")
        assert reverify().processed == 1

    def test_what_was_captured_and_sent_late_stays_refused(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        configure(WRONG)
        now = int(timezone.now().timestamp())
        send(client, "stripe", "late", timestamp=now - 301)
        send(client, "stripe", "early", timestamp=now + 330)
        send(client, "stripe", "just", timestamp=now - 290)
        configure(RIGHT)
        report = reverify()
        assert (report.refused, report.processed) == (2, 1)
        assert happened() == ["just"]
        assert QuarantinedDelivery.objects.count() == 2

    def test_nothing_is_verified_whose_key_may_be_gone(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        with time_machine.travel(timezone.now() - timedelta(days=8), tick=False):
            refuse(client, configure, "evt_1")
        assert (reverify().refused, happened()) == (1, [])


class TestConfiguration:
    @pytest.fixture(autouse=True)
    def urls(self, settings: Any) -> None:
        settings.ROOT_URLCONF = views.__name__

    def test_a_view_with_a_handler_of_its_own_verifies_and_runs_it_again(
        self, client: Client, configure: Configure, effects: None, monkeypatch: Any
    ) -> None:
        configure(RIGHT)
        assert send(client, "stripe", "evt_1", path="/orders/").status_code == 401
        assert QuarantinedDelivery.objects.get().view == f"{views.__name__}.Orders"
        assert reverify().refused == 1  # the settings' secret is not the view's
        monkeypatch.setattr(views.Orders, "secrets", [RIGHT["stripe"]])
        assert reverify().processed == 1
        assert list(Effect.objects.values_list("name", flat=True)) == ["orders"]
        assert WebhookEvent.objects.get().view == f"{views.__name__}.Orders"

    def test_a_view_with_options_only_leaves_it_to_the_registered_handlers(
        self, client: Client, configure: Configure, effects: None, monkeypatch: Any
    ) -> None:
        configure(RIGHT)
        send(client, "stripe", "evt_1", path="/registered/")
        assert reverify().refused == 1
        monkeypatch.setattr(views.Registered, "secrets", [RIGHT["stripe"]])
        assert reverify().processed == 1
        assert list(Effect.objects.values_list("name", flat=True)) == ["stripe"]
        assert WebhookEvent.objects.get().view == ""

    def test_a_view_that_is_gone_is_named_and_what_it_received_stays(
        self, client: Client, configure: Configure, effects: None, monkeypatch: Any
    ) -> None:
        send(client, "stripe", "evt_1", path="/orders/")
        monkeypatch.delattr(views, "Orders")
        report = reverify()
        assert (report.unreadable, report.verified) == (1, 0)
        assert "tests.quarantine.views.Orders" in report.problems[0]
        assert QuarantinedDelivery.objects.count() == 1

    def test_the_secrets_of_its_scope_and_of_no_other_verify_it(
        self, client: Client, settings: Any, effects: None
    ) -> None:
        def deploy(**secrets: str) -> None:
            settings.WEBHOOK_IDEMPOTENCY = {
                "PROVIDERS": {"stripe": {"SECRETS": lambda scope: [secrets[scope]]}}
            }

        deploy(a="mistaken", b=RIGHT["stripe"])
        send(client, "stripe", "evt_1", path="/webhooks/stripe/a/")
        assert reverify().refused == 1
        deploy(a=RIGHT["stripe"], b="other")
        assert reverify().processed == 1
        assert WebhookEvent.objects.get().scope.startswith("a/")

    def test_a_scope_that_is_gone_is_named(
        self, client: Client, configure: Configure, settings: Any
    ) -> None:
        configure(WRONG)
        send(client, "stripe", "evt_1", path="/webhooks/stripe/a/")
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"stripe": {"SECRETS": [RIGHT["stripe"]], "SCOPES": ["b"]}}
        }
        report = reverify()
        assert report.unreadable == 1 and "'a' is not among SCOPES" in report.problems[0]


class Careless(Stripe):
    """Takes for granted what a body need not have."""

    def identify(self, incoming: Incoming) -> Identity:
        return Identity(incoming.json["no such field"] if b"evt_1" in incoming.body else "evt_2")


def test_a_mistake_in_the_projects_code_stops_no_other_delivery(
    client: Client, settings: Any, effects: None
) -> None:
    for secret in ("mistaken", RIGHT["stripe"]):
        own = {"CLASS": f"{__name__}.Careless", "SECRETS": [secret]}
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": own}}
        if secret == "mistaken":
            for event_id in ("evt_1", "evt_2"):
                send(client, "stripe", event_id)
    report = reverify()
    assert (report.unreadable, report.processed) == (1, 1)
    assert report.problems == ["stripe: KeyError"]
    assert QuarantinedDelivery.objects.count() == 1


def secrets_of_tenants(scope: str) -> list[str]:
    if scope == "gone":
        raise Http404("No tenant of that name.")
    return [RIGHT["stripe"]]


def test_a_tenant_that_is_gone_stops_no_other(
    client: Client, configure: Configure, settings: Any, effects: None
) -> None:
    configure(WRONG)
    for scope in ("gone", "here"):
        send(client, "stripe", "evt_1", path=f"/webhooks/stripe/{scope}/")
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": {"SECRETS": secrets_of_tenants}}}
    report = reverify()
    assert (report.unreadable, report.processed) == (1, 1)
    assert report.problems == ["stripe: Http404"]


class ByHeader(Stripe):
    """Reads the id from a header that it does not declare."""

    def identify(self, incoming: Incoming) -> Identity:
        return Identity(self.usable_id(incoming.header("X-Id"), incoming))


def test_an_id_in_a_header_that_is_not_kept_is_never_taken_for_absent(
    client: Client, settings: Any, effects: None
) -> None:
    """With ID_FROM_BODY it would be another event than the provider's retry."""
    for secret in ("mistaken", RIGHT["stripe"]):
        own = {"CLASS": f"{__name__}.ByHeader", "SECRETS": [secret], "ID_FROM_BODY": True}
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": own}}
        if secret == "mistaken":
            send(client, "stripe", headers={"X-Id": "7"})
    report = reverify()
    assert (report.unreadable, report.processed) == (1, 0)
    assert "'x-id' is not kept" in report.problems[0]


class TestWhatBecomesOfIt:
    def test_a_handler_that_fails_leaves_its_event_and_the_row_goes(
        self, client: Client, configure: Configure, handlers: Any
    ) -> None:
        def fail(event: WebhookEvent) -> None:
            raise ValueError("a mistake")

        handlers.add(fail)
        refuse(client, configure, "evt_1")
        report = reverify()
        assert (report.verified, report.failed, report.processed) == (1, 1, 0)
        event = WebhookEvent.objects.get()
        assert (event.status, event.last_error) == (EventStatus.FAILED, "ValueError: a mistake")
        assert not QuarantinedDelivery.objects.exists()

    def test_a_queued_provider_stores_it_for_the_workers(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        configure(WRONG)
        send(client, "stripe")
        configure(RIGHT, PROCESSING="queued")
        report = reverify()
        assert (report.accepted, report.processed, happened()) == (1, 0, [])
        event = WebhookEvent.objects.get()
        assert (event.status, event.lane) == (EventStatus.PENDING, "stripe")

    def test_a_handshake_is_dropped(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        configure(WRONG)
        body = json.dumps({"type": "url_verification", "challenge": "x"}).encode()
        send(client, "slack", body=body)
        configure(RIGHT)
        report = reverify()
        assert (report.verified, report.handshakes, report.processed) == (1, 1, 0)
        assert not QuarantinedDelivery.objects.exists()
        assert not WebhookEvent.objects.exists()

    def test_a_verified_body_that_carries_no_event_stays_and_is_named(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        configure(WRONG)
        send(client, "stripe", body=b'{"no": "id"}')
        configure(RIGHT)
        report = reverify()
        assert (report.unreadable, report.processed) == (1, 0)
        assert report.problems == ["stripe: MalformedWebhook: The delivery carries no event id."]
        assert QuarantinedDelivery.objects.count() == 1

    def test_a_queue_that_is_full_ends_the_run_and_keeps_the_rest(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        configure(WRONG)
        for number in range(9):
            send(client, "stripe", f"evt_{number}")
        configure(RIGHT, PROCESSING="queued", MAX_PENDING=2)
        report = reverify()
        assert (report.accepted, report.postponed, report.stopped) == (2, 3, True)
        assert "MAX_PENDING" in report.problems[0]
        assert QuarantinedDelivery.objects.count() == 7


class TestWhatIsLookedAt:
    def test_only_some_providers(self, client: Client, configure: Configure, effects: None) -> None:
        for provider in PROVIDERS:
            refuse(client, configure, f"evt_{provider}", provider=provider)
        assert reverify(["stripe", "slack"]).processed == 2
        assert happened() == ["evt_slack", "evt_stripe"]
        assert QuarantinedDelivery.objects.count() == 3

    def test_so_many_at_the_most_the_oldest_first(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        refuse(client, configure, *(f"evt_{number:02}" for number in range(30)))
        assert reverify(limit=25).looked_at == 25
        assert happened() == [f"evt_{number:02}" for number in range(25)]

    def test_a_dry_run_says_what_holds_and_changes_nothing(
        self, client: Client, configure: Configure, effects: None
    ) -> None:
        refuse(client, configure, "evt_1", "evt_2")
        before = everything_stored(QuarantinedDelivery)
        report = reverify(dry_run=True)
        assert (report.looked_at, report.verified, report.processed) == (2, 2, 0)
        assert everything_stored(QuarantinedDelivery) == before
        assert (happened(), WebhookEvent.objects.count(), SecretUse.objects.count()) == ([], 0, 0)

    def test_only_chosen_ones(self, client: Client, configure: Configure, effects: None) -> None:
        refuse(client, configure, "evt_1", "evt_2", "evt_3")
        pks = list(QuarantinedDelivery.objects.order_by("pk").values_list("pk", flat=True))
        assert reverify_chosen(pks[1:]).processed == 2
        assert happened() == ["evt_2", "evt_3"]


def test_somebody_elses_secret_holds_for_nobody(
    client: Client, configure: Configure, effects: None
) -> None:
    """What was forged with the wrong secret, or with none of ours, stays refused."""
    body = body_of("stripe", "forged")
    headers = signed_headers("stripe", body, "forged", secret="an-attackers-own")
    configure(WRONG)
    send(client, "stripe", "forged", secret="an-attackers-own", headers=headers)
    configure(RIGHT)
    assert (reverify().refused, happened()) == (1, [])
