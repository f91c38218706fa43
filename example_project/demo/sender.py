"""Plays the providers: signs, sends, and sends again what was not acknowledged."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from django_webhook_idempotency.providers import configured_provider

from .events import Event
from .server import Server
from .traffic import Trouble, Volley

CONNECTIONS = 32
#: Volleys under way at once.
LANES = 10
ANSWER_SECONDS = 30
LOOK_SECONDS = 0.02
#: Seconds before each redelivery. Providers wait for minutes and hours; nobody wants to watch that.
PAUSES = (0.1, 0.2, 0.4, 0.8, 1, 1, 2, 2, 2, 2)


@dataclass(frozen=True)
class Attempt:
    """One request and its answer; no status if the connection was cut before there was one."""

    event: Event
    status: int | None

    @property
    def acknowledged(self) -> bool:
        """Whether a provider would leave it at that."""
        return self.status is not None and 200 <= self.status < 300


@dataclass
class SentLedger:
    """What the providers know: every attempt, and how it went."""

    attempts: list[Attempt] = field(default_factory=list)
    #: Events in the middle of whose handler a worker was killed.
    killed: list[Event] = field(default_factory=list)
    #: Events of which some copy was never acknowledged, however often it was sent.
    given_up: list[Event] = field(default_factory=list)

    @property
    def cut(self) -> int:
        """Attempts without an answer."""
        return sum(attempt.status is None for attempt in self.attempts)


def signed_headers(event: Event, number: int) -> dict[str, str]:
    """What the provider sends with the `number`th attempt, from 0, signed at this moment."""
    provider = configured_provider(event.provider)
    if provider.scheme is None:
        raise TypeError(f"Provider {event.provider!r} has no signature scheme.")
    signature = provider.scheme.sign(
        event.body,
        provider.live_secrets()[0],
        timestamp=int(time.time()),
        message_id=event.event_id,
    )
    headers = {"Content-Type": "application/json", **event.headers, **signature}
    if event.provider == "slack" and number:
        headers |= {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": "http_error"}
    return headers


class Sender:
    """Sends a plan to a server over many connections. Await `run` once."""

    def __init__(self, server: Server, advance: Callable[[], None]) -> None:
        self.server = server
        self.advance = advance
        self.ledger = SentLedger()
        self._killing = asyncio.Lock()

    async def run(self, plan: list[Volley]) -> SentLedger:
        """Send everything; returns when all of it is acknowledged or given up."""
        volleys = iter(plan)
        limits = httpx.Limits(max_connections=CONNECTIONS)
        self.client = httpx.AsyncClient(
            base_url=self.server.url,
            limits=limits,
            timeout=ANSWER_SECONDS,
            trust_env=False,  # no proxy stands before this machine itself
        )
        async with self.client, asyncio.TaskGroup() as lanes:
            for _ in range(LANES):
                lanes.create_task(self._lane(volleys))
        return self.ledger

    async def _lane(self, volleys: Iterator[Volley]) -> None:
        for volley in volleys:
            if volley.trouble == Trouble.KILL:
                await self._kill_in_handler(volley)
            else:
                await self._deliver_together(volley.event, volley.copies)

    async def attempt(self, event: Event, number: int) -> Attempt:
        """Send one request."""
        try:
            response = await self.client.post(
                f"/webhooks/{event.provider}/",
                content=event.body,
                headers=signed_headers(event, number),
            )
            attempt = Attempt(event, response.status_code)
        except httpx.TransportError:
            attempt = Attempt(event, None)
        self.ledger.attempts.append(attempt)
        return attempt

    async def deliver(self, event: Event, first: int = 0) -> None:
        """Send one delivery, as attempt `first` and on, until it is acknowledged; within bounds."""
        for number, pause in enumerate((0, *PAUSES), first):
            await asyncio.sleep(pause)
            attempt = await self.attempt(event, number)
            if attempt.acknowledged or not self.server.is_running:
                break
        if not attempt.acknowledged:
            self.ledger.given_up.append(event)
        self.advance()

    async def _deliver_together(self, event: Event, copies: int, first: int = 0) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(copies):
                group.create_task(self.deliver(event, first))

    async def _kill_in_handler(self, volley: Volley) -> None:
        """Kill the worker that handles an event, then send the event again, and its copies."""
        event = volley.event
        async with self._killing:
            first = asyncio.create_task(self.attempt(event, 0))
            worker = None
            while worker is None and not first.done():
                await asyncio.sleep(LOOK_SECONDS)
                worker = self.server.pausing_in(event.event_id)
            if worker is not None and not first.done():
                os.kill(worker, signal.SIGKILL)
                if (await first).status is None:
                    self.ledger.killed.append(event)
        await self._deliver_together(event, volley.copies, 1)
