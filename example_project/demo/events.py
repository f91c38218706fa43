"""Events as the five providers lay them out, made up afresh in each run."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

PROVIDERS = ("sangho", "github", "stripe", "slack", "standard_webhooks")

_LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(frozen=True)
class Event:
    """What happened at a provider; `headers` are those that nobody signs."""

    provider: str
    event_id: str
    event_type: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def make_event(provider: str, random: Random, event_type: str = "") -> Event:
    """An event of a provider, of a type that it has unless one is given."""
    types, lay_out = _LAYOUTS[provider]
    return lay_out(event_type or random.choice(types), random)


def _id(prefix: str, random: Random, length: int = 24) -> str:
    return prefix + "".join(random.choices(_LETTERS, k=length))


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _sangho(event_type: str, random: Random) -> Event:
    event_id = _id("evt_", random, 16)
    payment = {
        "id": _id("pi_", random, 16),
        "object": "payment_intent",
        "amount": random.randrange(5, 500) * 100,
        "currency": "XAF",
        "status": "succeeded",
        "payer": {"phone": f"+2376{random.randrange(10**8):08}"},
    }
    document = {
        "id": event_id,
        "type": event_type,
        "created": int(time.time()),
        "data": {"object": payment},
    }
    headers = {"Sangho-Event-ID": event_id, "User-Agent": "Sangho-Webhooks/1"}
    return Event("sangho", event_id, event_type, _json(document), headers)


def _stripe(event_type: str, random: Random) -> Event:
    event_id = _id("evt_1", random)
    payment = {
        "id": _id("pi_3", random),
        "object": event_type.partition(".")[0],
        "amount": random.randrange(500, 50_000),
        "currency": random.choice(("eur", "usd", "gbp")),
        "customer": _id("cus_", random, 14),
        "metadata": {"order": str(random.randrange(10_000, 99_999))},
    }
    document = {
        "id": event_id,
        "object": "event",
        "api_version": "2026-01-28",
        "created": int(time.time()),
        "data": {"object": payment},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": _id("req_", random, 14), "idempotency_key": None},
        "type": event_type,
    }
    headers = {"User-Agent": "Stripe/1.0 (+https://stripe.com/docs/webhooks)"}
    return Event("stripe", event_id, event_type, _json(document), headers)


def _github(event_type: str, random: Random) -> Event:
    guid = str(uuid.UUID(int=random.getrandbits(128), version=4))
    name, _, action = event_type.partition(".")
    document = {
        "repository": {"id": 1296269, "full_name": "octo-org/shop", "private": False},
        "sender": {"login": random.choice(("octocat", "hubot", "mona")), "type": "User"},
        "number": random.randrange(1, 5_000),
        "after": f"{random.getrandbits(160):040x}",
    }
    if action:
        document["action"] = action
    headers = {
        "X-GitHub-Delivery": guid,
        "X-GitHub-Event": name,
        "X-GitHub-Hook-ID": "4711",
        "User-Agent": "GitHub-Hookshot/044aadd",
    }
    return Event("github", guid, event_type, _json(document), headers)


def _slack(event_type: str, random: Random) -> Event:
    event_id = "Ev" + _id("", random, 9).upper()
    happened = {
        "type": event_type,
        "user": "U" + _id("", random, 8).upper(),
        "channel": "C024BE91L",
        "text": f"Order {random.randrange(10_000, 99_999)} has left the house :package:",
        "ts": f"{time.time():.6f}",
    }
    document = {
        "token": "not-used-any-more",
        "team_id": "T061EG9R6",
        "api_app_id": "A0FFV41KK",
        "type": "event_callback",
        "event_id": event_id,
        "event_time": int(time.time()),
        "event": happened,
    }
    headers = {"User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)"}
    return Event("slack", event_id, event_type, _json(document), headers)


def _standard_webhooks(event_type: str, random: Random) -> Event:
    message_id = _id("msg_2", random, 26)
    invoice = {
        "id": _id("inv_", random, 12),
        "amount": random.randrange(10, 900) * 100,
        "currency": "EUR",
    }
    document = {
        "type": event_type,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "data": invoice,
    }
    return Event("standard_webhooks", message_id, event_type, _json(document))


_LAYOUTS: Mapping[str, tuple[tuple[str, ...], Callable[[str, Random], Event]]] = {
    "sangho": (("payment_intent.succeeded", "payment_intent.failed", "refund.created"), _sangho),
    "github": (("push", "issues.opened", "pull_request.closed", "star.created"), _github),
    "stripe": (("payment_intent.succeeded", "charge.refunded", "invoice.paid"), _stripe),
    "slack": (("message", "app_mention", "reaction_added"), _slack),
    "standard_webhooks": (("invoice.paid", "invoice.voided", "order.placed"), _standard_webhooks),
}
