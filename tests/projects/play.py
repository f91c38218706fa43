"""A project in a process of its own: its settings come as JSON, its findings go out as JSON.

Run as `python -m tests.projects.play`, with what to change of the settings in PLAY_SETTINGS.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from django.conf import settings

EVENTS = 12
COPIES = 4


class Hooks:
    """A router that keeps the app in a database of its own, as WB-049 has it."""

    labels = frozenset({"django_webhook_idempotency"})

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "hooks" if model._meta.app_label in self.labels else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (db == "hooks") == (app_label in self.labels)


class EffectsToo(Hooks):
    """And what the handlers write goes to the same one."""

    labels = frozenset({"django_webhook_idempotency", "testapp"})


def configure() -> None:
    """Set a small project up from the environment."""
    options: dict[str, Any] = json.loads(os.environ["PLAY_SETTINGS"])
    settings.configure(
        **{
            "SECRET_KEY": "public-and-only-for-the-tests",
            "ALLOWED_HOSTS": ["testserver"],
            "ROOT_URLCONF": "tests.urls_receiving",
            "USE_TZ": True,
            "INSTALLED_APPS": ["django_webhook_idempotency", "tests.app"],
            "WEBHOOK_IDEMPOTENCY": {
                "PROVIDERS": {"sangho": {"SECRETS": ["whsec_play"], "WAIT": 10}}
            },
            **options,
        }
    )
    django.setup()
    logging.disable(logging.CRITICAL)


def main() -> None:
    """Migrate, deliver events that fail once, each several times at once, and count."""
    configure()
    from django.core.management import call_command
    from django.db import connections
    from django.test import Client

    from django_webhook_idempotency.handlers import webhook_handler
    from django_webhook_idempotency.models import WebhookEvent
    from tests.app.models import Effect
    from tests.deliveries import deliver

    for name, database in settings.DATABASES.items():
        if "ENGINE" in database and "dummy" not in database["ENGINE"]:
            call_command("migrate", database=name, run_syncdb=True, verbosity=0)

    @webhook_handler("sangho")
    def effect(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id)
        if event.event_type == "fails" and event.attempts == 1:
            raise ValueError("broken")

    def send(number: int) -> int:
        try:
            event_type = "fails" if number % 3 == 0 else "works"
            return int(deliver(Client(), "sangho", f"evt_{number}", event_type).status_code)
        finally:
            connections.close_all()

    numbers = list(range(EVENTS)) * COPIES
    with ThreadPoolExecutor(8) as threads:
        statuses = Counter(threads.map(send, numbers))
    # As a provider does, until every event has been acknowledged.
    for number in range(EVENTS):
        assert any(send(number) == 200 for _ in range(20)), f"event {number} is never taken"
    json.dump(
        {
            "events": WebhookEvent.objects.filter(status="processed").count(),
            "effects": sorted(Effect.objects.values_list("event_id", flat=True)),
            "errors": statuses[500],
            "naive": WebhookEvent.objects.earliest("pk").received_at.tzinfo is None,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
