"""The ledger: one row an event, one a delivery, one a run; and what orders them."""

from __future__ import annotations

from .deliveries import WebhookDelivery
from .events import WebhookEvent
from .ordering import HandlerTurn, OrderingKey
from .runs import HandlerRun, HandlerStep
from .texts import MAX_ERROR, MAX_TRACEBACK, digest_of, displayable, text_of

__all__ = [
    "MAX_ERROR",
    "MAX_TRACEBACK",
    "HandlerRun",
    "HandlerStep",
    "HandlerTurn",
    "OrderingKey",
    "WebhookDelivery",
    "WebhookEvent",
    "digest_of",
    "displayable",
    "text_of",
]
