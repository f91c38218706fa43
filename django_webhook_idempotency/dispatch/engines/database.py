"""The embedded engine: `manage.py webhook_worker` looks into the table."""

from __future__ import annotations

from django.core.checks import CheckMessage
from django.db import connections

from ... import ledger

#: The channel on which PostgreSQL wakes the workers.
CHANNEL = "webhook_events"


class DatabaseEngine:
    """Nothing is carried anywhere: PostgreSQL rings a bell, and every worker looks now and then."""

    sends_messages = False

    def enqueue(self, pk: int) -> None:
        """Wake the workers where the database can."""
        connection = connections[ledger.alias()]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"NOTIFY {CHANNEL}")

    def check(self) -> list[CheckMessage]:
        """Nothing can be wrong beyond what Django checks of the database."""
        return []
