"""The thread that hands messages to a broker: whoever waits for it waits a bounded time, once."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_webhook_idempotency.dispatch.engines import courier as courier_module
from django_webhook_idempotency.dispatch.engines.courier import Courier, NotCarried

pytestmark = pytest.mark.once

TIMEOUT = 0.2  # seconds


class Broker:
    """Something to send to, which can hang, fail, be slow or work."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.threads: set[str] = set()
        self.error: Exception | None = None
        self.slowness = 0.0
        self.open = threading.Event()
        self.open.set()

    def send(self, number: int) -> Callable[[], None]:
        def send() -> None:
            self.threads.add(threading.current_thread().name)
            self.open.wait(30)
            time.sleep(self.slowness)
            if self.error is not None:
                raise self.error
            self.sent.append(number)

        return send


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.open.set()


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: Any) -> None:
    monkeypatch.setattr(courier_module, "PAUSE", 0.5)


def waited(courier: Courier, send: Callable[[], None]) -> float:
    """Hand over a message that is not carried; the seconds that this took."""
    started = time.monotonic()
    with pytest.raises(NotCarried):
        courier.carry(send, TIMEOUT)
    return time.monotonic() - started


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_is_carried_is_sent_when_carry_returns(broker: Broker) -> None:
    courier = Courier()
    for number in range(3):
        courier.carry(broker.send(number), TIMEOUT)
        assert broker.sent[-1] == number
    assert broker.threads == {"webhook-courier"}


def test_an_error_is_raised_and_the_next_does_not_wait(broker: Broker) -> None:
    courier = Courier()
    broker.error = ConnectionRefusedError()
    with pytest.raises(ConnectionRefusedError):
        courier.carry(broker.send(0), TIMEOUT)
    broker.error = None
    assert waited(courier, broker.send(1)) < TIMEOUT / 2
    time.sleep(0.15)
    assert broker.sent == []


def test_a_broker_that_hangs_costs_one_wait(broker: Broker) -> None:
    courier = Courier()
    broker.open.clear()
    assert TIMEOUT <= waited(courier, broker.send(0)) < TIMEOUT * 2
    started = time.monotonic()
    for number in range(1, 40):
        assert waited(courier, broker.send(number)) < TIMEOUT / 2
        time.sleep(0.02)
    assert time.monotonic() - started > courier_module.PAUSE
    broker.open.set()
    assert eventually(lambda: broker.sent == [0])
    # None of those that gave up was kept for later.
    time.sleep(0.1)
    assert broker.sent == [0]


def test_a_broker_that_is_back_is_found_by_a_message_that_nobody_waits_for(
    broker: Broker,
) -> None:
    courier = Courier()
    broker.error = ConnectionRefusedError()
    with pytest.raises(ConnectionRefusedError):
        courier.carry(broker.send(0), TIMEOUT)
    time.sleep(courier_module.PAUSE)
    assert waited(courier, broker.send(1)) < TIMEOUT / 2
    assert eventually(lambda: courier._open == 0)
    # Still away: nobody tries before the next pause is over.
    broker.error = None
    assert waited(courier, broker.send(2)) < TIMEOUT / 2
    time.sleep(courier_module.PAUSE)
    assert waited(courier, broker.send(3)) < TIMEOUT / 2
    assert eventually(lambda: broker.sent == [3])
    assert eventually(lambda: courier._next_try is None)
    courier.carry(broker.send(4), TIMEOUT)
    assert broker.sent == [3, 4]


def test_a_slow_broker_is_not_waited_for_again_and_again(broker: Broker) -> None:
    courier = Courier()
    broker.slowness = TIMEOUT * 1.5
    waited(courier, broker.send(0))
    time.sleep(courier_module.PAUSE + TIMEOUT)
    assert waited(courier, broker.send(1)) < TIMEOUT / 2
    assert eventually(lambda: 1 in broker.sent)
    assert waited(courier, broker.send(2)) < TIMEOUT / 2


def test_many_threads_wait_once_and_at_the_same_time(broker: Broker) -> None:
    courier = Courier()
    broker.open.clear()
    started = time.monotonic()
    threads = [
        threading.Thread(target=waited, args=(courier, broker.send(number))) for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < TIMEOUT * 3
    broker.open.set()
    assert eventually(lambda: courier._open == 0)
    assert len(broker.sent) == 1


def test_what_is_open_is_closed_when_there_is_nothing_to_carry(
    broker: Broker, monkeypatch: Any
) -> None:
    monkeypatch.setattr(courier_module, "IDLE", 0.05)
    idle = threading.Event()
    courier = Courier(on_idle=idle.set)
    courier.carry(broker.send(0), TIMEOUT)
    assert idle.wait(5)


@pytest.mark.parametrize("hangs", [True, False])
def test_a_fork_has_a_thread_of_its_own(broker: Broker, hangs: bool) -> None:
    """gunicorn's --preload, uWSGI and Celery's prefork pool."""
    courier = Courier()
    courier.carry(broker.send(0), TIMEOUT)
    if hangs:
        broker.open.clear()
        waited(courier, broker.send(1))
    with warnings.catch_warnings():
        # Python warns of just what is tested here: the child has none of the parent's threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            broker.open = threading.Event()
            broker.open.set()
            courier.carry(broker.send(2), 5)
            status = 0 if broker.sent == [0, 2] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
