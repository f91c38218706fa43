"""The connection to the database breaks: in a handler, around a commit, at any statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from django_webhook_idempotency.models import WebhookEvent

from .conftest import Start
from .ledger_state import assert_exactly_once, assert_quiet, effects
from .provider import Campaign, Event, Sending, events, fresh, post, shuffled
from .proxy import MOMENTS, Wire, wired

ANSWERS = {200, 409, 500, 503}
#: The statement by itself, as PostgreSQL's and MariaDB's protocols carry it.
COMMIT = rb"(Q....|\x03)COMMIT"

pytestmark = pytest.mark.only_on("postgresql", "mysql")  # SQLite has no connection to lose


@pytest.fixture
def wire(database_url: str) -> Iterator[tuple[Wire, str]]:
    with wired(database_url) as wire_and_url:
        yield wire_and_url


def cut_backend(number: str) -> None:
    """Let the database end a connection."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_terminate_backend(%s)", [int(number)])
        else:
            cursor.execute("KILL %s", [int(number)])


def end_idle_connections() -> None:
    """Let the database end all connections but this one."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            assert cursor.fetchall() == [(True,)]
        else:
            cursor.execute(
                "SELECT id FROM information_schema.processlist"
                " WHERE db = database() AND id <> connection_id()"
            )
            [(number,)] = cursor.fetchall()
            cursor.execute("KILL %s", [number])


def test_the_database_ends_the_connection_of_a_transaction_under_way(start: Start) -> None:
    """WB-009: nothing of it is left but that it failed; the next delivery runs it."""
    server = start(workers=1)
    event = Event("github", fresh("cut"), plan={"after": 500, "backend": True})
    first = Sending(server.port, event)
    backend = server.wait_for("enter").note
    server.wait_for("wrote")
    cut_backend(backend)
    assert first.answer.status in (500, 503)
    assert effects() == {}
    stored = WebhookEvent.objects.get()
    assert (stored.status, stored.attempts) == ("failed", 1)
    # The only worker goes on with a connection that works.
    assert post(server.port, event).word == "processed"
    other = Event("stripe", fresh("other"))
    assert post(server.port, other).word == "processed"
    assert_exactly_once([event, other])
    assert_quiet(server)


def test_the_database_ends_the_connection_of_a_leased_run_under_way(start: Start) -> None:
    """The handler did its work outside and does not need the connection: its end is stored."""
    server = start(workers=1, LEASE=30)
    event = Event("github", fresh("cut"), "hammer.leased", {"after": 500, "backend": True})
    first = Sending(server.port, event)
    backend = server.wait_for("enter").note
    server.wait_for("wrote")
    cut_backend(backend)
    assert (first.answer.status, first.answer.word) == (200, "processed")
    assert post(server.port, event).word == "duplicate"
    assert_exactly_once([event])
    assert_quiet(server)


@pytest.mark.parametrize(
    ("kind", "processing", "accepted"),
    [
        ("hammer.atomic", "inline", "processed"),
        ("hammer.leased", "inline", "processed"),
        ("hammer.atomic", "queued", "accepted"),
    ],
)
def test_the_database_ends_connections_between_two_deliveries(
    start: Start, kind: str, processing: str, accepted: str
) -> None:
    """As after a restart: the next delivery finds a dead connection, and is accepted all the same.

    GitHub would not send it again.
    """
    server = start(workers=1, PROCESSING=processing)
    first, second = (Event("github", fresh("idle"), kind) for _ in range(2))
    assert post(server.port, first).word == accepted
    end_idle_connections()
    assert post(server.port, second).word == accepted
    end_idle_connections()
    assert post(server.port, second).word == "duplicate"
    assert set(WebhookEvent.objects.values_list("event_id", flat=True)) == {first.id, second.id}
    assert_quiet(server)


def test_a_commit_is_cut_off(start: Start, wire: tuple[Wire, str]) -> None:
    """Whether it was applied or not, and whoever knows: one effect, and a true answer."""
    line, url = wire
    server = start(workers=1, url=url)
    sent = {moment: Event("stripe", fresh(moment)) for moment in MOMENTS}
    for moment, event in sent.items():
        line.cut(COMMIT, moment)
        first = post(server.port, event)
        if moment == "after":
            assert (first.status, first.word) == (200, "processed")
        if moment == "before":
            assert first.status in (500, 503)
        assert effects()[event.id] == (1 if first.accepted else 0)
        second = post(server.port, event)
        assert second.word == ("duplicate" if first.accepted else "processed")
    assert line.cuts == dict.fromkeys(MOMENTS, 1)
    assert_exactly_once(sent.values())
    assert_quiet(server)


def test_the_end_of_a_leased_run_is_cut_off(start: Start, wire: tuple[Wire, str]) -> None:
    """The run is over, so that is written down on a new connection, and once."""
    line, url = wire
    server = start(workers=1, url=url, LEASE=30)
    sent = []
    for moment in MOMENTS:
        for statement in (rb"INSERT INTO .*handlerrun", COMMIT):
            event = Event("stripe", fresh(moment), "hammer.leased")
            sent.append(event)
            line.cut(statement, moment)
            first = post(server.port, event)
            assert (first.status, first.word in ("processed", "duplicate")) == (200, True)
            assert post(server.port, event).word == "duplicate"
    assert line.cuts == dict.fromkeys(MOMENTS, 2)
    assert_exactly_once(sent)
    assert set(WebhookEvent.objects.values_list("attempts", flat=True)) == {1}
    assert_quiet(server)


@pytest.mark.parametrize("kind", ["hammer.atomic", "hammer.leased"])
def test_connections_break_at_any_statement(
    start: Start,
    wire: tuple[Wire, str],
    kind: str,
    size: Callable[[int, int], int],
    figures: Callable[..., None],
) -> None:
    """Promise 3: cut the connection at any statement, fail the commit: none lost, none doubled."""
    line, url = wire
    server = start(workers=4, url=url, LEASE=2, WAIT=0.2)
    sent = events(size(600, 40), kind, plan={"after": 3})
    line.cut_at_random(0.03)
    tally = Campaign(server.port, shuffled(sent, 3)).run()
    line.cut_at_random(0)
    runs = server.journal.lines("enter")
    figures(
        kind=kind,
        events=len(sent),
        cuts=dict(line.cuts),
        runs=len(runs),
        effects=effects().total(),
        **tally.figures(),
    )
    assert line.cuts.total() > 3, "nothing was cut, so nothing was shown"
    assert set(tally.statuses) <= ANSWERS
    assert tally.given_up == []
    if kind == "hammer.atomic":
        assert effects() == {event.id: 1 for event in sent}
    else:
        assert set(effects()) == {event.id for event in sent}
        assert effects().total() <= len(runs)
    assert server.journal.lines("overlap") == []
    statuses = set(WebhookEvent.objects.values_list("status", flat=True))
    assert statuses == {"processed"}
    assert WebhookEvent.objects.count() == len(sent)
    assert_quiet(server)
