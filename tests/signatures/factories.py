"""What the signature tests are made of: messages, keys, and every scheme with its secrets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from django_webhook_idempotency.signatures import (
    HmacBody,
    Message,
    Scheme,
    Secret,
    StandardWebhooks,
    TimestampedHmac,
    VersionedHmac,
)

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

    def signed(self, body: bytes = BODY, *, timestamp: int = NOW) -> dict[str, str]:
        """Return the headers of a delivery signed with the current secret."""
        return self.scheme.sign(body, self.secret, timestamp=timestamp, message_id="msg_1")


_TEXT = Secret.parse("whsec_a"), Secret.parse("whsec_b")

CASES = {
    "github": Case(HmacBody(), *_TEXT, headers=("x-hub-signature-256",), timestamped=False),
    "github-sha1": Case(
        HmacBody("X-Hub-Signature", prefix="sha1=", digest="sha1"),
        *_TEXT,
        headers=("x-hub-signature",),
        timestamped=False,
    ),
    "base64-without-prefix": Case(
        HmacBody("X-Acme-Hmac", prefix="", encoding="base64"),
        *_TEXT,
        headers=("x-acme-hmac",),
        timestamped=False,
    ),
    "stripe": Case(TimestampedHmac(), *_TEXT, headers=("stripe-signature",)),
    "sangho": Case(TimestampedHmac("Sangho-Signature"), *_TEXT, headers=("sangho-signature",)),
    "slack": Case(
        VersionedHmac(), *_TEXT, headers=("x-slack-signature", "x-slack-request-timestamp")
    ),
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
