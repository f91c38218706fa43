"""The providers' own clients sign and we accept; we sign and they accept."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import standardwebhooks
import stripe
import svix
import time_machine
from sangho import Sangho as Client
from slack_sdk.signature import SignatureVerifier

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.sangho import Sangho
from django_webhook_idempotency.providers.slack import Slack
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import (
    Secret,
    StandardWebhooks,
)

from .factories import BODY, NOW, received

TEXT = BODY.decode()
SANGHO = Sangho.scheme
STRIPE = Stripe.scheme
SLACK = Slack.scheme
STANDARD = StandardWebhooks()
SVIX = StandardWebhooks(("svix", "webhook"))

WHSEC = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


@pytest.fixture(autouse=True)
def frozen_clock():
    """Freeze time: official verifiers read the clock themselves."""
    with time_machine.travel(NOW, tick=False):
        yield


def verify(scheme, headers, *secrets, now=NOW, tolerance=300, body=BODY):
    parsed = [Secret.parse(secret) for secret in secrets]
    return scheme.verify(received(headers, body), parsed, now=now, tolerance=tolerance)


def signed(scheme, secret, *, timestamp=NOW, body=BODY):
    return scheme.sign(body, Secret.parse(secret), timestamp=timestamp, message_id="msg_1")


def test_sangho_signs() -> None:
    headers = {"Sangho-Signature": Client.generate_test_header(BODY, WHSEC, NOW)}
    assert verify(SANGHO, headers, WHSEC).valid
    assert verify(SANGHO, headers, "whsec_other").reason is RejectReason.MISMATCH
    assert signed(SANGHO, WHSEC) == headers


def test_sangho_signs_for_a_rotation() -> None:
    """WB-067."""
    old = Client.generate_test_header(BODY, "whsec_old", NOW)
    new = Client.generate_test_header(BODY, "whsec_new", NOW)
    headers = {"Sangho-Signature": f"{old},{new.partition(',')[2]}"}
    for secrets in (["whsec_old"], ["whsec_new"], ["whsec_new", "whsec_old"]):
        assert verify(SANGHO, headers, *secrets).valid
        assert Client.construct_event(BODY, headers["Sangho-Signature"], secrets)


def test_sangho_accepts_ours() -> None:
    header = signed(SANGHO, WHSEC)["Sangho-Signature"]
    assert Client.construct_event(BODY, header, WHSEC)["id"] == "evt_1"


def test_stripe_signs() -> None:
    header = stripe.WebhookSignature.generate_signature_header(TEXT, WHSEC, NOW)
    headers = {"Stripe-Signature": header}
    assert verify(STRIPE, headers, WHSEC).valid
    assert verify(STRIPE, headers, "whsec_other").reason is RejectReason.MISMATCH
    assert signed(STRIPE, WHSEC) == headers


def test_stripe_accepts_ours() -> None:
    header = signed(STRIPE, WHSEC)["Stripe-Signature"]
    assert stripe.WebhookSignature.verify_header(BODY, header, WHSEC, tolerance=300)


def test_stripe_signs_in_the_future_and_we_refuse() -> None:
    """Stripe's own client lets any future time in."""
    header = stripe.WebhookSignature.generate_signature_header(TEXT, WHSEC, NOW + 301)
    assert stripe.WebhookSignature.verify_header(BODY, header, WHSEC, tolerance=300)
    assert verify(STRIPE, {"Stripe-Signature": header}, WHSEC).reason is RejectReason.STALE


def test_slack_signs() -> None:
    signature = SignatureVerifier(SIGNING_SECRET).generate_signature(timestamp=str(NOW), body=BODY)
    headers = {"X-Slack-Request-Timestamp": str(NOW), "X-Slack-Signature": signature}
    assert verify(SLACK, headers, SIGNING_SECRET).valid
    assert verify(SLACK, headers, "other").reason is RejectReason.MISMATCH
    assert signed(SLACK, SIGNING_SECRET) == headers


def test_slack_accepts_ours() -> None:
    headers = signed(SLACK, SIGNING_SECRET)
    assert SignatureVerifier(SIGNING_SECRET).is_valid_request(BODY, headers)


@pytest.mark.parametrize(
    ("scheme", "client", "prefix"),
    [
        (STANDARD, standardwebhooks.Webhook, "webhook"),
        (SVIX, standardwebhooks.Webhook, "webhook"),
        (STANDARD, svix.Webhook, "svix"),
        (SVIX, svix.Webhook, "svix"),
    ],
    ids=["standard", "standard, svix first", "svix", "svix, svix first"],
)
@pytest.mark.parametrize("secret", [WHSEC, WHSEC.rstrip("="), WHSEC.removeprefix("whsec_")])
def test_standard_webhooks_signs(scheme, client, prefix, secret) -> None:
    signature = client(secret).sign("msg_1", datetime.fromtimestamp(NOW, UTC), TEXT)
    headers = {
        f"{prefix}-id": "msg_1",
        f"{prefix}-timestamp": str(NOW),
        f"{prefix}-signature": signature,
    }
    assert verify(scheme, headers, secret).valid
    other = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
    assert verify(scheme, headers, other).reason is RejectReason.MISMATCH
    assert list(signed(scheme, secret).values()) == list(headers.values())


@pytest.mark.parametrize("scheme", [STANDARD, SVIX], ids=["webhook", "svix"])
@pytest.mark.parametrize("client", [standardwebhooks.Webhook, svix.Webhook])
def test_standard_webhooks_accept_ours(scheme, client) -> None:
    headers = signed(scheme, WHSEC)
    if client is standardwebhooks.Webhook:
        headers = {name.replace("svix-", "webhook-"): value for name, value in headers.items()}
    client(WHSEC).verify(BODY, headers)


@pytest.mark.parametrize("offset", [-301, -300, 0, 300, 301])
def test_we_draw_the_line_where_they_draw_it(offset) -> None:
    """Both directions; Stripe's client alone looks one way only."""
    expected = abs(offset) <= 300
    sangho = signed(SANGHO, WHSEC, timestamp=NOW + offset)
    slack = signed(SLACK, SIGNING_SECRET, timestamp=NOW + offset)
    standard = signed(STANDARD, WHSEC, timestamp=NOW + offset)
    assert verify(SANGHO, sangho, WHSEC).valid is expected
    assert verify(SLACK, slack, SIGNING_SECRET).valid is expected
    assert verify(STANDARD, standard, WHSEC).valid is expected
    assert SignatureVerifier(SIGNING_SECRET).is_valid_request(BODY, slack) is expected
    for client, arguments in [
        (Client.construct_event, (BODY, sangho["Sangho-Signature"], WHSEC)),
        (standardwebhooks.Webhook(WHSEC).verify, (BODY, standard)),
    ]:
        try:
            client(*arguments)
        except Exception:
            assert not expected
        else:
            assert expected
