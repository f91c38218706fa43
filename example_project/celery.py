"""The shop's Celery app: `celery --app example_project worker`, and `… beat`.

Only with WEBHOOK_QUEUE=celery, and Celery installed.
"""

from __future__ import annotations

import os

from celery import Celery

from django_webhook_idempotency.schedule import beat_schedule

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

app = Celery("example_project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = beat_schedule()
app.autodiscover_tasks()
