"""Verifies the quarantine in a process of its own, to be killed in the middle of it."""

from __future__ import annotations

import os
import sys
import time

import django
from django.conf import settings


def main() -> None:
    """Run with the right secrets; each handler takes a moment and writes its effect."""
    django.setup()
    from django_webhook_idempotency.handlers import Handler, registry
    from django_webhook_idempotency.models import WebhookEvent
    from django_webhook_idempotency.recovery.quarantine import reverify
    from tests.app.models import Effect

    def slow(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        time.sleep(float(os.environ["HANDLER_SECONDS"]))

    registry.add(Handler(slow, "*", "*", True, "test.slow"))
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "WAIT": 30}
    report = reverify()
    sys.stdout.write(f"{report.processed} {report.duplicates} {report.postponed}\n")


if __name__ == "__main__":
    main()
