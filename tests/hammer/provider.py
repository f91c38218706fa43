"""The provider's side: signed deliveries over many connections, and again what was not accepted."""

from __future__ import annotations

import heapq
import http.client
import itertools
import json
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.deliveries import body_of, signed_headers

PROVIDERS = ("sangho", "github", "stripe", "slack", "standard_webhooks")
CONNECTIONS = 32
#: How often one delivery is sent at most, and the pause before it is sent again, in seconds.
TRIES = 400
PAUSE = (0.05, 0.25)


def fresh(name: str) -> str:
    """An id that no other test has used: InnoDB takes wide locks around keys that were deleted."""
    return f"{name}-{secrets.token_hex(5)}"


@dataclass(frozen=True)
class Event:
    """An event of a provider. `plan` tells the handler what to do."""

    provider: str
    id: str
    type: str = "hammer.atomic"
    plan: dict[str, Any] = field(default_factory=dict)
    path: str = "/webhooks/{provider}/"

    @property
    def body(self) -> bytes:
        return body_of(self.provider, self.id, self.type, plan=self.plan)


@dataclass(frozen=True)
class Answer:
    """What came back. A status of 0: the connection broke before the answer was whole."""

    status: int
    word: str = ""
    retry_after: str = ""
    seconds: float = 0.0
    text: str = ""

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300


def events(
    count: int, type: str = "hammer.atomic", prefix: str = "evt", **more: Any
) -> list[Event]:
    """So many events, mixed over the five providers."""
    prefix = fresh(prefix)
    return [
        Event(provider, f"{prefix}-{provider}-{number}", type, **more)
        for number, provider in zip(range(count), itertools.cycle(PROVIDERS), strict=False)
    ]


def post(port: int, event: Event, timeout: float = 60) -> Answer:
    """Send one delivery over a connection of its own."""
    body = event.body
    headers = signed_headers(event.provider, body, event.id, event.type)
    headers["Content-Type"] = "application/json"
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", event.path.format(provider=event.provider), body, headers)
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, type(error).__name__, seconds=time.monotonic() - started)
    finally:
        connection.close()
    try:
        word = json.loads(text)["status"]
    except ValueError:
        word = text[:40]
    return Answer(
        response.status,
        word,
        response.headers.get("Retry-After", ""),
        time.monotonic() - started,
        text,
    )


@dataclass
class Tally:
    """What a campaign came to."""

    statuses: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    retried: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    processed: Counter[str] = field(default_factory=Counter)
    given_up: list[Event] = field(default_factory=list)
    strange: list[tuple[Event, Answer]] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0

    def add(self, event: Event, answer: Answer) -> None:
        self.sent += 1
        self.statuses[answer.status] += 1
        self.words[answer.word] += 1
        self.slowest = max(self.slowest, answer.seconds)
        if answer.accepted:
            self.accepted[event.id] += 1
        if answer.word == "processed":
            self.processed[event.id] += 1
        if answer.status not in (0, 200, 202, 409, 503):
            self.strange.append((event, answer))

    def figures(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "retried": self.retried,
            "statuses": dict(sorted(self.statuses.items())),
            "words": dict(sorted(self.words.items())),
            "seconds": round(self.seconds, 1),
            "per_second": round(self.sent / self.seconds, 1) if self.seconds else None,
            "slowest": round(self.slowest, 2),
        }


class Campaign:
    """Sends deliveries over many connections; each again until it is accepted, within bounds."""

    def __init__(
        self,
        port: int,
        deliveries: Iterable[Event],
        *,
        connections: int = CONNECTIONS,
        tries: int = TRIES,
        pause: tuple[float, float] = PAUSE,
    ) -> None:
        self.port = port
        self.deliveries: Iterator[Event] = iter(deliveries)
        self.connections = connections
        self.tries = tries
        self.pause = pause
        self.tally = Tally()
        self._changed = threading.Condition()
        self._again: list[tuple[float, int, int, Event]] = []
        self._order = itertools.count()
        self._open = 0
        self._fresh = True
        self._errors: list[BaseException] = []

    def run(self) -> Tally:
        started = time.monotonic()
        threads = [
            threading.Thread(target=self._work, name=f"hammer-{number}")
            for number in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.tally.seconds = time.monotonic() - started
        if self._errors:
            raise self._errors[0]
        return self.tally

    def _work(self) -> None:
        try:
            while (task := self._next()) is not None:
                tried, event = task
                answer = post(self.port, event)
                self._done(tried + 1, event, answer)
        except BaseException as error:
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()

    def _next(self) -> tuple[int, Event] | None:
        """What to send now: first what is due again, then what is new."""
        with self._changed:
            while not self._errors:
                now = time.monotonic()
                if self._again and self._again[0][0] <= now:
                    _, _, tried, event = heapq.heappop(self._again)
                    self._open += 1
                    self.tally.retried += 1
                    return tried, event
                if self._fresh:
                    new = next(self.deliveries, None)
                    if new is not None:
                        self._open += 1
                        return 0, new
                    self._fresh = False
                if not self._again and not self._open:
                    self._changed.notify_all()
                    return None
                self._changed.wait(self._again[0][0] - now if self._again else None)
            return None

    def _done(self, tried: int, event: Event, answer: Answer) -> None:
        with self._changed:
            self._open -= 1
            self.tally.add(event, answer)
            if not answer.accepted:
                if tried >= self.tries:
                    self.tally.given_up.append(event)
                else:
                    due = time.monotonic() + random.uniform(*self.pause)
                    heapq.heappush(self._again, (due, next(self._order), tried, event))
            self._changed.notify_all()


def shuffled(events: Iterable[Event], copies: int) -> list[Event]:
    """So many copies of each event, in any order."""
    deliveries = list(events) * copies
    random.shuffle(deliveries)
    return deliveries


def together(port: int, deliveries: list[Event]) -> list[Answer]:
    """Send deliveries at the same moment, each over its own connection."""
    barrier = threading.Barrier(len(deliveries))
    answers: dict[int, Answer] = {}

    def send(number: int, event: Event) -> None:
        barrier.wait()
        answers[number] = post(port, event)

    threads = [
        threading.Thread(target=send, args=(number, event))
        for number, event in enumerate(deliveries)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(len(deliveries))]


class Sending:
    """One delivery under way in a thread."""

    def __init__(self, port: int, event: Event) -> None:
        self._answer: Answer | None = None
        self._thread = threading.Thread(target=self._send, args=(port, event))
        self._thread.start()

    def _send(self, port: int, event: Event) -> None:
        self._answer = post(port, event)

    @property
    def answer(self) -> Answer:
        """The answer; waits for it."""
        self._thread.join()
        assert self._answer is not None
        return self._answer
