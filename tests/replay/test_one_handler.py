"""A replay of one handler: it runs, none of the others does, and they stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Ignore, Reject, Retry
from django_webhook_idempotency.models import HandlerRun, HandlerStep, Replay, WebhookEvent
from django_webhook_idempotency.replay import Fate, Refusal, Report, replay
from tests.deliveries import deliver
from tests.replay.conftest import Recorder, stored

pytestmark = pytest.mark.django_db(transaction=True)

Again = Callable[..., Report]
Drain = Callable[[], int]
Later = Callable[[], None]
ATOMIC = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])


class Crew:
    """Three handlers, a, b and c."""

    def __init__(self, handlers: Any, *, atomic: bool = True, **errors: list[Exception]) -> None:
        self.all = {name: Recorder(*errors.get(name, [])) for name in "abc"}
        for name, handler in self.all.items():
            handlers.add(handler, name=name, atomic=atomic)

    @property
    def calls(self) -> str:
        """How often each was called, as `a1 b2 c1`."""
        return " ".join(f"{name}{handler.calls}" for name, handler in self.all.items())


def receive(client: Client, drain: Drain) -> WebhookEvent:
    deliver(client, "stripe")
    drain()
    return stored()


@ATOMIC
class TestFinished:
    def test_it_alone_runs(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        crew = Crew(handlers, atomic=atomic)
        receive(client, drain)
        again(handler="b")
        assert crew.calls == "a1 b2 c1"
        assert (stored().status, stored().attempts) == (EventStatus.PROCESSED, 2)
        replay = Replay.objects.get()
        assert (replay.handler, replay.after, replay.status_before) == ("b", 1, "processed")

    def test_if_it_fails_only_it_is_tried_again(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        later: Later,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        crew = Crew(handlers, atomic=atomic)
        receive(client, drain)
        crew.all["b"].errors = [ValueError()]
        again(handler="b")
        assert stored().status == EventStatus.FAILED
        later()
        drain()
        assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a1 b3 c1")

    def test_a_handler_that_is_new_and_one_that_ran_alone(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        """What ran without a row of its own is not forgotten, and what came since has no part."""
        old, new, newer = Recorder(), Recorder(), Recorder()
        handlers.add(old, name="old", atomic=atomic)
        receive(client, drain)
        handlers.add(new, name="new", atomic=atomic)
        handlers.add(newer, name="newer", atomic=atomic)
        again(handler="new")
        assert (old.calls, new.calls, newer.calls) == (1, 1, 0)
        assert stored().status == EventStatus.PROCESSED
        again(handler="old")
        assert (old.calls, new.calls, newer.calls) == (2, 1, 0)
        again()
        assert (old.calls, new.calls, newer.calls) == (3, 2, 1)
        assert HandlerRun.objects.filter(handler="old", number=1).count() == 1

    def test_a_new_handler_stays_out_of_a_redelivery_too(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        configure: Any,
        atomic: bool,
    ) -> None:
        configure(PROCESSING="inline", WAIT=0.5)
        old, new = Recorder(None, ValueError()), Recorder()
        handlers.add(old, name="old", atomic=atomic)
        receive(client, drain)
        handlers.add(new, name="new", atomic=atomic)
        assert again(handler="old").counts == {Fate.FAILED: 1}
        deliver(client, "stripe")
        assert (stored().status, old.calls, new.calls) == (EventStatus.PROCESSED, 3, 0)

    def test_of_an_ignored_event_that_nobody_wanted(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        assert receive(client, drain).status == EventStatus.IGNORED
        crew = Crew(handlers, atomic=atomic)
        again(handler="c")
        assert crew.calls == "a0 b0 c1"
        assert stored().status == EventStatus.PROCESSED


@ATOMIC
class TestUnfinished:
    def test_others_that_gave_up_stay_so(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        later: Later,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        crew = Crew(handlers, atomic=atomic, b=[Reject()] * 2)
        assert receive(client, drain).status == EventStatus.DEAD
        report = again(handler="a")
        if processing == "inline":
            assert report.counts == {Fate.PROCESSED: 1}
        later()
        drain()
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a2 b1 c1")
        again(handler="c")
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a2 b1 c2")
        again(handler="b")
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a2 b2 c2")
        again()
        assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a2 b3 c2")

    def test_others_keep_their_time(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any,
        later: Later, atomic: bool,
    ) -> None:  # fmt: skip
        configure(PROCESSING="queued")
        crew = Crew(handlers, atomic=atomic, b=[Retry(after=7200)])
        due = receive(client, drain).next_attempt_at
        again(handler="a")
        assert (stored().status, crew.calls) == (EventStatus.FAILED, "a2 b1 c1")
        assert stored().next_attempt_at == due
        later()
        drain()
        assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a2 b2 c1")

    def test_others_have_the_attempts_that_they_had(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any,
        later: Later, atomic: bool,
    ) -> None:  # fmt: skip
        configure(PROCESSING="queued", MAX_ATTEMPTS=3)
        crew = Crew(handlers, atomic=atomic, b=[ValueError()] * 9, c=[Reject()] * 9)
        receive(client, drain)
        again(handler="a")
        again(handler="a")
        for _ in range(4):
            later()
            drain()
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a3 b3 c1")
        deliver(client, "stripe")
        drain()
        assert crew.calls == "a3 b4 c2"

    def test_an_event_that_has_not_run_yet(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any,
        atomic: bool,
    ) -> None:  # fmt: skip
        """The others are due as before; they run in an attempt of their own."""
        configure(PROCESSING="queued")
        crew = Crew(handlers, atomic=atomic)
        deliver(client, "stripe")
        soon = timezone.now() + timedelta(hours=1)
        WebhookEvent.objects.update(next_attempt_at=soon)
        again(handler="b")
        assert crew.calls == "a0 b1 c0"
        assert (stored().status, stored().next_attempt_at) == (EventStatus.PENDING, soon)
        WebhookEvent.objects.update(next_attempt_at=timezone.now())
        drain()
        assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a1 b1 c1")

    def test_two_of_them_one_after_the_other(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any,
        atomic: bool,
    ) -> None:  # fmt: skip
        """The second is asked for before the first has run: both do, and the dead one does not."""
        configure(PROCESSING="queued")
        crew = Crew(handlers, atomic=atomic, c=[Reject()])
        receive(client, drain)
        for name in "ab":
            replay(WebhookEvent.objects.all(), by="ann", reason="x", handler=name)
        drain()
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a2 b2 c1")

    def test_a_worker_that_is_lost_on_it(
        self, client: Client, handlers: Any, drain: Drain, configure: Any, later: Later,
        atomic: bool,
    ) -> None:  # fmt: skip
        configure(PROCESSING="queued", MAX_ATTEMPTS=2)
        crew = Crew(handlers, atomic=atomic, b=[Reject()])
        receive(client, drain)
        replay(WebhookEvent.objects.all(), by="ann", reason="x", handler="a")
        assert Rotation().claim() is not None
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.update(lease_expires_at=past, next_attempt_at=past)
        drain()
        assert (stored().status, crew.calls) == (EventStatus.DEAD, "a2 b1 c1")


@ATOMIC
def test_others_of_an_event_whose_workers_were_lost(
    client: Client, handlers: Any, drain: Drain, again: Again, configure: Any, atomic: bool
) -> None:
    """They have no failed run to show that they gave up."""
    configure(PROCESSING="queued", MAX_ATTEMPTS=1)
    crew = Crew(handlers, atomic=atomic)
    deliver(client, "stripe")
    for _ in "abc":
        claim = Rotation().claim()
        assert claim is not None
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.update(lease_expires_at=past, next_attempt_at=past)
    drain()
    assert (stored().status, crew.calls) == (EventStatus.DEAD, "a0 b0 c0")
    again(handler="a")
    assert (stored().status, crew.calls) == (EventStatus.DEAD, "a1 b0 c0")
    again()
    assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a1 b1 c1")


def test_a_handler_that_has_no_part_in_it(
    client: Client, handlers: Any, drain: Drain, again: Again, processing: str
) -> None:
    crew = Crew(handlers)
    receive(client, drain)
    report = again(handler="d")
    assert report.refusals == {Refusal.NO_HANDLER: 1}
    assert "a, b, c" in report.first[0].note
    assert crew.calls == "a1 b1 c1"


def test_only_its_steps_are_forgotten(
    client: Client, handlers: Any, drain: Drain, again: Again, processing: str
) -> None:
    one, two = Recorder(), Recorder()
    handlers.add(lambda event: event.step("s", lambda: one(event)), name="h", atomic=False)
    handlers.add(lambda event: event.step("s", lambda: two(event)), name="H", atomic=False)
    receive(client, drain)
    again(handler="h")
    assert (one.calls, two.calls) == (2, 1)
    assert HandlerStep.objects.count() == 2


def test_it_may_ignore_the_event_now(
    client: Client, handlers: Any, drain: Drain, again: Again, processing: str
) -> None:
    crew = Crew(handlers)
    receive(client, drain)
    crew.all["a"].errors = [Ignore()]
    again(handler="a")
    assert (stored().status, crew.calls) == (EventStatus.PROCESSED, "a2 b1 c1")
