"""Which events are chosen, in which order, and that no statement reads further than it may."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_webhook_idempotency.models import HandlerRun, WebhookEvent, digest_of
from django_webhook_idempotency.replay import Choice, UnknownEvents, choosing, preview, walking

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def event(name: str, status: str = "failed", *, hours: int = 0, **more: Any) -> WebhookEvent:
    more = {"provider": "stripe", "event_type": "invoice.paid", **more}
    return WebhookEvent.objects.create(
        event_id=name,
        dedupe_key=digest_of(name, *map(str, more.values())),
        status=status,
        received_at=NOW - timedelta(hours=hours),
        body=b"{}",
        **more,
    )


def run(of: WebhookEvent, handler: str, error: str = "", number: int = 1) -> None:
    HandlerRun.objects.create(
        event=of, handler=handler, number=number, started_at=NOW, finished_at=NOW, error_class=error
    )


def names(**choice: Any) -> list[str]:
    return [each.event_id for each in Choice(**choice).events()]


@pytest.fixture
def mixed() -> None:
    """Give events of every status, provider, type, scope and age."""
    event("a", "failed", hours=5)
    event("b", "dead", hours=4, provider="github", event_type="push", scope="1")
    event("c", "processed", hours=3, event_type="invoice")
    event("d", "failed", hours=2, event_type="invoices.paid", scope="x")
    event("e", "ignored", hours=1, provider="github")
    event("f", "pending")
    event("g", "processing")
    event("h", "superseded", event_type="Invoice.paid")


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({}, "abd"),
        ({"providers": ["stripe"]}, "ad"),
        ({"providers": ["stripe", "github"]}, "abd"),
        ({"statuses": ["processed", "ignored"]}, "ce"),
        ({"statuses": ["processed", "ignored", "dead"], "providers": ["github"]}, "be"),
        ({"statuses": ["dead", "pending", "failed"]}, "abdf"),
        ({"types": ["invoice.*"]}, "a"),
        ({"types": ["invoice.*"], "statuses": ["failed", "superseded"]}, "a"),
        ({"types": ["invoice.*", "push"]}, "ab"),
        ({"types": ["*"]}, "abd"),
        ({"types": ["invoice.paid"]}, "a"),
        ({"scope": ""}, "a"),
        ({"scope": "X"}, ""),
        ({"scope": "x"}, "d"),
        ({"since": NOW - timedelta(hours=4)}, "bd"),
        ({"before": NOW - timedelta(hours=4)}, "a"),
        ({"since": NOW - timedelta(hours=4), "statuses": ["processed", "dead"]}, "bc"),
        (
            {
                "since": NOW - timedelta(hours=4),
                "before": NOW - timedelta(hours=2),
                "statuses": ["failed", "dead", "processed"],
            },
            "bc",
        ),
        ({"event_ids": ["c", "a"]}, "ac"),
        ({"event_ids": ["c", "a"], "statuses": ["processed"]}, "c"),
        ({"event_ids": ["g"]}, "g"),
    ],
)
def test_what_is_asked_for(choice: dict[str, Any], found: str) -> None:
    assert names(**choice) == list(found)


@pytest.mark.usefixtures("mixed")
def test_by_number_and_by_name() -> None:
    number = WebhookEvent.objects.get(event_id="c").pk
    assert names(numbers=[number], event_ids=["e"]) == ["c", "e"]
    for choice, missing in (
        ({"event_ids": ["a", "A", "nobody"]}, "A, nobody"),
        ({"numbers": [number, 10**30]}, f"#{10**30}"),
    ):
        with pytest.raises(UnknownEvents, match=missing):
            names(**choice)


def test_a_number_beside_an_id_chooses_no_other_spelling() -> None:
    """MariaDB takes both for equal."""
    event("evt_a")
    event("EVT_A")
    assert names(event_ids=["evt_a"], numbers=[event("evt_z").pk]) == ["evt_a", "evt_z"]


def test_one_id_of_several_providers_and_scopes() -> None:
    event("same", provider="stripe")
    event("same", provider="github", scope="1")
    event("same", provider="github", scope="2")
    assert len(names(event_ids=["same"])) == 3
    assert len(names(event_ids=["same"], providers=["github"])) == 2
    assert len(names(event_ids=["same"], scope="2")) == 1


def test_by_the_error_and_the_handler_of_the_last_run() -> None:
    now_fine, one, two = event("fine"), event("one"), event("two")
    run(now_fine, "h", "ValueError")
    run(now_fine, "h", "", 2)
    run(one, "h", "ValueError")
    run(two, "h", "KeyError")
    run(two, "h", "ValueError", 2)
    run(two, "i", "KeyError")
    event("inline", last_error="KeyError: 'no'")
    assert names(error="ValueError") == ["one", "two"]
    assert names(error="KeyError") == ["two", "inline"]
    assert names(error="KeyError", error_in="i") == ["two"]
    assert names(error_in="h") == ["one", "two"]


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"statuses": ["processed"]},
        {"statuses": ["processed"], "providers": ["stripe"]},
        {"statuses": ["processed", "failed"], "since": NOW - timedelta(hours=20)},
        {"types": ["invoice.paid"], "error": "KeyError"},
    ],
)
def test_windows_meet_without_a_gap(
    monkeypatch: pytest.MonkeyPatch, choice: dict[str, Any]
) -> None:
    """Also where many have one time, and rows lie between that are not asked for."""
    every = []
    for number in range(60):
        status = "processed" if number % 3 else "failed"
        one = event(f"evt_{number}", status, hours=number // 20, last_error="KeyError: x")
        every.append(one)
    expected = sorted(names(**choice))
    monkeypatch.setattr(walking, "WINDOW", 7)
    found = names(**choice)
    assert sorted(found) == expected
    assert len(found) == len(set(found)) > 15


def test_an_event_that_changes_its_status_meanwhile_comes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failed ones are read before it, the dead ones after."""
    monkeypatch.setattr(walking, "WINDOW", 2)
    monkeypatch.setattr(choosing, "PART", 1)
    for name, status in (("a", "dead"), ("b", "dead"), ("c", "failed")):
        event(name, status)
    events = Choice().events()
    seen = [next(events).event_id]
    WebhookEvent.objects.filter(event_id="c").update(status="dead")
    seen += [each.event_id for each in events]
    assert seen == ["a", "b", "c"]


