"""Standard Webhooks: the id is a signed header, under the standard's name or Svix's.

https://github.com/standard-webhooks/standard-webhooks/blob/b2fa7b8719fb75d326b591077f5d1b385cfcdfae/spec/standard-webhooks.md
"""

from __future__ import annotations

from datetime import timedelta

from .. import signatures
from .base import Provider
from .identity import Identity
from .incoming import Incoming, text_at


class StandardWebhooks(Provider):
    """Any sender that follows the specification, or signs in Svix's way."""

    slug = "standard_webhooks"
    name = "Standard Webhooks"
    docs = (
        "https://github.com/standard-webhooks/standard-webhooks/blob/b2fa7b8719fb75d326b591077f5d1b385cfcdfae/spec/standard-webhooks.md",
    )
    scheme = signatures.StandardWebhooks()

    # The specification, with the schedule that it gives as an example: at once, then after 5 s,
    # 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h.
    retry_window = timedelta(hours=75, minutes=35, seconds=5)
    # Senders should wait 15 to 30 seconds.
    deadline = 15
    # Any 2xx ends the attempts. 410 makes the sender disable the endpoint, so it is answered only
    # when a handler asks for it with Reject(status=410).
    stop_retry_status = 200
    kept_headers = frozenset(
        {"svix-id", "svix-timestamp", "user-agent", "webhook-id", "webhook-timestamp"}
    )

    def identify(self, incoming: Incoming) -> Identity:
        """Read the message id that was signed, and `type` where the body has one."""
        return Identity(
            event_id=self.usable_id(self.scheme.message_id(incoming.headers), incoming),
            event_type=text_at(incoming.json, "type"),
        )
