"""Signature schemes: pure functions over bytes, `sign()` beside `verify()`.

Nothing here knows Django requests, settings or models.
"""

from __future__ import annotations

from .keyed_hash import Hmac
from .layouts import Layout
from .message import Message, Scheme, Verdict
from .secrets import Secret
from .standard_webhooks import StandardWebhooks
from .tokens import BasicAuth, Token

__all__ = [
    "BasicAuth",
    "Hmac",
    "Layout",
    "Message",
    "Scheme",
    "Secret",
    "StandardWebhooks",
    "Token",
    "Verdict",
]
