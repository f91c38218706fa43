"""Events that went wrong in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import ledger
from ..exceptions import Superseded
from ..models import HandlerRun, WebhookEvent

#: An error's class, and the handler that it was raised in; empty if no run is known.
Errors = tuple[tuple[str, str], ...]


class Group(NamedTuple):
    """What events of one group have in common: the errors, or without any the type."""

    provider: str
    event_type: str = ""
    errors: Errors = ()


def errors_of(events: Sequence[WebhookEvent]) -> dict[int, Errors]:
    """What the handlers of some events failed with the last time, by the event's number."""
    last: dict[int, dict[str, str]] = {event.pk: {} for event in events}
    runs = HandlerRun.objects.using(ledger.alias()).filter(event__in=list(last))
    runs = runs.filter(finished_at__isnull=False).order_by("event", "number", "pk")
    for pk, handler, error_class in runs.values_list("event_id", "handler", "error_class"):
        last[pk][handler] = error_class
    found = {}
    for event in events:
        errors = {(error, name) for name, error in last[event.pk].items() if _is_failure(error)}
        if not errors and event.last_error:
            errors = {(event.last_error.partition(":")[0], "")}
        found[event.pk] = tuple(sorted(errors))
    return found


def groups_of(events: Sequence[WebhookEvent]) -> dict[int, Group]:
    """The group of each event, by its number."""
    errors = errors_of(events)
    return {
        event.pk: Group(event.provider, errors=errors[event.pk])
        if errors[event.pk]
        else Group(event.provider, event.event_type)
        for event in events
    }


def _is_failure(error_class: str) -> bool:
    return error_class not in ("", Superseded.__name__)
