"""Steps of a handler: done once, remembered whoever holds the lease, never in a transaction."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test import Client, RequestFactory

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.dispatch.lanes import Rotation
from django_webhook_idempotency.dispatch.queued import run_claim
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import InsideTransaction
from django_webhook_idempotency.models import HandlerRun, HandlerStep, WebhookEvent
from tests.deliveries import body_of, deliver, signed_headers
from tests.services import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True)


class Work:
    """A step's function that counts its calls."""

    def __init__(self, result: Any = "done") -> None:
        self.result = result
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.result() if callable(self.result) else self.result


def stored() -> WebhookEvent:
    return WebhookEvent.objects.get()


def last_error() -> str:
    return stored().last_error


@pytest.fixture(params=["queued", "inline"])
def run(
    request: Any,
    client: Client,
    configure: Callable[..., None],
    drain: Callable[[], int],
    later: Callable[..., None],
) -> Callable[[], None]:
    """Give a function that runs the event once more: a worker, or a request that brings it."""
    configure(PROCESSING=request.param)

    def once() -> None:
        if request.param == "inline":
            deliver(client, "stripe")
        elif not WebhookEvent.objects.exists():
            deliver(client, "stripe")
            drain()
        else:
            later()
            drain()

    return once


class TestStep:
    def test_a_retry_goes_on_after_it(self, handlers: Any, run: Callable[[], None]) -> None:
        charge, mail = Work({"id": 7}), Work()
        seen: list[Any] = []

        def handler(event: WebhookEvent) -> None:
            seen.append(event.step("charge", charge))
            if len(seen) < 3:
                raise ValueError("down")
            event.step("mail", mail)

        handlers.add(handler, atomic=False, name="h")
        for _ in range(3):
            run()
        assert stored().status == EventStatus.PROCESSED
        assert (charge.calls, mail.calls) == (1, 1)
        assert seen == [{"id": 7}] * 3
        assert list(HandlerStep.objects.order_by("pk").values_list("handler", "name")) == [
            ("h", "charge"),
            ("h", "mail"),
        ]

    def test_a_step_that_raises_is_done_again(self, handlers: Any, run: Callable[[], None]) -> None:
        def fail() -> None:
            raise ValueError("down")

        work = Work(fail)

        def handler(event: WebhookEvent) -> None:
            event.step("s", work)

        handlers.add(handler, atomic=False)
        run()
        assert not HandlerStep.objects.exists()
        work.result = None
        run()
        assert (work.calls, stored().status) == (2, EventStatus.PROCESSED)

    def test_the_first_run_sees_what_a_retry_would(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        """What JSON changes is changed at once, where a test would show it."""
        seen: list[Any] = []

        def handler(event: WebhookEvent) -> None:
            when = datetime(2026, 1, 2, tzinfo=UTC)
            seen.append(event.step("s", lambda: {1: (None, when, "\x00\ud800")}))
            if len(seen) == 1:
                raise ValueError("down")

        handlers.add(handler, atomic=False)
        run()
        run()
        assert seen == [{"1": [None, "2026-01-02T00:00:00Z", "\x00\ud800"]}] * 2

    def test_two_handlers_may_use_one_name(self, handlers: Any, run: Callable[[], None]) -> None:
        one, two = Work(1), Work(2)
        seen: list[int] = []
        handlers.add(lambda event: seen.append(event.step("s", one)), atomic=False)
        handlers.add(lambda event: seen.append(event.step("s", two)), atomic=False)
        run()
        assert seen == [1, 2]
        assert (one.calls, two.calls) == (1, 1)

    def test_one_name_is_one_step(self, handlers: Any, run: Callable[[], None]) -> None:
        work = Work(1)
        names = ["same", "same", "same ", "SAME", "s" * 300, "s" * 301]

        def handler(event: WebhookEvent) -> None:
            for name in names:
                event.step(name, work)

        handlers.add(handler, atomic=False)
        run()
        assert stored().status == EventStatus.PROCESSED
        assert work.calls == HandlerStep.objects.count() == 5

    def test_a_result_that_is_not_json_is_not_asked_for_again(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        work = Work(object())
        seen: list[Any] = []
        handlers.add(lambda event: seen.append(event.step("pay", work)), atomic=False)
        run()
        assert stored().status == EventStatus.FAILED
        assert "Step 'pay' is done and will not be done again" in last_error()
        assert "(object) cannot be kept as JSON" in last_error()
        run()
        assert (stored().status, seen, work.calls) == (EventStatus.PROCESSED, [None], 1)

    def test_a_result_that_is_too_long_is_not_asked_for_again(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        """A database may refuse it, and the step would be done again and again."""
        work = Work("x" * 1_000_001)
        handlers.add(lambda event: event.step("export", work), atomic=False)
        run()
        assert "more than 1,000,000 characters" in last_error()
        run()
        assert (stored().status, work.calls) == (EventStatus.PROCESSED, 1)

    def test_in_threads_of_the_handler(self, handlers: Any, run: Callable[[], None]) -> None:
        works = [Work(number) for number in range(3)]
        seen: list[int] = []

        def handler(event: WebhookEvent) -> None:
            def do(number: int) -> None:
                try:
                    seen.append(event.step(f"part {number}", works[number]))
                finally:
                    connections.close_all()

            threads = [threading.Thread(target=do, args=[number]) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if HandlerRun.objects.count() == 0:
                raise ValueError("once more")

        handlers.add(handler, atomic=False)
        run()
        run()
        assert sorted(seen) == [0, 0, 1, 1, 2, 2]
        assert [work.calls for work in works] == [1, 1, 1]

    def test_it_is_committed_when_the_next_begins(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        """A process that dies in the second step has done the first."""
        found: list[int] = []

        def look() -> None:
            other = connection.copy("default")
            try:
                with other.cursor() as cursor:
                    cursor.execute("SELECT count(*) FROM django_webhook_idempotency_handlerstep")
                    found.append(cursor.fetchone()[0])
            finally:
                other.close()

        def handler(event: WebhookEvent) -> None:
            event.step("first", Work())
            event.step("second", look)

        handlers.add(handler, atomic=False)
        run()
        assert found == [1]


class TestCoroutines:
    def test_what_is_done_is_kept_though_another_fails(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        """The failure of one cancels the others, also one that has only to be stored."""
        calls: list[str] = []

        async def charge() -> str:
            calls.append("charge")
            return "charged"

        async def mail() -> None:
            calls.append("mail")
            if calls.count("mail") == 1:
                raise ValueError("no post today")

        async def handler(event: WebhookEvent) -> None:
            await asyncio.gather(event.astep("charge", charge), event.astep("mail", mail))

        handlers.add(handler, atomic=False)
        run()
        assert "no post today" in last_error()
        run()
        assert (stored().status, calls.count("charge")) == (EventStatus.PROCESSED, 1)

    def test_one_that_cannot_be_kept_hides_neither_another_nor_the_error(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        done: list[str] = []

        async def handler(event: WebhookEvent) -> None:
            go = asyncio.Event()
            begun: list[str] = []
            fails = not done

            def work(name: str, result: Any) -> Callable[[], Any]:
                async def do() -> Any:
                    begun.append(name)
                    await go.wait()
                    done.append(name)
                    return result

                return do

            async def fail() -> None:
                while fails and len(begun) < 2:
                    await asyncio.sleep(0.005)
                go.set()
                if fails:
                    raise ValueError("the real one")

            steps = [event.astep("one", work("one", object())), event.astep("two", work("two", 2))]
            await asyncio.gather(*steps, fail())

        handlers.add(handler, atomic=False)
        run()
        assert "the real one" in last_error()
        run()
        assert sorted(done) == ["one", "two"]

    def test_what_is_done_is_not_done_again_after_a_time_out(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        """It is done, and only its row waits for the thread of the database."""
        calls: list[str] = []

        async def handler(event: WebhookEvent) -> None:
            busy: list[Any] = []

            async def charge() -> str:
                calls.append("charged")
                busy.append(asyncio.ensure_future(sync_to_async(time.sleep)(0.4)))
                await asyncio.sleep(0.05)
                return "charged"

            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(event.astep("charge", charge), 0.2)
            await asyncio.gather(*busy)
            assert await event.astep("charge", charge) == "charged"

        handlers.add(handler, atomic=False)
        run()
        assert (stored().status, calls) == (EventStatus.PROCESSED, ["charged"])

    def test_the_same_step_at_the_same_time_is_done_once(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        calls: list[int] = []

        async def charge() -> str:
            calls.append(1)
            await asyncio.sleep(0.02)
            return "charged"

        async def handler(event: WebhookEvent) -> None:
            done = await asyncio.gather(*(event.astep("charge", charge) for _ in range(3)))
            assert done == ["charged"] * 3

        handlers.add(handler, atomic=False)
        run()
        assert (stored().status, calls) == (EventStatus.PROCESSED, [1])

    def test_a_step_inside_of_itself_is_refused(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        async def handler(event: WebhookEvent) -> None:
            async def again() -> None:
                await event.astep("charge", again)

            await event.astep("charge", again)

        handlers.add(handler, atomic=False)
        run()
        assert "inside of itself" in last_error()

    def test_astep(self, handlers: Any, run: Callable[[], None]) -> None:
        calls: list[str] = []
        seen: list[Any] = []

        async def charge() -> dict[str, int]:
            await asyncio.sleep(0)
            calls.append("charge")
            return {"id": 7}

        async def handler(event: WebhookEvent) -> None:
            seen.append(await event.astep("charge", charge))
            if len(seen) == 1:
                raise ValueError("down")

        handlers.add(handler, atomic=False)
        run()
        run()
        assert stored().status == EventStatus.PROCESSED
        assert (calls, seen) == (["charge"], [{"id": 7}] * 2)

    def test_a_coroutine_function_is_for_astep(
        self, handlers: Any, run: Callable[[], None]
    ) -> None:
        async def work() -> None:
            raise AssertionError

        handlers.add(lambda event: event.step("s", work), atomic=False, name="1")
        handlers.add(lambda event: event.step("s", lambda: work()), atomic=False, name="2")
        handlers.add(lambda event: event.step("s", work()), atomic=False, name="3")

        async def confused(event: WebhookEvent) -> None:
            event.step("s", Work(AssertionError))

        handlers.add(confused, atomic=False, name="4")
        run()
        errors = HandlerRun.objects.order_by("handler").values_list("error_class", "error_message")
        assert [name for name, _ in errors] == ["TypeError"] * 4
        assert ["astep" in text for _, text in errors] == [True, True, False, True]
        assert not HandlerStep.objects.exists()


class TestTransactions:
    """What a rollback would forget is not begun."""

    def test_an_atomic_handler_has_no_steps(self, handlers: Any, run: Callable[[], None]) -> None:
        work = Work()
        handlers.add(lambda event: event.step("s", work))
        run()
        assert "needs" not in last_error()
        assert "Only a handler with atomic=False has steps" in last_error()
        assert work.calls == 0

    def test_nor_has_one_beside_a_leased_one(self, handlers: Any, run: Callable[[], None]) -> None:
        work = Work()
        handlers.add(lambda event: event.step("s", Work()), atomic=False)
        handlers.add(lambda event: event.step("s", work))
        run()
        assert "Only a handler with atomic=False has steps" in last_error()
        assert work.calls == 0

    def test_nor_a_transaction_of_ones_own(self, handlers: Any, run: Callable[[], None]) -> None:
        work = Work()

        def handler(event: WebhookEvent) -> None:
            with transaction.atomic():
                event.step("s", work)

        handlers.add(handler, atomic=False)
        run()
        assert "'s') is inside of a transaction" in last_error()
        assert work.calls == 0

    def test_an_event_that_no_handler_runs_for_has_none(self) -> None:
        with pytest.raises(InsideTransaction, match="while it runs"):
            WebhookEvent().step("s", Work())


class TestFence:
    @pytest.mark.parametrize("store", ["database", "redis"])
    def test_a_stalled_worker_starts_no_step(
        self,
        client: Client,
        handlers: Any,
        later: Callable[..., None],
        store: str,
        configure: Callable[..., None],
        requires_service: Callable[[str], None],
    ) -> None:
        """Its lease ran out in the first step, and another worker has the event."""
        if store == "redis":
            requires_service("redis")
            configure(STORE="redis", REDIS_URL=REDIS_URL)
        taken: list[Any] = []
        second = Work()

        def overtake() -> str:
            WebhookEvent.objects.update(lease_token="e" * 32)
            return "first"

        def handler(event: WebhookEvent) -> None:
            taken.append(event.step("first", overtake))
            event.step("second", second)

        handlers.add(handler, atomic=False)
        deliver(client, "stripe")
        run_claim(Rotation().claim())
        assert taken == ["first"]
        assert second.calls == 0
        assert HandlerStep.objects.get().name == "first"
        assert (stored().status, stored().lease_token) == (EventStatus.PROCESSING, "e" * 32)
        later()
        claim = Rotation().claim()
        run_claim(claim)
        assert (stored().status, second.calls) == (EventStatus.PROCESSED, 1)
        assert taken == ["first", "first"]

    @pytest.mark.service("redis")
    def test_nor_does_a_stalled_request(
        self, client: Client, handlers: Any, configure: Callable[..., None]
    ) -> None:
        """Redis knows nothing of it: it forgot the first lease, say. The row knows."""
        configure(PROCESSING="inline", STORE="redis", REDIS_URL=REDIS_URL)
        second = Work()

        def handler(event: WebhookEvent) -> None:
            event.step("first", lambda: WebhookEvent.objects.update(lease_token="e" * 32))
            event.step("second", second)

        handlers.add(handler, atomic=False)
        assert deliver(client, "stripe").json()["status"] == "in_progress"
        assert second.calls == 0

    def test_the_first_that_was_stored_counts(
        self, client: Client, handlers: Any, drain: Callable[[], int]
    ) -> None:
        """A worker that stalled in a step comes back to find it done by another."""
        seen: list[str] = []

        def twice(event: WebhookEvent) -> Callable[[], str]:
            def work() -> str:
                seen.append(event.step("s", lambda: "theirs"))
                return "ours"

            return work

        handlers.add(lambda event: seen.append(event.step("s", twice(event))), atomic=False)
        deliver(client, "stripe")
        drain()
        assert seen == ["theirs", "theirs"]
        assert stored().status == EventStatus.PROCESSED


def test_a_view_of_ones_own_has_steps(configure: Any, rf: RequestFactory) -> None:
    configure(PROCESSING="inline")
    work = Work()

    @idempotent_webhook("stripe", atomic=False)
    def view(request: Any) -> HttpResponse:
        request.webhook_event.step("charge", work)
        return HttpResponse(status=500 if work.result else 200)

    body = body_of("stripe", "evt_1")
    headers = signed_headers("stripe", body, "evt_1")
    for status in (500, 200):
        work.result = status == 500
        answer = view(rf.generic("POST", "/", body, "application/json", headers=headers))
        assert answer.status_code == status
    assert work.calls == 1
