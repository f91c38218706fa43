"""The Celery app of the hammer's project, set up as a project of its own would do it."""

from __future__ import annotations

import os

from celery import Celery
from django.conf import settings

from django_webhook_idempotency.names import SWEEP
from django_webhook_idempotency.schedule import beat_schedule

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.hammer.settings")

app = Celery("hammer")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = beat_schedule()
# A test cannot wait for ten seconds each time.
app.conf.beat_schedule[SWEEP]["schedule"] = getattr(settings, "HAMMER_SWEEP_EVERY", 10)
