"""Found by Celery's autodiscovery, and so by its workers: there messages count as lost sooner."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from django_webhook_idempotency.dispatch import sweeper

_seconds: float | None = getattr(settings, "HAMMER_MESSAGE_TIME", None)
if _seconds is not None:
    sweeper.MESSAGE_TIME = timedelta(seconds=_seconds)
