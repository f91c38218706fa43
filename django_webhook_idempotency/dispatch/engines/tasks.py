"""Django's tasks: a message for each event, in whatever backend the project has chosen."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from ...conf import SETTING, conf
from ...exceptions import MissingExtra
from .courier import Courier

#: Backends of these modules ask no broker: they run where they are called. One in the database
#: needs its caller's connection, and is there when the event's row could be committed.
_LOCAL = ("django.tasks.backends.", "django_tasks.backends.", "django_tasks_db.")
_BASE = "BaseTaskBackend"
#: Those that are no queue.
_IN_THE_REQUEST = ("ImmediateBackend", "DummyBackend")

_courier = Courier(on_idle=connections.close_all)


class TasksEngine:
    """One task for each event, in the backend `TASKS_BACKEND` of Django's `TASKS`."""

    sends_messages = True

    def enqueue(self, pk: int) -> None:
        """Enqueue the primary key. Raises MissingExtra, or the backend's own error."""
        task = _task()
        if _is_local(task.get_backend()):
            task.enqueue(pk)
        else:
            _courier.carry(partial(task.enqueue, pk), conf.enqueue_timeout)

    def check(self) -> list[CheckMessage]:
        """Ask for the framework, the backend and its queue. Enqueues nothing."""
        try:
            backend = _task().get_backend()
            backend.validate_task(_task())
        except MissingExtra as error:
            return [Error(str(error), hint="Install the extra.", id="webhooks.E034")]
        except Exception as error:
            return [
                Error(
                    f"{SETTING}['QUEUE'] is 'tasks', and the backend {conf.tasks_backend!r} does "
                    f"not take a task for the queue {conf.tasks_queue!r}: {error}",
                    hint="Is its package installed? If so, correct TASKS, or "
                    f"{SETTING}['TASKS_BACKEND'] and ['TASKS_QUEUE'].",
                    id="webhooks.E035",
                )
            ]
        package = _uninstalled(type(backend).__module__)
        if package:
            return [
                Error(
                    f"The backend {conf.tasks_backend!r} of TASKS keeps its tasks in the tables of "
                    f"{package}, which is not in INSTALLED_APPS.",
                    hint=f"Add {package!r} to INSTALLED_APPS and run migrate.",
                    id="webhooks.E035",
                )
            ]
        name = type(backend).__name__
        if name not in _IN_THE_REQUEST:
            return []
        effect = "runs events in the request" if name == _IN_THE_REQUEST[0] else "runs no event"
        return [
            Warning(
                f"{SETTING}['QUEUE'] is 'tasks', and the backend {conf.tasks_backend!r} is "
                f"{name}, which {effect}.",
                hint="Choose a backend with a queue in TASKS; tests may silence this.",
                id="webhooks.W036",
            )
        ]


def _task() -> Any:
    """The task as the settings want it sent. Raises MissingExtra."""
    try:
        from .run_task import run
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
        raise MissingExtra("tasks", f"{SETTING}['QUEUE'] 'tasks' before Django 6") from None
    return run.using(backend=conf.tasks_backend, queue_name=conf.tasks_queue)


def _uninstalled(module: str) -> str | None:
    """The package of a module if it has models and Django does not know of them."""
    package = module.partition(".")[0]
    if apps.get_containing_app_config(module) is not None or not find_spec(f"{package}.models"):
        return None
    return package


def _is_local(backend: Any) -> bool:
    return any(
        base.__module__.startswith(_LOCAL)
        for base in type(backend).__mro__
        if base.__name__ != _BASE
    )
