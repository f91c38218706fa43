"""Celery apps that a test makes, among those that other tests and projects have left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery import _state


@contextmanager
def no_celery_apps() -> Iterator[None]:
    """Begin without any Celery app, and put everything back in the end."""
    before = list(_state._get_active_apps())
    default, current = _state.default_app, _state._tls.current_app
    for app in before:
        _state._deregister_app(app)
    forget_choices()
    try:
        yield
    finally:
        for app in list(_state._get_active_apps()):
            app.close()
        for app in before:
            _state._register_app(app)
        _state.set_default_app(default)
        _state._set_current_app(current)


def forget_choices() -> None:
    """Let no app be the default or the current one: Celery makes the first of a Django project so.

    Also a worker in this thread leaves its own behind.
    """
    _state.set_default_app(None)
    _state._set_current_app(None)
