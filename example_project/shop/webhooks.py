"""The shop's one handler: it books an entry for each event of any type and provider.

A few types let people and tests see what happens when a handler is slow or fails.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any

from django_webhook_idempotency.handlers import webhook_handler
from django_webhook_idempotency.models import WebhookEvent

from .models import LedgerEntry

logger = logging.getLogger(__name__)

#: `test.sleep.250` and `test.wait.250`, with whatever a provider appends, such as an action.
_PAUSE = re.compile(r"test\.(?P<kind>sleep|wait)\.(?P<ms>[0-9]{1,7})(?:\.|\Z)")
_CURRENCY = re.compile(r"[A-Za-z]{3}")
MAX_AMOUNT = 2**63 - 1


class FailsOnce(Exception):
    """Raised in the first run of an event whose type starts with `test.fail`."""


@webhook_handler("*")
def book(event: WebhookEvent) -> None:
    """Book one entry for an event.

    `test.wait.<ms>` pauses before the entry is written and `test.sleep.<ms>` after. `test.fail`
    fails once it is written, in the first run: the entry is undone, and the next run writes it.
    """
    pause(event, "wait")
    amount, currency = price(event.data)
    LedgerEntry.objects.create(
        provider=event.provider,
        event_id=event.event_id,
        event_type=event.event_type,
        amount=amount,
        currency=currency,
    )
    pause(event, "sleep")
    if event.event_type.startswith("test.fail") and event.attempts <= 1:
        raise FailsOnce(f"{event.event_type} fails in its first run")


def price(payload: Any) -> tuple[int, str]:
    """Amount and currency from where Stripe and Sangho have them, or the object itself.

    Zero and empty where there are none that can be booked.
    """
    data = payload.get("data") if isinstance(payload, dict) else None
    thing = data.get("object", data) if isinstance(data, dict) else None
    if not isinstance(thing, dict):
        return 0, ""
    amount, currency = thing.get("amount"), thing.get("currency")
    if type(amount) is not int or abs(amount) > MAX_AMOUNT:
        amount = 0
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        currency = ""
    return amount, currency.upper()


def pause(event: WebhookEvent, kind: str) -> None:
    """Sleep in the handler if the type asks for it, and say in the log where."""
    asked = _PAUSE.match(event.event_type)
    if asked is None or asked["kind"] != kind:
        return
    logger.info(
        "process %d pauses %s ms: %s event %s",
        os.getpid(),
        asked["ms"],
        event.provider,
        event.event_id,
    )
    time.sleep(int(asked["ms"]) / 1000)
