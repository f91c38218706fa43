"""`manage.py recover_webhooks`: ask the providers for what is not finished here."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...conf import conf
from ...recovery import LINES, Allowance, Recovery, SourceReport, recover, recoveries
from ...recovery.quarantine import reverify
from ..arguments import point_in_time, positive

#: Exit status where an API asked for a longer pause: run it again.
UNDONE = 3


class Command(BaseCommand):
    """Parses and prints; `recovery` asks and acts."""

    help = (
        "Ask providers what they sent, compare it with what was received and finished here, and "
        "get what is missing: run it again, take it in, or have it sent again. Needs the option "
        f"RECOVERY of a provider. Ends with status {UNDONE} if an API asked for a longer pause, "
        "and with 1 if one could not be asked."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        parser.add_argument(
            "providers",
            nargs="*",
            metavar="PROVIDER",
            help="Only these providers. Default: all that have a RECOVERY.",
        )
        parser.add_argument(
            "--since",
            type=point_in_time,
            metavar="WHEN",
            help="Look at what was sent since an ISO date or time, or an age (2d, 12h), and ask "
            "again for what was given up. Default: what was sent since everything was settled.",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="Ask what was sent and say what would be done, and do nothing.",
        )
        parser.add_argument(
            "--limit",
            type=positive,
            metavar="EVENTS",
            help="Get or run at most so many events. Default: no limit.",
        )
        parser.add_argument(
            "--quarantine",
            action="store_true",
            help="Ask nobody: verify once more what was refused and kept, with the secrets of now, "
            "and process what holds.",
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(
        self,
        *args: Any,
        providers: list[str],
        since: datetime | None,
        dry_run: bool,
        limit: int | None,
        quarantine: bool,
        **options: Any,
    ) -> None:
        """Recover, print what came of it, and say by the exit status whether all was done."""
        if quarantine:
            if since is not None:
                raise CommandError("--since is for what providers are asked, not for --quarantine.")
            self.verify_again(providers, limit=limit, dry_run=dry_run, **options)
            return
        problems: list[str] = []
        allowance, reports = Allowance(limit), []
        for recovery in self.recoveries(providers, problems):
            for report in recover(recovery, since=since, dry_run=dry_run, allowance=allowance):
                reports.append(report)
                if options["verbosity"] and not options["json"]:
                    self.show(report, dry_run=dry_run)
        if options["json"]:
            self.stdout.write(json.dumps([report.as_dict() for report in reports]))
        self.end(reports, problems)

    def verify_again(
        self, providers: list[str], *, limit: int | None, dry_run: bool, **options: Any
    ) -> None:
        """Verify what was refused, and print what came of it."""
        try:
            unknown = sorted(set(providers) - set(conf.providers))
            if unknown:
                raise CommandError(f"Not in the settings: {', '.join(unknown)}.")
            report = reverify(providers, limit=limit, dry_run=dry_run)
        except (ImproperlyConfigured, DatabaseError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(asdict(report)))
        elif options["verbosity"]:
            self.stdout.write(f"quarantine{', and nothing was done' if dry_run else ''}:")
            counts = {k: v for k, v in asdict(report).items() if k not in ("problems", "stopped")}
            for name, count in counts.items():
                if count or name == "looked_at":
                    self.stdout.write(f"  {name.replace('_', ' '):<12}  {count:>7,}")
        if report.problems:
            raise CommandError(" ".join(report.problems))
        if report.postponed:
            raise CommandError("Something was postponed: run it again.", returncode=UNDONE)

    def recoveries(self, providers: list[str], problems: list[str]) -> list[Recovery]:
        """What to recover; a provider that is set up wrongly keeps no other from its turn."""
        try:
            slugs = providers or list(conf.providers)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        found = []
        for slug in slugs:
            try:
                found += recoveries([slug], named=bool(providers))
            except (ImproperlyConfigured, DatabaseError) as error:
                problems.append(str(error))
        return found

    def show(self, report: SourceReport, *, dry_run: bool) -> None:
        """Print what came of one source."""
        title = f"{report.source}, sent since {report.since:%Y-%m-%d %H:%M} UTC"
        self.stdout.write(f"{title}{', and nothing was done' if dry_run else ''}:")
        width = max(map(len, LINES.values()))
        for name, words in LINES.items():
            count = getattr(report, name)
            if count or name == "found":
                self.stdout.write(f"  {words.ljust(width)}  {count:>7,}")
        if report.is_busy:
            self.stdout.write("  another run is at work on it")
        if report.is_cut:
            self.stdout.write("  the limit was reached: run it again to go on")
        if report.retry_at:
            self.stdout.write(f"  run it again after {report.retry_at:%H:%M:%S} UTC: rate limit")

    def end(self, reports: list[SourceReport], problems: list[str]) -> None:
        """Raise CommandError unless all was done."""
        problems += [f"{each.source}: {text}" for each in reports for text in each.problems]
        if problems:
            raise CommandError(" ".join(problems))
        limited = [each.source for each in reports if each.retry_at]
        if limited:
            raise CommandError(
                f"The API asks for a longer pause: {', '.join(limited)}.", returncode=UNDONE
            )
