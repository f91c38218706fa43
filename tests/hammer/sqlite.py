"""How the hammer's processes use SQLite."""

from __future__ import annotations

import time

from django.db import OperationalError, connection

#: As a project would set SQLite up for a server with several workers.
SQLITE = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}


def leave_wal() -> None:
    """Give the next test the journal that SQLite starts with, when all processes have ended."""
    if connection.vendor != "sqlite":
        return
    # This process may have pages in its cache from before: nothing in the file says that they are
    # old when its journal changes.
    connection.close()
    deadline = time.monotonic() + 20
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA journal_mode=DELETE")
                return
        except OperationalError:  # a worker is still dying
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
