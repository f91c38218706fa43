"""Signature schemes: pure functions over bytes, `sign()` beside `verify()`.

Nothing here knows Django requests, settings or models.
"""

from __future__ import annotations

from .hmac_body import HmacBody
from .message import Message, Scheme, Verdict
from .secrets import Secret
from .standard_webhooks import StandardWebhooks
from .timestamped import TimestampedHmac
from .versioned import VersionedHmac

__all__ = [
    "HmacBody",
    "Message",
    "Scheme",
    "Secret",
    "StandardWebhooks",
    "TimestampedHmac",
    "Verdict",
    "VersionedHmac",
]
