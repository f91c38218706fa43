"""Sangho: the id is in the signed body, and perhaps in an unsigned header too.

PyPI sangho 0.2.0, `Sangho.construct_event`: signature, tolerance, rotation, `id` and `type`.
"""

from __future__ import annotations

from datetime import timedelta

from .. import signatures
from ..exceptions import MalformedWebhook
from .base import Provider
from .identity import Identity
from .incoming import Incoming, text_at


class Sangho(Provider):
    """Webhooks of Sangho, a payment service."""

    slug = "sangho"
    name = "Sangho"
    # What is marked [U] stands in Sangho's guide to idempotent webhooks and in no SDK.
    docs = ("pkg:pypi/sangho@0.2.0",)  # the official client; the vendor publishes no page
    scheme = signatures.Hmac(
        "Sangho-Signature", "{timestamp}.{body}", separator=",", field="v1", time_field="t"
    )

    # [U] Never delivered again after 48 hours; how often it tries before is not published.
    retry_window = timedelta(hours=48)
    # [U] "Records of more than 72 hours can be deleted." A person can call `retry_delivery` at
    # any time, and whether that ends at 48 hours is not known: the default retention is longer.
    retention_floor = timedelta(hours=72)
    # How long Sangho waits for the answer is not published, so there is no `deadline`.
    kept_headers = frozenset({"sangho-event-id", "user-agent"})
    identifying_headers = frozenset({"sangho-event-id"})

    def identify(self, incoming: Incoming) -> Identity:
        """Read the signed `id`; the header [U] only where the body has none.

        Raises MalformedWebhook if the two contradict each other: nobody signed the header.
        """
        document = incoming.json_object
        event_id = text_at(document, "id")
        header = incoming.header("Sangho-Event-ID")
        if not event_id and _is_absent(document.get("id")):
            event_id = header
        elif header and header != event_id.strip():
            raise MalformedWebhook("Sangho-Event-ID contradicts the id in the signed body.")
        return Identity(
            event_id=self.usable_id(event_id, incoming),
            event_type=text_at(document, "type"),
        )


def _is_absent(event_id: object) -> bool:
    """Whether the body has no id, as opposed to one that is not text."""
    return event_id is None or (isinstance(event_id, str) and not event_id.strip())
