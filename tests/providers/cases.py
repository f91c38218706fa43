"""One good delivery of each provider, and what turns bytes into a signed delivery."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_webhook_idempotency.providers import Incoming, Provider, provider_class
from django_webhook_idempotency.signatures import Message, Secret

NOW = 1_700_000_000
FORM = "application/x-www-form-urlencoded"
VECTORS = json.loads((Path(__file__).parents[1] / "signatures" / "vectors.json").read_text())

#: The secrets of the shared vectors.
SECRETS = {
    "sangho": "whsec_sangho_test_0123456789abcdef",
    "github": "It's a Secret to Everybody",
    "stripe": "whsec_stripe_test_0123456789abcdef",
    "slack": "8f742231b10e8888abcd99yyyzzz85a5",
    "standard_webhooks": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
}


def vector(vector_id: str) -> dict[str, Any]:
    """Return one of the shared signature vectors."""
    return next(found for found in VECTORS["vectors"] if found["id"] == vector_id)


def make(slug: str, **options: Any) -> Provider:
    """Return a provider with its public test secret and the given options."""
    return provider_class(slug)(slug, {"SECRETS": [SECRETS[slug]], **options})


def incoming(
    body: bytes | str | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
    charset: str = "",
    *,
    method: str = "POST",
    query: Mapping[str, str] | None = None,
) -> Incoming:
    """Return a delivery as the receiver would make it; a mapping is sent as JSON."""
    if isinstance(body, Mapping):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    lowered = {name.lower(): value for name, value in (headers or {}).items()}
    return Incoming(Message(body, lowered, method), content_type, charset, query or {})


def signed(
    provider: Provider,
    body: bytes | str | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    content_type: str = "application/json",
    charset: str = "",
    *,
    timestamp: int = NOW,
) -> Incoming:
    """Return a delivery that is signed with the provider's secret."""
    plain = incoming(body, headers, content_type, charset)
    assert provider.scheme is not None
    signature = provider.scheme.sign(
        plain.body,
        Secret.parse(SECRETS[provider.slug]),
        timestamp=timestamp,
        message_id=plain.headers.get("webhook-id", "msg_1"),
    )
    return incoming(plain.body, {**signature, **plain.headers}, content_type, charset)


@dataclass(frozen=True)
class Case:
    """A good delivery, and where its id stands: at a key of the JSON body or in a header."""

    slug: str
    document: dict[str, Any]
    event_id: str
    event_type: str
    scope: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    id_header: str = ""
    id_key: str = ""
    needs_object: bool = True

    def with_id(self, event_id: object) -> tuple[dict[str, Any], dict[str, str]]:
        """Return body and headers that carry another id; None takes it away."""
        document, headers = dict(self.document), dict(self.headers)
        target: dict[str, Any] = headers if self.id_header else document
        name = self.id_header or self.id_key
        target[name] = event_id
        if event_id is None:
            del target[name]
        return document, headers


CASES = [
    Case(
        slug="sangho",
        document={
            "id": "evt_1",
            "type": "payment_intent.succeeded",
            "created": NOW,
            "data": {"object": {"id": "pi_1", "amount": 5000, "currency": "XAF"}},
        },
        event_id="evt_1",
        event_type="payment_intent.succeeded",
        id_key="id",
    ),
    Case(
        slug="github",
        document={"action": "opened", "number": 2, "pull_request": {"id": 279147437}},
        event_id="72d3162e-cc78-11e3-81ab-4c9367dc0958",
        event_type="pull_request.opened",
        scope="292430182",
        headers={
            "X-GitHub-Event": "pull_request",
            "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            "X-GitHub-Hook-ID": "292430182",
        },
        id_header="X-GitHub-Delivery",
    ),
    Case(
        slug="stripe",
        document={
            "id": "evt_1",
            "object": "event",
            "type": "payment_intent.succeeded",
            "livemode": False,
            "pending_webhooks": 1,
            "data": {"object": {"id": "pi_1", "object": "payment_intent"}},
        },
        event_id="evt_1",
        event_type="payment_intent.succeeded",
        scope=":test",
        id_key="id",
    ),
    Case(
        slug="slack",
        document={
            "type": "event_callback",
            "event_id": "Ev123ABC456",
            "team_id": "T123ABC456",
            "api_app_id": "A123ABC456",
            "event": {"type": "reaction_added", "user": "U123ABC456"},
        },
        event_id="Ev123ABC456",
        event_type="reaction_added",
        scope="A123ABC456",
        id_key="event_id",
    ),
    Case(
        slug="standard_webhooks",
        document={"type": "contact.created", "timestamp": "2022-11-03T20:26:10Z", "data": {}},
        event_id="msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
        event_type="contact.created",
        headers={"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"},
        id_header="webhook-id",
        needs_object=False,
    ),
]
