"""The tasks that Celery's `autodiscover_tasks` finds.

Other task queues look for modules of this name too, so it can be imported without Celery.
"""

from __future__ import annotations

import logging
import random
import time
from importlib.util import find_spec

if find_spec("celery") is not None:
    from celery import shared_task
    from celery.exceptions import Reject
    from django.db import DatabaseError, close_old_connections

    from .dispatch.serving import serve
    from .dispatch.sweeper import sweep
    from .exceptions import StoreUnavailable
    from .names import PURGE, RECOVER, RUN, SWEEP
    from .recovery import recover_all
    from .retention import OutOfTime, purge_known

    logger = logging.getLogger("django_webhook_idempotency")

    #: Seconds for which a message is held back after an error of the database: the shortest and
    #: the longest. Without a pause it would come back at once, and all of them all the time.
    PAUSE = (0.5, 1.5)
    #: Seconds after which a purge leaves the rest for the next one.
    PURGE_SECONDS = 600.0

    # Acknowledged late, and given back if the worker is killed: what loses its message waits for
    # the sweeper. Celery retries nothing: when an event runs again stands in its row.
    @shared_task(  # type: ignore[untyped-decorator]
        name=RUN,
        acks_late=True,
        reject_on_worker_lost=True,
        ignore_result=True,
        max_retries=0,
    )
    def run_event(pk: int | None = None) -> None:
        """Run one due event: the one of the message, or another whose turn it is.

        While the database or the lease store is away the broker keeps the message.
        """
        close_old_connections()
        try:
            serve(pk)
        except (DatabaseError, StoreUnavailable) as error:
            logger.warning(
                "webhook message given back to the broker: event=%s error=%s",
                pk,
                type(error).__name__,
            )
            time.sleep(random.uniform(*PAUSE))  # noqa: S311
            raise Reject(type(error).__name__, requeue=True) from error
        finally:
            close_old_connections()

    @shared_task(name=SWEEP, ignore_result=True)  # type: ignore[untyped-decorator]
    def sweep_events() -> None:
        """Send a message for each due event that has none on its way."""
        close_old_connections()
        try:
            sent = sweep()
        except DatabaseError as error:
            logger.warning("webhook sweep failed, the next will do: %s", type(error).__name__)
            return
        finally:
            close_old_connections()
        if sent:
            logger.info("webhook sweep sent %s messages", sent)

    @shared_task(name=RECOVER, ignore_result=True)  # type: ignore[untyped-decorator]
    def recover_events() -> None:
        """Do what `manage.py recover_webhooks` does; the log says what could not be done."""
        close_old_connections()
        try:
            recover_all()
        finally:
            close_old_connections()

    @shared_task(name=PURGE, ignore_result=True)  # type: ignore[untyped-decorator]
    def purge_rows(max_seconds: float = PURGE_SECONDS) -> None:
        """Do what `manage.py purge_webhooks` does, for a bounded time."""
        close_old_connections()
        try:
            purge_known(max_seconds)
        except OutOfTime as error:
            logger.warning("webhook purge out of time: %s The next purge goes on.", error)
        finally:
            close_old_connections()
