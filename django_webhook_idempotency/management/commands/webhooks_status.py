"""`manage.py webhooks_status`: what waits, how long, and whether that is still healthy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...status import Limits, Standing, Status, status
from ..arguments import duration, natural

#: Exit status where something is beyond its limit; 1 means that nobody can say.
UNHEALTHY = 2
COLUMNS = (
    "backlog",
    "pending",
    "processing",
    "failed",
    "dead",
    "oldest",
    "late",
    "in/min",
    "done/min",
)


class Command(BaseCommand):
    """Parses and prints; `status` looks."""

    help = (
        "Show for each provider what is unfinished, how long the oldest has waited, how late the "
        "next is, dead letters, and what came and was finished a minute; then which secrets are in "
        f"use. Ends with status {UNHEALTHY} if something is beyond a limit or a source silent for "
        "longer than its EXPECT_EVERY, and 1 if the database cannot be asked."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        parser.add_argument(
            "--provider",
            action="append",
            dest="providers",
            metavar="SLUG",
            help="Only this provider; can be given several times. Default: all.",
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")
        parser.add_argument(
            "--window",
            type=duration,
            default=timedelta(minutes=5),
            metavar="TIME",
            help="The time over which rates are taken, such as 5m (the default) or 1h.",
        )
        parser.add_argument(
            "--max-late",
            type=duration,
            default=timedelta(minutes=5),
            metavar="TIME",
            help="Unhealthy if an event has been due for longer: nobody runs it. Default: 5m.",
        )
        parser.add_argument(
            "--max-backlog",
            type=natural,
            metavar="EVENTS",
            help="Unhealthy if a provider has more unfinished events. Default: no limit.",
        )
        parser.add_argument(
            "--max-dead",
            type=natural,
            metavar="EVENTS",
            help="Unhealthy if a provider has more dead letters. Default: no limit.",
        )

    def handle(
        self,
        *args: Any,
        providers: list[str] | None,
        window: timedelta,
        max_late: timedelta,
        max_backlog: int | None,
        max_dead: int | None,
        **options: Any,
    ) -> None:
        """Look, print, and say by the exit status whether it is healthy."""
        try:
            found = status(window, providers or ())
        except (DatabaseError, ImproperlyConfigured) as error:
            raise CommandError(f"The status cannot be told: {error}") from error
        unknown = set(providers or ()) - set(found.providers)
        if unknown:
            raise CommandError(f"Nothing is known of {', '.join(sorted(unknown))}.")
        found.judge(Limits(max_late.total_seconds(), max_backlog, max_dead))
        if options["json"]:
            self.stdout.write(json.dumps(found.as_dict()))
        elif options["verbosity"]:
            self.table(found)
            self.secrets(found)
        if found.problems:
            raise CommandError("; ".join(found.problems), returncode=UNHEALTHY)

    def secrets(self, found: Status) -> None:
        """Print a line for each secret, by its fingerprint, and what there is to say of it."""
        for slug, contact in found.contacts.items():
            for secret in contact.secrets:
                used = "never used"
                if secret.last_used_at is not None:
                    ago = (found.checked_at - secret.last_used_at).total_seconds()
                    used = f"last used {_age(max(ago, 0.0))} ago"
                remark = secret.remark and f"; {secret.remark}"
                self.stdout.write(f"{slug}: secret {secret.fingerprint} {used}{remark}")

    def table(self, found: Status) -> None:
        """Print a row for each provider, and the total."""
        rows = [["", *COLUMNS]]
        for slug, standing in [*found.providers.items(), ("total", found.total)]:
            rows.append([slug, *_cells(standing)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for first, *cells in rows:
            aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            self.stdout.write("  ".join([first.ljust(widths[0]), *aligned]).rstrip())


def _cells(standing: Standing) -> Iterator[str]:
    for name in COLUMNS[:5]:
        yield f"{getattr(standing, name):,}"
    yield _age(standing.waiting_seconds)
    yield _age(standing.late_seconds)
    yield f"{standing.received_per_minute:,.1f}"
    yield f"{standing.finished_per_minute:,.1f}"


def _age(value: float | None) -> str:
    """A number of seconds as `1 day, 2:03:04`, and `-` for none."""
    return "-" if value is None else str(timedelta(seconds=int(value)))
