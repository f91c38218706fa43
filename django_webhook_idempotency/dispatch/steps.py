"""Steps of a handler: what has been done once is remembered, so that a retry goes on after it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError

from .. import ledger
from ..exceptions import InsideTransaction, LeaseLost
from ..handlers import Handler
from ..models import HandlerStep, WebhookEvent, digest_of, displayable
from ..stores import LeaseStore
from .runs import insist

#: The longest result that is kept, in characters of JSON: a database may refuse longer ones.
MAX_RESULT = 1_000_000


@dataclass(frozen=True)
class Steps:
    """The steps of a handler under a lease: what `event.step` uses inside of `with`."""

    event: WebhookEvent
    handler: Handler
    token: str
    store: LeaseStore
    lease: timedelta
    using: str
    #: What asynchronous steps have come to and is not stored yet.
    _done: dict[str, Any] = field(default_factory=dict)
    #: Those that run now, each with the task that runs it.
    _turns: dict[str, tuple[asyncio.Lock, Any]] = field(default_factory=dict)

    def __enter__(self) -> None:
        self.event._steps = self

    def __exit__(self, *error: object) -> None:
        """Store what was done by steps that were cancelled before they could, as another failed.

        Raises the TypeError of one that cannot be kept, if nothing else is being raised.
        """
        self.event._steps = None
        problem: TypeError | None = None
        for name, result in list(self._done.items()):
            try:
                self._keep(name, result)
            except TypeError as raised:
                problem = problem or raised
        if problem is not None and error[0] is None:
            raise problem

    def run(self, name: str, function: Callable[[], Any]) -> Any:
        """Call `function` if no run has finished the step, and return its result as JSON has it.

        Raises LeaseLost before the call if somebody else runs the event by now, InsideTransaction
        where what it remembers could be undone, and TypeError for a result that is not JSON.
        """
        self._refuse_misuse(name, function)
        if _is_in_loop() or iscoroutinefunction(function):
            raise TypeError(f"Say 'await event.astep({name!r}, ...)' in an asynchronous handler.")
        done = self._find(name)
        if done is not None:
            return _value_of(done)
        self._fence()
        result = function()
        if iscoroutine(result) or isgenerator(result) or isasyncgen(result):
            if iscoroutine(result):
                result.close()
            raise TypeError(
                f"Step {name!r} has not run: what it should do is in a {type(result).__name__} "
                "that nobody runs. A coroutine wants 'await event.astep(...)'."
            )
        return self._keep(name, result)

    async def arun(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """As `run`, of a coroutine function; a second call at the same time waits for the first."""
        self._refuse_misuse(name, function)
        lock, holder = self._turns.setdefault(name, (asyncio.Lock(), None))
        if holder is asyncio.current_task():
            raise TypeError(f"Step {name!r} is inside of itself.")
        async with lock:
            self._turns[name] = lock, asyncio.current_task()
            try:
                return await self._arun_alone(name, function)
            finally:
                self._turns[name] = lock, None

    async def _arun_alone(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        if name not in self._done:  # cancelled by a time-out, say, before it could be stored
            done = await sync_to_async(self._find)(name)
            if done is not None:
                return _value_of(done)
            await sync_to_async(self._fence)()
            made: Any = function()
            # Without anything to await, what it does is done all the same.
            self._done[name] = await made if isawaitable(made) else made
        try:
            kept = await sync_to_async(self._keep)(name, self._done[name])
        except TypeError:  # it is stored, and only what it returned is not
            del self._done[name]
            raise
        del self._done[name]
        return kept

    def _refuse_misuse(self, name: Any, function: Any) -> None:
        if iscoroutine(function):
            function.close()
            raise TypeError(f"Step {name!r} wants a function, not the coroutine that it makes.")
        if not callable(function):
            raise TypeError(f"Step {name!r} wants a function without arguments.")
        if not isinstance(name, str) or not name:
            raise TypeError("A step wants a name, which tells it from the handler's other steps.")

    def _find(self, name: str) -> HandlerStep | None:
        """The finished step of that name. Raises InsideTransaction."""
        try:
            ledger.require_no_transaction(self.using)
        except InsideTransaction:
            raise InsideTransaction(
                f"event.step({name!r}) is inside of a transaction, whose rollback would forget "
                "what was done. Call it outside of transaction.atomic()."
            ) from None
        steps = HandlerStep.objects.using(self.using)
        return steps.filter(event=self.event, key=self._key(name)).first()

    def _fence(self) -> None:
        """Raise LeaseLost if the event is somebody else's; if not, it is ours for a whole lease."""
        event = self.event
        if not insist(
            self.using, lambda: self.store.renew(event.dedupe_key, self.token, self.lease)
        ):
            raise LeaseLost(f"The lease on event {event.pk} ran out.")
        events = WebhookEvent.objects.using(self.using)
        if self.store.exclusive and not events.held_by(event.pk, self.token).exists():
            raise LeaseLost(f"The lease on event {event.pk} ran out.")

    def _keep(self, name: str, result: Any) -> Any:
        """Store that the step is done, whoever holds the lease by now: it was done."""
        problem: Exception | None = None
        text = ""
        try:
            text = json.dumps(result, cls=DjangoJSONEncoder)
            if len(text) > MAX_RESULT:
                text, problem = "", ValueError(f"It takes more than {MAX_RESULT:,} characters.")
        except (TypeError, ValueError, RecursionError) as error:
            problem = error
        step = HandlerStep(
            event=self.event,
            handler=self.handler.stored_name,
            name=displayable(name),
            key=self._key(name),
            result=text,
        )
        stored = insist(self.using, lambda: self._insert(step))
        if problem is not None:
            raise TypeError(
                f"Step {name!r} is done and will not be done again, but what it returned "
                f"({type(result).__name__}) cannot be kept as JSON: a retry of the handler gets "
                f"None for it. Let the step return little, and only what JSON can hold. ({problem})"
            ) from problem
        return _value_of(stored)

    def _insert(self, step: HandlerStep) -> HandlerStep:
        """Insert the step's row; if it is there already, what it says counts."""
        with suppress(IntegrityError):
            with ledger.own_transaction(self.using):
                step.save(force_insert=True, using=self.using)
            return step
        steps = HandlerStep.objects.using(self.using)
        there = steps.filter(event=self.event, key=step.key).first()
        if there is None:
            raise LeaseLost(f"Event {self.event.pk} is gone.")
        return there

    def _key(self, name: str) -> str:
        return digest_of("step", self.handler.name, name)


def _is_in_loop() -> bool:
    """Whether this is a coroutine's thread, where the database cannot be waited for."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _value_of(step: HandlerStep) -> Any:
    return json.loads(step.result) if step.result else None