def test_what_comes_meanwhile_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of events that fail again would never end."""
    monkeypatch.setattr(walking, "WINDOW", 1)
    monkeypatch.setattr(choosing, "PART", 1)
    event("first")
    seen = []
    for one in Choice().events():
        seen.append(one.event_id)
        event(f"{one.event_id}!")
    assert seen == ["first"]


def test_a_preview_counts_up_to_its_bound() -> None:
    for number in range(5):
        event(f"evt_{number}", "dead" if number else "failed")
    exact = preview(Choice(), bound=5)
    assert (exact.total, exact.more, str(exact)) == (5, False, "5")
    assert exact.kinds == {
        ("stripe", "failed", "invoice.paid"): 1,
        ("stripe", "dead", "invoice.paid"): 4,
    }
    more = preview(Choice(), bound=4)
    assert (more.total, more.more, str(more)) == (4, True, "more than 4")


# MariaDB's ANALYZE commits.
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "choice",
    [
        {"statuses": ["failed"], "types": ["nothing.*"]},
        {"statuses": ["processed"], "providers": ["rare"]},
        {"statuses": ["processed"], "since": NOW - timedelta(hours=3)},
    ],
)
def test_the_statements_walk_an_index(choice: dict[str, Any]) -> None:
    """A statement's plan never reads the whole table, nor sorts what it reads of it."""
    WebhookEvent.objects.bulk_create(
        WebhookEvent(
            provider="rare" if number % 1000 == 0 else "stripe",
            event_id=f"evt_{number}",
            dedupe_key=digest_of(str(number)),
            status="failed" if number % 500 == 0 else "processed",
            received_at=NOW - timedelta(hours=number // 500),
        )
        for number in range(5000)
    )
    table = WebhookEvent._meta.db_table
    if connection.vendor != "sqlite":
        with connection.cursor() as cursor:
            analyze = "ANALYZE" if connection.vendor == "postgresql" else "ANALYZE TABLE"
            cursor.execute(f"{analyze} {table}")
    with CaptureQueriesContext(connection) as captured:
        list(Choice(**choice).events())
    statements = [query["sql"] for query in captured if not query["sql"].endswith("LIMIT 1")]
    assert statements
    for statement in statements:
        plan = plan_of(statement)
        assert not any(word in plan for word in ("Seq Scan", f"SCAN {table}\n", "filesort")), (
            statement,
            plan,
        )


def plan_of(statement: str) -> str:
    """The plan of a statement as text, one step a line."""
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {statement}")
        rows = cursor.fetchall()
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)
