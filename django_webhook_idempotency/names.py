"""The names under which Celery knows the tasks: messages and schedules carry them."""

from __future__ import annotations

#: Run one due event.
RUN = "django_webhook_idempotency.run"
#: Send messages again that were lost, and those of what is due.
SWEEP = "django_webhook_idempotency.sweep"
#: Get what providers sent and what is not finished here.
RECOVER = "django_webhook_idempotency.recover"
#: Delete what the settings say is old.
PURGE = "django_webhook_idempotency.purge"
