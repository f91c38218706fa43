"""The sweeper: whatever becomes of the messages, each due event gets one again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch import sweeper
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.serving import serve
from django_webhook_idempotency.dispatch.sweeper import MESSAGE_TIME, sweep
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.models import WebhookEvent
from tests.deliveries import deliver

from .mailbox import Mailbox
from .test_runs import Faulty, effect, stored

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def mailbox(configure: Callable[..., None]) -> Iterator[type[Mailbox]]:
    """Queue into an empty mailbox that takes everything."""
    configure(QUEUE="tests.queue.mailbox.Mailbox")
    Mailbox.room = None
    Mailbox.emptied()
    yield Mailbox
    Mailbox.room = None
    Mailbox.emptied()


def age(seconds: float, **filters: Any) -> None:
    """Make events, and the last messages to them, older."""
    for event in WebhookEvent.objects.filter(lane__isnull=False, **filters):
        for name in ("received_at", "next_attempt_at", "enqueued_at", "lease_expires_at"):
            moment: datetime | None = getattr(event, name)
            if moment is not None:
                setattr(event, name, moment - timedelta(seconds=seconds))
        event.save()


def receive(client: Client, count: int, provider: str = "stripe", prefix: str = "evt") -> None:
    for number in range(count):
        assert deliver(client, provider, f"{prefix}_{number}").json()["status"] == "accepted"


class TestWhatIsSent:
    def test_nothing_while_messages_are_on_their_way(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        handlers.add(effect)
        receive(client, 3)
        assert len(mailbox.emptied()) == 3
        age(MESSAGE_TIME.total_seconds() - 10)
        assert sweep() == 0

    def test_what_was_never_enqueued(self, client: Client, handlers: Any, mailbox: Any) -> None:
        """WB-011, WB-020: the broker was away, and the process may have died before it tried."""
        handlers.add(effect)
        mailbox.room = 0
        receive(client, 3)
        WebhookEvent.objects.update(enqueued_at=None)
        assert sweep() == 0
        mailbox.room = None
        assert sweep() == 3
        assert sorted(mailbox.emptied()) == sorted(
            WebhookEvent.objects.values_list("pk", flat=True)
        )
        assert sweep() == 0

    def test_a_message_that_the_receipt_could_not_send_is_sent_when_it_counts_as_lost(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        handlers.add(effect)
        mailbox.room = 0
        receive(client, 1)
        mailbox.room = None
        age(MESSAGE_TIME.total_seconds() + 1)
        assert sweep() == 1

    def test_a_lost_message_ever_less_often(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        """A queue that is only long is not flooded; ten minutes are the longest silence."""
        handlers.add(effect)
        receive(client, 1)
        sent_after = []
        for minute in range(1, 33):
            age(60)
            if sweep():
                sent_after.append(minute)
        assert sent_after[0] == 1
        pairs = list(pairwise(sent_after))
        assert len(pairs) >= 4
        doubled, capped = pairs[:3], pairs[3:]
        assert [pair for pair in doubled if not 2 * pair[0] <= pair[1] <= 2 * pair[0] + 1] == []
        assert {after - before for before, after in capped} <= {10, 11}

    def test_a_retry_when_it_is_due_and_not_before(
        self, client: Client, handlers: Any, mailbox: Any, later: Callable[..., None]
    ) -> None:
        handlers.add(Faulty(ValueError()))
        receive(client, 1)
        mailbox.emptied()
        serve()
        WebhookEvent.objects.update(next_attempt_at=timezone.now() + timedelta(seconds=30))
        assert sweep() == 0
        age(31)
        assert sweep() == 1
        assert sweep() == 0
        assert mailbox.emptied() == [stored().pk]
        serve()
        assert stored().status == EventStatus.PROCESSED

    def test_an_expired_lease_and_no_live_one(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        """WB-017: the worker is dead, and its message was acknowledged."""
        handlers.add(effect)
        receive(client, 1)
        mailbox.emptied()
        claim = Rotation().claim()
        lease: Any = claim.event.lease_expires_at
        age((lease - timezone.now()).total_seconds() - 5)
        assert sweep() == 0
        age(6)
        assert sweep() == 1
        assert mailbox.emptied() == [claim.event.pk]

    def test_nothing_that_is_finished_or_dead(
        self, client: Client, handlers: Any, mailbox: Any, configure: Any, later: Any
    ) -> None:
        configure(MAX_ATTEMPTS=1)
        handlers.add(effect, provider="stripe")
        handlers.add(Faulty(ValueError()), provider="slack")
        receive(client, 1)
        receive(client, 1, "slack")
        assert serve() and serve()
        assert sorted(WebhookEvent.objects.values_list("status", flat=True)) == [
            EventStatus.DEAD,
            EventStatus.PROCESSED,
        ]
        WebhookEvent.objects.update(enqueued_at=None)
        assert sweep() == 0

    def test_nothing_where_the_workers_look_by_themselves(
        self, client: Client, handlers: Any, configure: Any
    ) -> None:
        handlers.add(effect)
        receive(client, 1)
        WebhookEvent.objects.update(enqueued_at=None)
        configure(QUEUE="database")
        assert sweep() == 0
        assert stored().enqueued_at is None


class TestBounds:
    def test_a_broker_that_goes_away_ends_it_and_loses_nothing(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        handlers.add(effect)
        receive(client, 5)
        mailbox.emptied()
        WebhookEvent.objects.update(enqueued_at=None)
        mailbox.room = 2
        assert sweep() == 2
        assert WebhookEvent.objects.filter(enqueued_at__isnull=True).count() == 3
        mailbox.room = None
        assert sweep() == 3
        assert Counter(mailbox.emptied()).most_common(1)[0][1] == 1

    def test_a_message_that_failed_leaves_the_patience_as_it_was(
        self, client: Client, handlers: Any, mailbox: Any
    ) -> None:
        handlers.add(effect)
        receive(client, 1)
        age(MESSAGE_TIME.total_seconds() + 1)
        before = stored().enqueued_at
        mailbox.room = 0
        assert sweep() == 0
        assert stored().enqueued_at == before

    def test_a_flood_leaves_the_others_their_share(
        self, client: Client, handlers: Any, mailbox: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(sweeper, "SHARE", 3)
        handlers.add(effect)
        # The flood is the first in the order of the sources.
        receive(client, 10, "slack")
        receive(client, 2, "stripe", "quiet")
        mailbox.emptied()
        WebhookEvent.objects.update(enqueued_at=None)
        assert sweep(limit=5) == 5
        quiet = set(WebhookEvent.objects.filter(provider="stripe").values_list("pk", flat=True))
        assert quiet <= set(mailbox.emptied())
        assert sweep() == 7

    def test_it_ends_when_its_time_is_up(self, client: Client, handlers: Any, mailbox: Any) -> None:
        handlers.add(effect)
        receive(client, 2)
        WebhookEvent.objects.update(enqueued_at=None)
        assert sweep(max_seconds=-1) == 0
        assert sweep() == 2


@pytest.mark.parametrize("round_", range(3))
def test_two_at_once_send_no_message_twice(
    client: Client, handlers: Any, mailbox: Any, round_: int
) -> None:
    """WB-045."""
    handlers.add(effect)
    receive(client, 30)
    mailbox.emptied()
    never = {"enqueued_at": None}
    lost = {"enqueued_at": timezone.now() - timedelta(hours=1)}
    WebhookEvent.objects.update(**(never if round_ % 2 else lost))
    WebhookEvent.objects.update(next_attempt_at=timezone.now() - timedelta(hours=1, seconds=1))
    barrier, sent, errors = threading.Barrier(4), [], []

    def work() -> None:
        try:
            barrier.wait()
            sent.append(sweep())
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(Counter(mailbox.emptied()).values()) == {1}
    assert sum(sent) == 30


class TestMessagesAndRetries:
    """There is a message for each event that is due, whichever event a message runs."""

    def run_all(self) -> int:
        """Take messages as workers do until there are none; how many there were."""
        taken = 0
        while messages := Mailbox.emptied():
            for pk in messages:
                serve(pk)
                taken += 1
        return taken

    def test_a_retry_that_takes_a_message_leaves_no_event_without_one(
        self, client: Client, handlers: Any, later: Callable[..., None]
    ) -> None:
        handlers.add(Faulty(*[ValueError("first")] * 3), pattern="t.fail")
        handlers.add(effect, pattern="t.fine")
        for number in range(3):
            deliver(client, "stripe", f"failing_{number}", "t.fail")
        self.run_all()
        age(30)
        later(status=EventStatus.FAILED)
        for number in range(3):
            deliver(client, "stripe", f"fine_{number}", "t.fine")
        assert self.run_all() == 6
        assert set(WebhookEvent.objects.values_list("status", flat=True)) == {"processed"}

    def test_a_retry_that_was_announced_takes_nobodys_message(
        self, client: Client, handlers: Any, later: Callable[..., None]
    ) -> None:
        handlers.add(Faulty(ValueError("first")), pattern="t.fail")
        handlers.add(effect, pattern="t.fine")
        deliver(client, "stripe", "failing", "t.fail")
        self.run_all()
        age(30)
        later(status=EventStatus.FAILED)
        assert sweep() == 1
        deliver(client, "stripe", "fine", "t.fine")
        assert self.run_all() == 2
        assert set(WebhookEvent.objects.values_list("status", flat=True)) == {"processed"}
