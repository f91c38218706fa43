"""What a queue engine does, and which one the settings name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from django.core.checks import CheckMessage

from ...conf import conf, made

logger = logging.getLogger("django_webhook_idempotency")

BUILT_IN: Mapping[str, str] = {
    "database": "django_webhook_idempotency.dispatch.engines.database.DatabaseEngine",
    "celery": "django_webhook_idempotency.dispatch.engines.celery.CeleryEngine",
    "tasks": "django_webhook_idempotency.dispatch.engines.tasks.TasksEngine",
}


class QueueEngine(Protocol):
    """Brings the news that an event is due to a process that runs it.

    The event's row is the truth and the news only a hint: it may be lost, doubled or late.
    """

    #: Whether each event needs a message of its own. If so, the sweeper sends those again that
    #: were lost; if not, the workers look into the table by themselves.
    sends_messages: bool

    def enqueue(self, pk: int) -> None:
        """Pass the primary key of a due event on, within a bounded time; may raise anything."""
        ...

    def check(self) -> list[CheckMessage]:
        """What is wrong with the engine as it is set up."""
        ...


def queue_engine() -> QueueEngine:
    """The engine that `QUEUE` names. Raises ImproperlyConfigured, MissingExtra among them."""
    engine: QueueEngine = made("QUEUE", conf.queue, BUILT_IN)
    return engine


def tell(pk: int) -> bool:
    """Tell the queue of a due event, whose row is committed; False if that failed.

    Never raises: what was not told is found by the sweeper.
    """
    try:
        queue_engine().enqueue(pk)
    except Exception as error:
        logger.warning(
            "webhook not enqueued, the sweeper will: event=%s error=%s", pk, type(error).__name__
        )
        return False
    return True
