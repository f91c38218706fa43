"""Stripe: snapshot and thin events, from one account or from many.

https://docs.stripe.com/webhooks
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from .. import signatures
from . import options
from .base import Provider
from .identity import Identity, compound, parts_of
from .incoming import Incoming, brackets, text_at

# A key in quotes, a colon, an integer. Inside of a JSON string the quotes would be escaped.
_PENDING_WEBHOOKS = re.compile(rb'(?<!\\)"pending_webhooks"\s*:\s*-?[0-9]+')


def exact_types(value: Any) -> frozenset[str]:
    """Event types as Stripe spells them, no patterns."""
    if isinstance(value, str | bytes | Mapping):
        raise ValueError("a list of event types")
    try:
        types = frozenset(value)
    except TypeError:
        raise ValueError("a list of event types") from None
    if not all(isinstance(name, str) and name.strip() and "*" not in name for name in types):
        raise ValueError("a list of exact event types, such as 'payment_intent.succeeded'")
    return types


class Stripe(Provider):
    """Webhooks of Stripe; thin `v2.core.event` notifications too."""

    slug = "stripe"
    name = "Stripe"
    scoped_by = "<account>:<mode>, such as ':live' for the live events of your own account"
    docs = (
        "https://docs.stripe.com/webhooks",
        "https://docs.stripe.com/webhooks/process-undelivered-events",
    )
    # Other versions are skipped: a fake `v0` comes with test events.
    scheme = signatures.Hmac(
        "Stripe-Signature",
        "{timestamp}.{body}",
        separator=",",
        field="v1",
        time_field="t",
        key_prefix="whsec_",
    )

    # https://docs.stripe.com/webhooks
    # Three days of attempts in live mode; a sandbox makes three over a few hours.
    retry_window = timedelta(days=3)
    # 15 days from the Dashboard, 30 with `stripe events resend`. A resend that succeeds doesn't
    # end the automatic attempts.
    resend_window = timedelta(days=30)
    # Any 2xx ends the attempts, and nothing else does.
    stop_retry_status = 200
    # "Quickly" is all that is said of the time to answer, so there is no `deadline`.
    kept_headers = frozenset({"user-agent"})

    #: Types of which Stripe's advice for the rare case of two events about one change is taken:
    #: the same type and `data.object.id` are one event. Right for `payment_intent.succeeded`,
    #: wrong for `customer.updated`, which happens to a customer again and again.
    secondary_key_types: frozenset[str] = frozenset()

    options: ClassVar[Mapping[str, options.Validator]] = {
        **options.COMMON,
        "secondary_key_types": exact_types,
    }

    def identify(self, incoming: Incoming) -> Identity:
        """Read `id`, scoped by whose event it is and by live or test mode.

        The scope is `<account>:<mode>`: the account is `account`, else `context`, empty for one's
        own events; the mode is `live`, `test`, or empty if the event doesn't say. Thin events
        (their `object` is `v2.core.event`) carry id, type, context and livemode in the same places.
        """
        document = incoming.json_object
        event_type = text_at(document, "type")
        account = text_at(document, "account") or text_at(document, "context")
        return Identity(
            event_id=self.usable_id(text_at(document, "id"), incoming),
            event_type=event_type,
            scope=compound(account, mode_of(document.get("livemode"))),
            secondary=self._secondary(event_type, text_at(document, "data.object.id")),
        )

    def may_scope(self, scope: str) -> bool:
        """Whether it is `<account>:<mode>`."""
        parts = parts_of(scope)
        return len(parts) == 2 and parts[1] in ("live", "test", "")

    def body_digest(self, body: bytes) -> str:
        """SHA-256 hex of the body without the event's own `pending_webhooks`.

        That counts the endpoints still to be reached, so one attempt may differ from the next.
        """
        digest = hashlib.sha256()
        depth = end = 0
        for counter in _PENDING_WEBHOOKS.finditer(body):
            before = body[end : counter.start()]
            depth += _levels(before)
            digest.update(before)
            digest.update(b'"pending_webhooks":' if depth == 1 else counter.group())
            end = counter.end()
        digest.update(body[end:])
        return digest.hexdigest()

    def _secondary(self, event_type: str, object_id: str) -> str:
        if object_id and event_type in self.secondary_key_types:
            return compound(event_type, object_id)
        return ""


def mode_of(livemode: object) -> str:
    """The mode in a scope: `live`, `test`, or empty where it is not known."""
    if livemode is True:
        return "live"
    return "test" if livemode is False else ""


def _levels(text: bytes) -> int:
    """By how many levels of JSON the end of `text` lies deeper than its start."""
    found = brackets(text)
    return len(found) - 2 * (found.count(b"]") + found.count(b"}"))
