"""A worker in a process of its own whose handlers keep an order, fail and note what they do.

`python -m tests.queue.ordered_worker DIRECTORY`, with DATABASE_URL in the environment, runs what
is due until the file `stop` is there.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import django


def main(directory: Path) -> None:
    """Register the handlers and run events until told to stop."""
    django.setup()
    from django.db import DatabaseError

    from django_webhook_idempotency.dispatch.lanes import Rotation
    from django_webhook_idempotency.dispatch.queued import run_claim

    register(directory)
    rotation = Rotation()
    while not (directory / "stop").exists():
        try:
            claim = rotation.claim()
            if claim is not None:
                run_claim(claim)
        except DatabaseError:  # SQLite's one lock
            claim = None
        if claim is None:
            time.sleep(0.02)


def register(directory: Path) -> None:
    """Register an atomic handler and a leased one, each with its own order."""
    from django_webhook_idempotency.exceptions import Reject
    from django_webhook_idempotency.handlers import webhook_handler
    from tests.app.models import Effect
    from tests.hammer.journal import Journal

    journal = Journal(directory / "journal")

    def play(event: Any, kind: str) -> None:
        key = f"{kind}-{event.data['object']}"
        journal.write("enter", key, event.pk)
        time.sleep(random.uniform(0, 0.01))
        dice = random.random()
        if event.data.get("reject"):
            journal.write("leave", key, f"{event.pk} dead")
            raise Reject
        if dice < 0.15:
            journal.write("leave", key, f"{event.pk} failed")
            raise ValueError("as planned")
        Effect.objects.create(event_id=str(event.pk), name=key)
        time.sleep(random.uniform(0, 0.01))
        journal.write("leave", key, f"{event.pk} done")

    order: dict[str, Any] = {"ordering_key": "object", "version": "v", "max_attempts": 1000}
    webhook_handler("stripe", "ordered", name="atomic", **order)(
        lambda event: play(event, "atomic")
    )
    webhook_handler("stripe", "ordered", name="leased", atomic=False, **order)(
        lambda event: play(event, "leased")
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.hammer.settings")
    main(Path(sys.argv[1]))
