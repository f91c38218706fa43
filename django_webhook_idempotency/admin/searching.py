"""Find events by what a person has in hand: the provider's id, our number, or the key."""

from __future__ import annotations

import re

from django.db.models import QuerySet

from ..models import WebhookEvent, displayable
from .seeking import MAX_KEY

#: More events than these don't share an id that anybody searches for.
FOUND_LIMIT = 1_000

_KEY = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"#?([0-9]{1,19})")


def find_events(term: str, events: QuerySet[WebhookEvent] | None = None) -> list[int]:
    """The numbers of the events with an event id, dedupe key or number, each read by its index.

    One statement for each, since a planner that is given all at once may scan the table.
    """
    term = displayable(term.strip())
    events = WebhookEvent.objects.all() if events is None else events
    keys = events.order_by().values_list("pk", flat=True)
    found = set(keys.filter(event_id=term)[:FOUND_LIMIT])
    if _KEY.fullmatch(term):
        found.update(keys.filter(dedupe_key=term)[:1])
    number = _NUMBER.fullmatch(term)
    if number and int(number[1]) <= MAX_KEY:
        found.add(int(number[1]))
    return sorted(found)
