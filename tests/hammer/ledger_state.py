"""What must be true in the database when the dust has settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from django.db.models import Count

from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from tests.app.models import Effect

from .provider import Event, Tally
from .server import Server


def effects() -> Counter[str]:
    """How many effects each event has had."""
    rows = Effect.objects.filter(name="").values_list("event_id").annotate(Count("id"))
    return Counter(dict(rows))


def assert_exactly_once(expected: Iterable[Event]) -> None:
    """One effect for each event, none lost and none doubled, and all of them processed."""
    ids = {event.id for event in expected}
    counted = effects()
    lost = sorted(ids - set(counted))
    doubled = {event_id: times for event_id, times in counted.items() if times != 1}
    assert (lost, doubled) == ([], {})
    assert set(counted) == ids
    assert_finished(ids)


def assert_finished(ids: set[str]) -> None:
    """Each event is processed, and exactly one delivery says that it did it."""
    statuses = dict(WebhookEvent.objects.values_list("event_id", "status"))
    assert {key: value for key, value in statuses.items() if value != "processed"} == {}
    assert set(statuses) == ids
    finishes = Counter(
        WebhookDelivery.objects.filter(outcome="processed").values_list(
            "event__event_id", flat=True
        )
    )
    assert {key: times for key, times in finishes.items() if times != 1} == {}
    assert set(finishes) == ids


def assert_all_accepted(tally: Tally, expected: Iterable[Event]) -> None:
    """Nothing was given up, nothing answered in a way that the provider would not understand."""
    assert tally.strange == []
    assert tally.given_up == []
    assert {event.id for event in expected} == set(tally.accepted)


def assert_quiet(server: Server, *allowed: str) -> None:
    """No traceback in the server's log."""
    text = server.log
    for word in allowed:
        text = text.replace(word, "")
    assert "Traceback" not in text, text[-6000:]
