"""The ledger: one row an event, one a delivery, one a run; what orders them; what was missed."""

from __future__ import annotations

from .deliveries import WebhookDelivery
from .events import WebhookEvent
from .ordering import HandlerTurn, OrderingKey
from .quarantine import ExpectedSource, QuarantinedDelivery, SecretUse
from .recovery import MissingEvent, RecoveryCursor
from .replays import Replay
from .runs import HandlerRun, HandlerStep
from .texts import (
    MAX_ERROR,
    MAX_TRACEBACK,
    class_name,
    digest_of,
    displayable,
    is_rejection,
    text_of,
)

__all__ = [
    "MAX_ERROR",
    "MAX_TRACEBACK",
    "ExpectedSource",
    "HandlerRun",
    "HandlerStep",
    "HandlerTurn",
    "MissingEvent",
    "OrderingKey",
    "QuarantinedDelivery",
    "RecoveryCursor",
    "Replay",
    "SecretUse",
    "WebhookDelivery",
    "WebhookEvent",
    "class_name",
    "digest_of",
    "displayable",
    "is_rejection",
    "text_of",
]
