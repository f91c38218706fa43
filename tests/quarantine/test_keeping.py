"""What is kept of a refused delivery, what never is, and how much of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, RequestFactory

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch.quarantine import full_buckets, network_of
from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.models import QuarantinedDelivery, WebhookDelivery
from django_webhook_idempotency.providers import Identity, Incoming, Provider, configured_provider
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import Token
from django_webhook_idempotency.views import StripeWebhookView
from tests.deliveries import body_of, signed_headers

from .conftest import PROVIDERS, RIGHT, WRONG, everything_stored, send

pytestmark = pytest.mark.django_db

SIGNED = {
    "sangho": {"sangho-signature"},
    "github": {"x-hub-signature-256", "x-github-delivery", "x-github-event", "x-github-hook-id"},
    "stripe": {"stripe-signature"},
    "slack": {"x-slack-signature", "x-slack-request-timestamp"},
    "standard_webhooks": {"webhook-id", "webhook-timestamp", "webhook-signature"},
}


@pytest.fixture(autouse=True)
def deployed(wrong: None) -> None:
    """Let every test begin with the wrong secrets."""


class TestWhatIsKept:
    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_the_body_and_only_the_headers_that_it_is_verified_by(
        self, client: Client, provider: str
    ) -> None:
        more = {"Authorization": "Bearer of-a-proxy", "Cookie": "session=1", "X-Other": "1"}
        assert send(client, provider, headers=more).status_code == 401
        row = QuarantinedDelivery.objects.get()
        assert bytes(row.body) == body_of(provider, "evt_1")
        assert (row.provider, row.reason, row.content_type) == (
            provider,
            "bad_signature",
            "application/json",
        )
        assert (row.scope, row.view) == ("", "")
        assert set(row.signed_headers) == SIGNED[provider]
        delivery = WebhookDelivery.objects.get()
        assert (delivery.outcome, delivery.note) == ("rejected", "bad_signature")
        assert row.received_at == delivery.received_at

    def test_the_scope_of_the_url(self, client: Client) -> None:
        send(client, "stripe", path="/webhooks/stripe/tenant-7/")
        assert QuarantinedDelivery.objects.get().scope == "tenant-7"

    def test_neither_the_address_nor_a_plain_digest_of_it(self, client: Client) -> None:
        send(client, "stripe", address="203.0.113.9")
        stored = everything_stored(QuarantinedDelivery)
        assert "203.0.113" not in stored
        assert len(QuarantinedDelivery.objects.get().sender) == 16

    def test_a_representation_shows_nothing_of_it(self, client: Client) -> None:
        send(client, "stripe")
        row = QuarantinedDelivery.objects.get()
        assert f"{row!r} {row}".count("stripe bad_signature") == 2

    def test_no_log_line_shows_the_signature(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        send(client, "stripe")
        signature = QuarantinedDelivery.objects.get().signed_headers["stripe-signature"]
        assert signature.startswith("t=") and caplog.text
        assert signature[-20:] not in caplog.text


class TestWhatIsNeverKept:
    def test_a_delivery_without_a_signature(self, client: Client) -> None:
        for provider in PROVIDERS:
            path = f"/webhooks/{provider}/"
            assert client.post(path, b"{}", content_type="application/json").status_code == 401
        assert not QuarantinedDelivery.objects.exists()

    def test_one_with_a_signature_that_cannot_be_read(self, client: Client) -> None:
        send(client, "stripe", headers={"Stripe-Signature": "v1=0"})
        send(client, "github", headers={"X-Hub-Signature-256": "sha256=?"})
        assert not QuarantinedDelivery.objects.exists()

    def test_one_whose_time_was_wrong_when_it_came(
        self, client: Client, configure: Callable[..., None]
    ) -> None:
        configure(RIGHT)
        send(client, "stripe", timestamp=int(time.time()) - 4000)
        assert WebhookDelivery.objects.get().note == RejectReason.STALE
        assert not QuarantinedDelivery.objects.exists()

    def test_one_that_holds(self, client: Client, configure: Callable[..., None]) -> None:
        configure(RIGHT)
        assert send(client, "stripe").status_code == 200
        assert not QuarantinedDelivery.objects.exists()

    def test_one_that_is_larger_than_the_settings_allow(
        self, client: Client, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
    ) -> None:
        body = body_of("stripe", "evt_1")
        configure(WRONG, QUARANTINE_MAX_BODY=len(body) - 1)
        send(client, "stripe", body=body)
        assert not QuarantinedDelivery.objects.exists()
        assert "webhook quarantine: provider=stripe not_kept=1" in caplog.text
        configure(WRONG, QUARANTINE_MAX_BODY=len(body))
        send(client, "stripe", body=body)
        assert QuarantinedDelivery.objects.count() == 1

    def test_one_with_a_header_larger_than_any_that_is_needed(self, client: Client) -> None:
        send(client, "github", headers={"X-GitHub-Event": "x" * 5000})
        assert not QuarantinedDelivery.objects.exists()

    @pytest.mark.parametrize(
        "options",
        [
            {"QUARANTINE_LIMIT": 0},
            # Stripe can send for 30 days: no time is left in which the key is there for sure.
            {"RETENTION": timedelta(days=30)},
        ],
    )
    def test_any_where_there_is_no_quarantine(
        self, client: Client, configure: Callable[..., None], options: Any
    ) -> None:
        configure(WRONG, **options)
        send(client, "stripe")
        assert not QuarantinedDelivery.objects.exists()

    def test_that_of_a_provider_whose_header_is_the_secret(
        self, client: Client, settings: Any
    ) -> None:
        settings.WEBHOOK_IDEMPOTENCY = {
            "PROVIDERS": {"bank": {"CLASS": f"{__name__}.Bank", "SECRETS": ["right"]}}
        }
        answer = client.post("/webhooks/bank/", b"{}", "application/json", headers={"X-Token": "a"})
        assert answer.status_code == 401
        assert WebhookDelivery.objects.get().note == RejectReason.MISMATCH
        assert not QuarantinedDelivery.objects.exists()

    def test_that_of_a_decorated_view_which_only_a_request_can_run(self) -> None:
        body = body_of("stripe", "evt_1")
        headers = signed_headers("stripe", body, "evt_1", secret=RIGHT["stripe"])
        request = RequestFactory().post("/", body, "application/json", headers=headers)
        view: Any = idempotent_webhook("stripe")(lambda request: None)
        assert view(request).status_code == 401
        assert not QuarantinedDelivery.objects.exists()

    @pytest.mark.parametrize(
        "options", [{"secrets": ["only-here"]}, {"atomic": False}, {"tolerance": 9}]
    )
    def test_that_of_a_view_with_options_that_only_its_url_knows(self, options: Any) -> None:
        body = body_of("stripe", "evt_1")
        headers = signed_headers("stripe", body, "evt_1", secret=RIGHT["stripe"])
        request = RequestFactory().post("/", body, "application/json", headers=headers)
        assert StripeWebhookView.as_view(**options)(request).status_code == 401
        assert not QuarantinedDelivery.objects.exists()
        assert StripeWebhookView.as_view()(request).status_code == 401
        assert QuarantinedDelivery.objects.count() == 1


class Bank(Provider):
    slug = "bank"
    scheme = Token("X-Token")

    def identify(self, incoming: Incoming) -> Identity:
        return Identity("1")


def test_a_scheme_says_which_headers_are_signatures() -> None:
    assert configured_provider("sangho").signed_headers == {"sangho-signature", "sangho-event-id"}
    assert configured_provider("stripe").signed_headers == SIGNED["stripe"]
    assert configured_provider("slack").signed_headers == SIGNED["slack"]
    github = configured_provider("github")
    assert github.signed_headers == SIGNED["github"]
    both = configured_provider("github", {"ACCEPT_SHA1": True})
    assert both.signed_headers == SIGNED["github"] | {"x-hub-signature"}
    svix = {"svix-id", "svix-timestamp", "svix-signature"}
    standard = configured_provider("standard_webhooks").signed_headers
    assert standard == SIGNED["standard_webhooks"] | svix
    assert Bank().signed_headers == frozenset()


def test_the_time_in_the_quarantine_leaves_the_key_its_window() -> None:
    def days(**options: int) -> timedelta:
        given = {name: timedelta(days=value) for name, value in options.items()}
        return Stripe("stripe", given).quarantine_time

    assert days() == timedelta(days=7)
    assert days(QUARANTINE_RETENTION=2) == timedelta(days=2)
    assert days(RETENTION=33) == timedelta(days=3)
    assert days(RETENTION=20) == timedelta(0)


@pytest.mark.parametrize("option", ["quarantine_retention", "expect_every"])
def test_what_only_the_settings_can_hold_is_refused_on_a_view(option: str) -> None:
    with pytest.raises(TypeError, match=f"{option} cannot be set on a view"):
        StripeWebhookView.as_view(**{option: timedelta(days=1)})


class TestBounds:
    def test_a_network_fills_half_of_a_bucket_and_another_the_rest(
        self, client: Client, configure: Callable[..., None]
    ) -> None:
        configure(WRONG, QUARANTINE_LIMIT=10)
        for number in range(8):
            send(client, "stripe", f"a{number}", address=f"192.0.2.{number}")
        assert QuarantinedDelivery.objects.count() == 5
        for number in range(8):
            send(client, "stripe", f"b{number}", address=f"198.51.100.{number}")
        assert QuarantinedDelivery.objects.count() == 10
        send(client, "stripe", "c", address="203.0.113.1")
        assert QuarantinedDelivery.objects.count() == 10
        kept = [bytes(row.body).decode() for row in QuarantinedDelivery.objects.order_by("pk")]
        assert [f'"{word}' in text for word, text in zip("aaaaabbbbb", kept, strict=True)]

    def test_each_provider_has_a_bucket_of_its_own(
        self, client: Client, configure: Callable[..., None]
    ) -> None:
        configure(WRONG, QUARANTINE_LIMIT=1)
        for provider in PROVIDERS:
            send(client, provider)
            send(client, provider, "evt_2")
        assert QuarantinedDelivery.objects.count() == len(PROVIDERS)

    def test_what_finds_it_full_costs_nothing_more_and_is_counted(
        self,
        client: Client,
        configure: Callable[..., None],
        caplog: pytest.LogCaptureFixture,
        django_assert_num_queries: Any,
    ) -> None:
        configure(WRONG, QUARANTINE_LIMIT=2, STORE_DELIVERIES=False)
        # Whether the bucket is full, whether the sender's half is, and the row.
        with django_assert_num_queries(3):
            send(client, "stripe")
        with django_assert_num_queries(2):
            send(client, "stripe")
        with django_assert_num_queries(0):
            send(client, "stripe")
        send(client, "stripe", address="198.51.100.1")
        send(client, "stripe", address="198.51.100.1")
        with django_assert_num_queries(0):
            for number in range(20):
                send(client, "stripe", address=f"203.0.113.{number}")
        lines = [text for text in caplog.messages if "webhook quarantine" in text]
        assert len(lines) == 1 and "not_kept=1" in lines[0]

    def test_a_process_looks_again_after_a_while(
        self, client: Client, configure: Callable[..., None]
    ) -> None:
        configure(WRONG, QUARANTINE_LIMIT=1)
        send(client, "stripe")
        send(client, "stripe", "evt_2")
        QuarantinedDelivery.objects.all().delete()
        send(client, "stripe", "evt_2")
        assert not QuarantinedDelivery.objects.exists()
        full_buckets.forget()
        send(client, "stripe", "evt_2")
        assert QuarantinedDelivery.objects.count() == 1

    def test_networks(self) -> None:
        assert network_of("192.0.2.77") == network_of("::ffff:192.0.2.1") == "192.0.2.0/24"
        assert network_of("2001:db8:1:2::3") == network_of("2001:db8:1:ff::1") == "2001:db8:1::/48"
        assert network_of("") == network_of("unix:") == ""
