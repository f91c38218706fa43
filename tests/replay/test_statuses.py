"""What a replay means for an event, wherever it stands and wherever its handlers run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Ignore, Reject, Retry, Superseded
from django_webhook_idempotency.models import HandlerRun, HandlerStep, Replay, WebhookEvent
from django_webhook_idempotency.replay import Fate, Refusal, Report, replay
from django_webhook_idempotency.stores import lease_store
from tests.deliveries import body_of, deliver, signed_headers
from tests.replay.conftest import Recorder, stored
from tests.services import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True)

Again = Callable[..., Report]
Drain = Callable[[], int]
ATOMIC = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "leased"])


def good(processing: str, report: Report) -> bool:
    """Whether the only event was run again, or left to the workers who run it then."""
    fate = Fate.QUEUED if processing == "queued" else Fate.PROCESSED
    return report.is_good and report.counts == {fate: 1}


def receive(client: Client, drain: Drain, **more: Any) -> WebhookEvent:
    """Deliver an event, and run it if it is queued."""
    deliver(client, "stripe", **more)
    drain()
    return stored()


@ATOMIC
class TestUnfinished:
    @pytest.mark.parametrize(
        ("error", "status"), [(ValueError("no"), "failed"), (Reject("never"), "dead")]
    )
    def test_a_failed_or_dead_event_runs_as_after_a_redelivery(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
        error: Exception,
        status: str,
    ) -> None:
        handler = Recorder(error)
        handlers.add(handler, atomic=atomic)
        assert receive(client, drain).status == status
        assert good(processing, again())
        event = stored()
        assert (event.status, event.attempts, event.forgiven) == ("processed", 2, 1)
        assert (handler.calls, event.lane, event.last_error) == (2, None, "")
        replay = Replay.objects.get()
        assert (replay.event_id, replay.handler, replay.after) == (event.pk, "", 0)
        assert (replay.requested_by, replay.reason) == ("ann", "repaired")
        assert replay.status_before == status

    def test_what_has_succeeded_is_not_repeated(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        """Promise 11."""
        fine, broken = Recorder(), Recorder(Reject())
        handlers.add(fine, atomic=atomic)
        handlers.add(broken, atomic=atomic)
        receive(client, drain)
        assert good(processing, again())
        assert (fine.calls, broken.calls) == (1, 2)
        assert stored().status == EventStatus.PROCESSED

    def test_attempts_that_were_used_up_count_anew(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        later: Callable[[], None],
        again: Again,
        configure: Any,
        processing: str,
        atomic: bool,
    ) -> None:
        configure(MAX_ATTEMPTS=2)
        handler = Recorder(*[ValueError()] * 3)
        handlers.add(handler, atomic=atomic)
        receive(client, drain)
        later()
        drain()
        assert stored().status == EventStatus.DEAD
        report = again()
        assert stored().status == EventStatus.FAILED
        if processing == "inline":
            assert report.counts == {Fate.FAILED: 1}
        later()
        drain()
        assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 4)

    def test_a_pending_event_runs_now(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        configure: Any,
        atomic: bool,
    ) -> None:
        handler = Recorder()
        handlers.add(handler, atomic=atomic)
        configure(PROCESSING="queued")
        deliver(client, "stripe")
        WebhookEvent.objects.update(next_attempt_at=timezone.now() + timedelta(hours=1))
        configure(PROCESSING=processing)
        assert drain() == 0
        assert good(processing, again())
        assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 1)


@ATOMIC
class TestFinished:
    @pytest.mark.parametrize("count", [1, 2])
    def test_all_handlers_run_again_and_history_stays_true(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
        count: int,
    ) -> None:
        each = [Recorder() for _ in range(count)]
        for number, handler in enumerate(each):
            handlers.add(handler, atomic=atomic, name=f"h{number}")
        first = receive(client, drain)
        assert good(processing, again())
        event = stored()
        assert [handler.calls for handler in each] == [2] * count
        assert (event.status, event.attempts, event.handled_by) == ("processed", 2, "")
        assert event.processed_at is not None
        assert first.processed_at is not None
        assert event.processed_at > first.processed_at
        runs = HandlerRun.objects.order_by("number", "handler")
        assert [(run.number, run.handler, run.succeeded) for run in runs] == [
            (number, f"h{n}", True) for number in (1, 2) for n in range(count)
        ]
        assert Replay.objects.get().after == 1
        again()
        assert [handler.calls for handler in each] == [3] * count

    def test_a_copy_is_a_duplicate_again_afterwards(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        handler = Recorder()
        handlers.add(handler, atomic=atomic)
        receive(client, drain)
        again()
        assert deliver(client, "stripe").json()["status"] == "duplicate"
        assert drain() == 0
        assert handler.calls == 2

    def test_one_that_fails_now_is_unfinished_and_goes_on(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        later: Callable[[], None],
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        one, two = Recorder(None, ValueError("broken since")), Recorder()
        handlers.add(one, atomic=atomic)
        handlers.add(two, atomic=atomic)
        receive(client, drain)
        report = again()
        assert report.is_good == (processing == "queued")
        assert (stored().status, one.calls, two.calls) == (EventStatus.FAILED, 2, 2)
        later()
        drain()
        assert (stored().status, one.calls, two.calls) == (EventStatus.PROCESSED, 3, 2)

    def test_a_redelivery_runs_what_failed_in_a_replay(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        one, two = Recorder(None, ValueError("broken since")), Recorder()
        handlers.add(one, atomic=atomic)
        handlers.add(two, atomic=atomic)
        receive(client, drain)
        again()
        deliver(client, "stripe")
        drain()
        assert (stored().status, one.calls, two.calls) == (EventStatus.PROCESSED, 3, 2)

    def test_the_ignored_and_the_superseded_run_too(
        self,
        client: Client,
        handlers: Any,
        drain: Drain,
        again: Again,
        processing: str,
        atomic: bool,
    ) -> None:
        for event_id, error, status in (
            ("evt_1", Ignore(), "ignored"),
            ("evt_2", Superseded(), "superseded"),
        ):
            handler = Recorder(error)
            handlers.add(handler, atomic=atomic, pattern=event_id)
            deliver(client, "stripe", event_id, event_id)
            drain()
            event = WebhookEvent.objects.get(event_id=event_id)
            assert event.status == status
            assert good(processing, again(event))
            event.refresh_from_db()
            assert (event.status, handler.calls) == ("processed", 2)


class TestSteps:
    def test_a_finished_handler_does_its_steps_anew(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        charge = Recorder()
        handlers.add(lambda event: event.step("charge", lambda: charge(event)), atomic=False)
        receive(client, drain)
        again()
        assert charge.calls == 2
        assert HandlerStep.objects.count() == 1

    def test_an_unfinished_one_goes_on_after_them(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        charge, mail = Recorder(), Recorder(ValueError("down"))

        def handler(event: WebhookEvent) -> None:
            event.step("charge", lambda: charge(event))
            event.step("mail", lambda: mail(event))

        handlers.add(handler, atomic=False)
        receive(client, drain)
        again()
        assert (charge.calls, mail.calls) == (1, 2)
        assert stored().status == EventStatus.PROCESSED


class TestRefused:
    def refused(self, report: Report, refusal: Refusal) -> str:
        assert (report.counts, report.refusals) == ({Fate.REFUSED: 1}, {refusal: 1})
        assert not report.is_good
        assert not Replay.objects.exists()
        return report.first[0].note

    def test_without_its_body(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        handler = Recorder()
        handlers.add(handler)
        before = receive(client, drain)
        WebhookEvent.objects.update(body=None)
        assert "a copy is a duplicate" in self.refused(again(), Refusal.NO_BODY)
        assert (stored().status, stored().processed_at) == ("processed", before.processed_at)
        WebhookEvent.objects.update(status=EventStatus.DEAD)
        assert "recover_webhooks" in self.refused(again(), Refusal.NO_BODY)
        assert handler.calls == 1

    def test_where_only_unfinished_bodies_are_kept(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any
    ) -> None:
        configure(STORE_BODY="unfinished")
        handlers.add(Recorder())
        receive(client, drain)
        self.refused(again(), Refusal.NO_BODY)

    def test_an_empty_body_is_a_body(
        self, client: Client, handlers: Any, drain: Drain, again: Again
    ) -> None:
        handler = Recorder()
        handlers.add(handler)
        receive(client, drain)
        WebhookEvent.objects.update(body=b"")
        assert again().is_good
        assert handler.calls == 2

    def test_while_somebody_runs_it(
        self, client: Client, handlers: Any, again: Again, configure: Any
    ) -> None:
        configure(PROCESSING="queued")
        handlers.add(Recorder())
        deliver(client, "stripe")
        assert Rotation().claim() is not None
        self.refused(again(), Refusal.RUNNING)
        assert stored().status == EventStatus.PROCESSING

    def test_not_when_its_lease_has_run_out(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any
    ) -> None:
        configure(PROCESSING="queued")
        handler = Recorder()
        handlers.add(handler)
        deliver(client, "stripe")
        assert Rotation().claim() is not None
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.update(lease_expires_at=past)
        assert again().is_good
        assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 1)

    @pytest.mark.service("redis")
    def test_while_somebody_holds_its_lease_in_redis(
        self, client: Client, handlers: Any, drain: Drain, again: Again, configure: Any
    ) -> None:
        """Whoever runs it in a request renews its lease there, and not in the row."""
        configure(PROCESSING="queued", STORE="redis", REDIS_URL=REDIS_URL)
        handler = Recorder()
        handlers.add(handler)
        deliver(client, "stripe", f"evt_{uuid4()}")
        claim = Rotation().claim()
        assert claim is not None
        past = timezone.now() - timedelta(seconds=1)
        WebhookEvent.objects.update(lease_expires_at=past)
        self.refused(again(), Refusal.RUNNING)
        lease_store().release(claim.event.dedupe_key, claim.token)
        assert again().is_good
        assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 1)

    def test_what_has_changed_since_it_was_seen(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        handler = Recorder()
        handlers.add(handler)
        seen = receive(client, drain)
        again(seen)
        report = again(seen)
        assert report.refusals == {Refusal.CHANGED: 1}
        assert (handler.calls, Replay.objects.count()) == (2, 1)

    def test_what_is_gone(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        handlers.add(Recorder())
        seen = receive(client, drain)
        WebhookEvent.objects.filter(pk=seen.pk).delete()
        self.refused(again(seen), Refusal.GONE)

    def test_without_a_handler(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        receive(client, drain)
        self.refused(again(), Refusal.NO_HANDLER)
        handler = Recorder()
        handlers.add(handler)
        assert again().is_good
        assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 1)

    def test_a_handler_that_is_not_registered_any_more(
        self, client: Client, handlers: Any, drain: Drain, again: Again, processing: str
    ) -> None:
        old, new = Recorder(), Recorder()
        handlers.add(old, name="old", pattern="thing.happened")
        receive(client, drain)
        WebhookEvent.objects.update(event_type="other.thing")
        handlers.add(new, name="new", pattern="other.thing")
        assert "old ran it" in self.refused(again(), Refusal.VIEW)
        assert again(handler="new").is_good
        assert (old.calls, new.calls) == (1, 1)

    @ATOMIC
    @pytest.mark.parametrize("status", [200, 500])
    def test_a_decorated_view(
        self, rf: RequestFactory, handlers: Any, again: Again, atomic: bool, status: int
    ) -> None:
        """Registered handlers of the same provider have no part in what a view handled."""

        @idempotent_webhook("stripe", atomic=atomic)
        def view(request: HttpRequest) -> HttpResponse:
            return HttpResponse(status=status)

        handler = Recorder()
        handlers.add(handler)
        body = body_of("stripe", "evt_1")
        headers = signed_headers("stripe", body, "evt_1")
        view(rf.generic("POST", "/", body, "application/json", headers=headers))
        before = stored().status
        self.refused(again(), Refusal.VIEW)
        assert (stored().status, handler.calls) == (before, 0)

    def test_a_provider_that_nobody_knows(
        self, client: Client, handlers: Any, drain: Drain, again: Again
    ) -> None:
        handlers.add(Recorder())
        receive(client, drain)
        WebhookEvent.objects.update(provider="acme")
        assert "'acme' is not known" in self.refused(again(), Refusal.MISCONFIGURED)

    def test_blank_names_and_reasons(self) -> None:
        for by, reason in (("", "x"), ("x", " "), ("x", "y" * 256)):
            with pytest.raises(ValueError, match=r"by=|reason="):
                replay([], by=by, reason=reason)


def test_a_retry_that_waits_for_hours_runs_now(
    client: Client, handlers: Any, drain: Drain, again: Again, processing: str
) -> None:
    handler = Recorder(Retry(after=7200))
    handlers.add(handler)
    receive(client, drain)
    assert again().is_good
    assert (stored().status, handler.calls) == (EventStatus.PROCESSED, 2)
