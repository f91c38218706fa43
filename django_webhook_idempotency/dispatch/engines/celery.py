"""Celery: a message for each event, over whatever broker the project's Celery app uses."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from ...conf import SETTING, conf
from ...exceptions import MissingExtra
from ...names import RUN, SWEEP
from ..serving import serve
from .courier import Courier

#: How many times the patience of an acknowledgement a connection waits for its broker: the courier
#: must come back one day from one that says nothing.
PATIENCE = 2
#: Options of a transport that bound its waits, by the kind of its driver.
_TIMEOUTS = {
    "amqp": ("read_timeout", "write_timeout"),
    "redis": ("socket_timeout", "socket_connect_timeout"),
}

_HINT = (
    "Make the app in the project's celery.py and import it in the project's __init__.py; with "
    "several, call set_default() on the one that is meant."
)


def celery_app() -> Any:
    """The project's Celery app. Raises MissingExtra, or ImproperlyConfigured if there is none.

    Celery keeps the current app for each thread, and only the thread that made it has it. Unless
    the app was told of Django's settings, the others get a fallback that knows nothing of the
    project's broker.
    """
    try:
        from celery import _state, current_app
    except ImportError:
        raise MissingExtra("celery", f"{SETTING}['QUEUE'] 'celery'") from None
    for app in (current_app._get_current_object(), _state.default_app):
        if app is not None and not _is_fallback(app):
            return app
    own = [app for app in _state._get_active_apps() if not _is_fallback(app)]
    if len(own) == 1:
        return own[0]
    found = "there are several Celery apps" if own else "there is no Celery app"
    raise ImproperlyConfigured(f"{SETTING}['QUEUE'] is 'celery', and {found}. {_HINT}")


def _is_fallback(app: Any) -> bool:
    """Whether Celery made this app itself because there was none."""
    return app.main == "default" and not app.set_as_current


class Publisher:
    """Publishes over a connection of its own, which only the courier's thread touches."""

    def __init__(self) -> None:
        self._app: Any = None
        self._connection: Any = None

    def publish(self, app: Any, pk: int, timeout: float) -> None:
        """Send one message; again over a new connection if the old one was closed meanwhile."""
        if self._app is not app:
            self.close()
        is_fresh = self._connection is None
        try:
            self._send(app, pk, timeout)
        except Exception:
            self.close()
            if is_fresh:
                raise
            self._send(app, pk, timeout)

    def close(self) -> None:
        """Let the connection go without a word to a broker that may not answer."""
        connection, self._connection, self._app = self._connection, None, None
        if connection is not None:
            connection.collect(socket_timeout=0.1)

    def _send(self, app: Any, pk: int, timeout: float) -> None:
        if self._connection is None:
            self._connection, self._app = _connection(app, PATIENCE * timeout), app
        app.send_task(RUN, args=[pk], connection=self._connection, ignore_result=True, retry=False)


def _connection(app: Any, timeout: float) -> Any:
    """A connection whose every wait is bounded, also where the project bounds none."""
    connection = app.connection_for_write(connect_timeout=timeout)
    # Without a limit, kombu tries for ever to connect to a broker that refuses it.
    connection.transport_options |= {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    for option in _TIMEOUTS.get(connection.transport.driver_type, ()):
        connection.transport_options.setdefault(option, timeout)
    return connection


_publisher = Publisher()
_courier = Courier(on_idle=_publisher.close)


class CeleryEngine:
    """`django_webhook_idempotency.run` in the project's Celery app, one message for each event."""

    sends_messages = True

    def enqueue(self, pk: int) -> None:
        """Publish the primary key; run an event here where the app says `task_always_eager`."""
        app = celery_app()
        if app.conf.task_always_eager:
            serve(pk)
            return
        timeout = conf.enqueue_timeout
        _courier.carry(partial(_publisher.publish, app, pk, timeout), timeout)

    def check(self) -> list[CheckMessage]:
        """Ask for Celery, an app, and somebody who sweeps. Asks no broker."""
        try:
            app = celery_app()
        except MissingExtra as error:
            return [Error(str(error), hint="Install the extra.", id="webhooks.E031")]
        except ImproperlyConfigured as error:
            return [Error(str(error).removesuffix(f" {_HINT}"), hint=_HINT, id="webhooks.E032")]
        scheduled = {entry.get("task") for entry in app.conf.beat_schedule.values()}
        if SWEEP in scheduled or apps.is_installed("django_celery_beat"):
            return []
        return [
            Warning(
                "Nothing sweeps: a retry never becomes due, and an event whose message is lost "
                "is never run.",
                hint="Put beat_schedule() of django_webhook_idempotency.schedule into the "
                "beat_schedule of the Celery app and run Celery Beat, or install "
                "django-celery-beat and run schedule_webhooks.",
                id="webhooks.W033",
            )
        ]
