"""`manage.py purge_webhooks`: clear what the settings say is old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.utils import timezone

from ...providers import BUILT_IN
from ...retention import Kind, OutOfTime, Policy, Progress, Purge, known_providers, policy_of
from ..arguments import point_in_time, positive, seconds

#: Exit status of a purge that was stopped by its time limit: run it again.
UNDONE = 3
#: As a shell reports a process that Ctrl-C ended.
INTERRUPTED = 130
BAR = 30


def refuse_reachable(policies: list[Policy]) -> None:
    """Raise CommandError if a key would go that a delivery can still ask for."""
    now = timezone.now()
    problems = [
        f"Provider {policy.provider!r} can send an event again for {_age(now - policy.reachable)}, "
        f"and keys would be kept for {_age(now - policy.keys)}."
        for policy in policies
        if not policy.is_safe
    ]
    if problems:
        raise CommandError(
            f"Nothing was deleted. {' '.join(problems)} Keep keys longer, or pass --force."
        )


def _age(duration: timedelta) -> str:
    """A duration as `30 days` or `2 days, 12:00:00`."""
    return str(timedelta(seconds=round(duration.total_seconds()))).removesuffix(", 0:00:00")


class Command(BaseCommand):
    """Parses and prints; `retention` does the work."""

    help = (
        "Delete webhook events, bodies and deliveries that are older than the settings keep them. "
        "Never touches an unfinished event. Can be stopped at any time and started again."
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
        parser.add_argument(
            "--before",
            type=point_in_time,
            metavar="WHEN",
            help="Clear everything received before an ISO date or time, or older than an age "
            "(90d, 12h), whatever the settings say.",
        )
        parser.add_argument(
            "--batch-size",
            type=positive,
            metavar="ROWS",
            help="Rows in one transaction. Default: what suits the database.",
        )
        parser.add_argument(
            "--pause",
            type=seconds,
            metavar="SECONDS",
            help="Rest between two transactions. Default: what suits the database.",
        )
        parser.add_argument(
            "--max-seconds",
            type=seconds,
            metavar="SECONDS",
            help=f"Stop after this time, with exit status {UNDONE} if something is left.",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Count what would go, and leave it."
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="Also delete keys inside of their provider's window: an event that the provider "
            "sends again after that takes effect a second time.",
        )

    def handle(
        self,
        *args: Any,
        providers: list[str] | None,
        before: datetime | None,
        force: bool,
        dry_run: bool,
        verbosity: int,
        **options: Any,
    ) -> None:
        """Count or purge, then print the table."""
        policies = self.policies(providers, before)
        if not force:
            refuse_reachable(policies)
        purge = Purge(
            policies,
            batch_size=options["batch_size"],
            pause=options["pause"],
            max_seconds=options["max_seconds"],
        )
        if dry_run:
            self.table("would go", purge.count(), verbosity)
            return
        problem = self.run(purge, show=verbosity > 0 and self.stdout.isatty())
        self.table("gone", purge.removed, verbosity)
        if problem is not None:
            raise problem

    def policies(self, slugs: list[str] | None, before: datetime | None) -> list[Policy]:
        """What to clear. Raises CommandError for a provider that nobody knows."""
        known = known_providers()
        for slug in slugs or ():
            if slug not in known and slug not in BUILT_IN:
                raise CommandError(f"Provider {slug!r} is not known. Known: {', '.join(known)}.")
        now = timezone.now()
        try:
            return [policy_of(slug, now, before) for slug in dict.fromkeys(slugs or known)]
        except ImproperlyConfigured as error:
            raise CommandError(f"Nothing was deleted. {error}") from error

    def run(self, purge: Purge, *, show: bool) -> CommandError | None:
        """Purge until all is done or something stops it; returns what did."""
        again = "Run it again to go on."
        try:
            for progress in purge.steps():
                if show:
                    self.bar(progress)
        except OutOfTime as error:
            return CommandError(f"{error} {again}", returncode=UNDONE)
        except KeyboardInterrupt:
            return CommandError(f"Interrupted. {again}", returncode=INTERRUPTED)
        except DatabaseError as error:
            return CommandError(f"The database stopped the purge: {error}. {again}")
        finally:
            if show:
                self.stdout.write("\r\033[K", ending="")
        return None

    def bar(self, progress: Progress) -> None:
        """Draw the bar over itself."""
        full = round(progress.share * BAR)
        self.stdout.write(
            f"\r[{'#' * full}{'.' * (BAR - full)}] {progress.share:4.0%} "
            f"{progress.provider} {progress.kind}\033[K",
            ending="",
        )
        self.stdout.flush()

    def table(self, title: str, counts: Mapping[str, Counter[Kind]], verbosity: int) -> None:
        """Print what went, or would, by provider and kind."""
        if verbosity < 1:
            return
        total = sum(counts.values(), Counter[Kind]())
        rows = [
            [title, *Kind],
            *([slug, *(f"{count[kind]:,}" for kind in Kind)] for slug, count in counts.items()),
            ["total", *(f"{total[kind]:,}" for kind in Kind)],
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for first, *cells in rows:
            aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            self.stdout.write("  ".join([first.ljust(widths[0]), *aligned]))
