"""A small shop that receives webhooks: to look at, to try out and to be hammered by tests."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("celery") is not None:
    # Django's processes send messages with the shop's app too.
    from .celery import app as celery_app

    __all__ = ["celery_app"]
