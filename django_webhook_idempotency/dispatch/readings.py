"""What an event says of its order: read from the payload by a path, or by a function."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from ..exceptions import OrderingError
from ..handlers import Handler, Reading, finished
from ..models import WebhookEvent, digest_of


def read(event: WebhookEvent, reading: Reading) -> Any:
    """What a path into an event's payload leads to, None if it leads nowhere, or a function says.

    A part of the path that is a number counts into a list.
    """
    if callable(reading):
        return finished(reading(event))
    value = event.data
    for part in reading.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def key_of(event: WebhookEvent, handler: Handler) -> str | None:
    """The digest of what orders an event for a handler; None if nothing does.

    The scope is in it: two tenants may have the same ids. Raises OrderingError, or what a function
    of the project raises.
    """
    if handler.ordering_key is None:
        return None
    value = read(event, handler.ordering_key)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal | UUID):
        raise OrderingError(
            f"The ordering key of {handler.name} is of type {type(value).__name__}; it should be "
            "a text or a number."
        )
    return digest_of("ordering", handler.name, event.provider, event.scope, str(value))
