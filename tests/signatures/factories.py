"""What the signature tests are made of: messages, keys, and every scheme with its secrets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from django_webhook_idempotency.providers.github import GitHub
from django_webhook_idempotency.providers.sangho import Sangho
from django_webhook_idempotency.providers.slack import Slack
from django_webhook_idempotency.providers.stripe import Stripe
from django_webhook_idempotency.signatures import Hmac, Message, Scheme, Secret, StandardWebhooks
from django_webhook_idempotency.signatures.times import TimeUnit, write_time

NOW = 1_700_000_000
BODY = '{"id":"evt_1","type":"customer.updated","name":"José 💸"}'.encode()


def received(headers: Mapping[str, str], body: bytes = BODY) -> Message:
    """Return the message that a server would make of a request with `headers`."""
    return Message(body=body, headers={name.lower(): value for name, value in headers.items()})


def whsec(key: bytes) -> Secret:
    """Return the Standard Webhooks secret of an HMAC key."""
    return Secret.parse("whsec_" + base64.b64encode(key).decode())


@dataclass(frozen=True)
class Case:
    """One scheme with two secrets that suit it, and the headers it reads."""

    scheme: Scheme
    secret: Secret
    old_secret: Secret
    headers: tuple[str, ...]
    timestamped: bool = True
    unit: TimeUnit = "s"

    def stamp(self, timestamp: int) -> str:
        """Return a time as the scheme writes it."""
        return write_time(timestamp, self.unit)

    @property
    def latest(self) -> int:
        """The latest time that can be written."""
        return {"s": 10**15 - 1, "ms": 10**12 - 1, "iso": 253_402_300_799}[self.unit]

    def signed(self, body: bytes = BODY, *, timestamp: int = NOW) -> dict[str, str]:
        """Return the headers of a delivery signed with the current secret."""
        return self.scheme.sign(body, self.secret, timestamp=timestamp, message_id="msg_1")


_TEXT = Secret.parse("whsec_a"), Secret.parse("whsec_b")

CASES = {
    "github": Case(GitHub.scheme, *_TEXT, headers=("x-hub-signature-256",), timestamped=False),
    "github-sha1": Case(
        GitHub.sha1_scheme,
        *_TEXT,
        headers=("x-hub-signature",),
        timestamped=False,
    ),
    "base64-without-prefix": Case(
        Hmac("X-Acme-Hmac", encoding="base64"),
        *_TEXT,
        headers=("x-acme-hmac",),
        timestamped=False,
    ),
    "base64url-of-milliseconds": Case(
        Hmac(
            "X-Acme-Hmac",
            "{timestamp}.{body}",
            encoding="base64url",
            separator=",",
            field="v1",
            time_field="t",
            time_unit="ms",
        ),
        *_TEXT,
        headers=("x-acme-hmac",),
        unit="ms",
    ),
    "id-and-iso-time": Case(
        Hmac(
            "X-Acme-Hmac",
            "{id}{timestamp}{body}",
            prefix="sha256=",
            time_header="X-Acme-Time",
            time_unit="iso",
            id_header="X-Acme-Id",
        ),
        *_TEXT,
        headers=("x-acme-hmac", "x-acme-time", "x-acme-id"),
        unit="iso",
    ),
    "several-with-a-hex-key": Case(
        Hmac("X-Acme-Hmac", prefix="v1=", separator=",", key="hex", digest="sha512"),
        Secret.parse("aa" * 32),
        Secret.parse("bb" * 32),
        headers=("x-acme-hmac",),
        timestamped=False,
    ),
    "stripe": Case(Stripe.scheme, *_TEXT, headers=("stripe-signature",)),
    "sangho": Case(Sangho.scheme, *_TEXT, headers=("sangho-signature",)),
    "slack": Case(Slack.scheme, *_TEXT, headers=("x-slack-signature", "x-slack-request-timestamp")),
    "standard-webhooks": Case(
        StandardWebhooks(),
        whsec(bytes(range(32))),
        whsec(bytes(range(32, 64))),
        headers=("webhook-id", "webhook-timestamp", "webhook-signature"),
    ),
    "svix": Case(
        StandardWebhooks(("svix", "webhook")),
        whsec(bytes(range(32))),
        whsec(bytes(range(32, 64))),
        headers=("svix-id", "svix-timestamp", "svix-signature"),
    ),
    "ed25519": Case(
        StandardWebhooks(),
        Secret.parse("whsk_" + base64.b64encode(bytes(range(32))).decode()),
        Secret.parse("whsk_" + base64.b64encode(bytes(range(32, 64))).decode()),
        headers=("webhook-id", "webhook-timestamp", "webhook-signature"),
    ),
}
