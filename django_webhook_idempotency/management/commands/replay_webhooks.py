"""`manage.py replay_webhooks`: run the handlers of stored events again."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...enums import EventStatus
from ...exceptions import StoreUnavailable
from ...replay import Choice, Line, Preview, Replayer, Report, Request, UnknownEvents, preview
from ...replay.running import TIMEOUT
from ..arguments import (
    natural,
    point_in_time,
    positive,
    positive_number,
    seconds,
    type_pattern,
)

#: As a shell reports a process that Ctrl-C ended.
INTERRUPTED = 130
#: Lines of a preview that are printed.
SHOWN = 20


class Command(BaseCommand):
    """Parses and prints; `replay` does the work."""

    help = (
        "Run the handlers of stored events again. Without --status or an event's name, failed and "
        "dead ones are chosen. Of an unfinished event only those handlers run that have not "
        "succeeded yet; of a finished one, all. Ends with status 1 if anything failed or was "
        "refused."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        self.add_choice(parser)
        parser.add_argument(
            "--handler",
            default="",
            metavar="NAME",
            help="Run only this handler, also if it has succeeded, and none of the others.",
        )
        parser.add_argument(
            "--canary",
            action="store_true",
            help="Run the first event of each group (same errors in the same handlers; without an "
            "error, same provider and type), and the others of it only if that succeeds.",
        )
        parser.add_argument(
            "--timeout",
            type=seconds,
            default=TIMEOUT,
            metavar="SECONDS",
            help="How long --canary waits for the end of an event that a worker runs. "
            "Default: %(default)g.",
        )
        parser.add_argument(
            "--rate", type=positive_number, metavar="N", help="At most so many events a second."
        )
        parser.add_argument(
            "--limit", type=positive, metavar="EVENTS", help="Only the oldest so many."
        )
        parser.add_argument(
            "--reason", default="", metavar="TEXT", help="Why; kept with each event. Required."
        )
        parser.add_argument(
            "--by", default="", metavar="NAME", help="Who asks for it. Default: your login name."
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Count what is chosen, and touch nothing."
        )
        parser.add_argument("--yes", action="store_true", help="Do not ask.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def add_choice(self, parser: CommandParser) -> None:
        """Declare what events can be chosen by."""
        chosen = parser.add_argument_group("which events", "All that is given has to hold.")
        chosen.add_argument(
            "--number", type=natural, action="append", default=[], dest="numbers", metavar="N",
            help="Our own number of an event; can be given several times.",
        )  # fmt: skip
        chosen.add_argument(
            "--event", action="append", default=[], dest="event_ids", metavar="ID",
            help="The provider's id of an event; can be given several times.",
        )  # fmt: skip
        chosen.add_argument(
            "--provider", action="append", default=[], dest="providers", metavar="SLUG",
            help="Only this provider; can be given several times.",
        )  # fmt: skip
        chosen.add_argument(
            "--type", type=type_pattern, action="append", default=[], dest="types",
            metavar="PATTERN",
            help="Only this type: a full one, 'invoice.*' or '*'; can be given several times.",
        )  # fmt: skip
        chosen.add_argument(
            "--status", action="append", default=[], dest="statuses", choices=EventStatus.values,
            help="Only events that stand so; can be given several times. Default: failed, dead.",
        )  # fmt: skip
        chosen.add_argument("--scope", metavar="SCOPE", help="Only this scope.")
        chosen.add_argument(
            "--since", type=point_in_time, metavar="WHEN",
            help="Received at or after an ISO date or time, or no longer ago than an age (12h).",
        )  # fmt: skip
        chosen.add_argument(
            "--before", type=point_in_time, metavar="WHEN", help="Received before; as --since."
        )
        chosen.add_argument(
            "--error", default="", metavar="CLASS",
            help="Only events whose handlers failed with this class of error the last time.",
        )  # fmt: skip
        chosen.add_argument(
            "--error-in", default="", metavar="HANDLER", help="Only those that failed in it."
        )

    def handle(self, *args: Any, limit: int | None, dry_run: bool, **options: Any) -> None:
        """Count, ask, replay, and print what became of it."""
        choice = self.choice(options)
        request = None if dry_run else self.request(options)
        as_json, quiet = options["json"], options["verbosity"] < 1
        try:
            found = preview(choice)
        except UnknownEvents as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"The events cannot be chosen: {error}") from error
        if not (as_json or quiet):
            self.table(found, limit)
        if request is None:
            if as_json:
                self.stdout.write(json.dumps({"preview": found.as_dict()}))
            return
        if found.total and not options["yes"]:
            self.ask(found)
        replayer = Replayer(
            request,
            canary=options["canary"],
            timeout=options["timeout"],
            rate=options["rate"],
        )
        problem = self.run(replayer, choice, limit, show=not (as_json or quiet))
        report = replayer.report
        if as_json:
            both = {"preview": found.as_dict(), "report": report.as_dict()}
            self.stdout.write(json.dumps(both))
        elif not quiet:
            self.summary(report)
        if problem is not None:
            raise problem
        if not report.is_good:
            raise CommandError("Not every event could be run again with success.")

    def choice(self, options: dict[str, Any]) -> Choice:
        """What to choose by. Raises CommandError if that is everything."""
        names = (
            "numbers", "event_ids", "providers", "types", "statuses", "scope", "since", "before",
            "error", "error_in",
        )  # fmt: skip
        lists = {"numbers", "event_ids", "providers", "types", "statuses"}
        given: dict[str, Any] = {
            name: tuple(options[name]) if name in lists else options[name] for name in names
        }
        choice = Choice(**given)
        if choice.is_empty:
            raise CommandError("Say which events: --status, --provider, --event or another.")
        return choice

    def request(self, options: dict[str, Any]) -> Request:
        """Who asks, and why. Raises CommandError where one is missing."""
        by = options["by"]
        if not by:
            # A container may know no name for its user.
            with suppress(OSError, KeyError, ImportError):
                by = getpass.getuser()
        if not by.strip():
            raise CommandError("Say who asks for it: --by NAME.")
        if not options["reason"].strip():
            raise CommandError("Say why: --reason TEXT.")
        try:
            return Request(by, options["reason"], options["handler"])
        except ValueError as error:
            raise CommandError(str(error)) from error

    def ask(self, found: Preview) -> None:
        """Ask whether to go on. Raises CommandError for a no, and where nobody can be asked."""
        if not sys.stdin.isatty():
            raise CommandError("Nobody can be asked here: pass --yes. Nothing was touched.")
        # Not among the output, which may be one document, or go to a file.
        self.stderr.write(f"Run {found} events again? [y/N] ", str, ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was touched.")

    def run(
        self, replayer: Replayer, choice: Choice, limit: int | None, *, show: bool
    ) -> CommandError | None:
        """Replay until all is done or something stops it; returns what did."""
        try:
            for line in replayer.lines(islice(choice.events(), limit)):
                if show:
                    self.line(line)
        except KeyboardInterrupt:
            return CommandError("Interrupted. Run it again to go on.", returncode=INTERRUPTED)
        except (DatabaseError, StoreUnavailable) as error:
            return CommandError(f"The replay was stopped: {type(error).__name__}: {error}")
        return None

    def line(self, line: Line) -> None:
        """Print what became of one event."""
        note = f" ({line.note})" if line.note else ""
        event_id = printable(line.event_id)
        self.stdout.write(f"#{line.pk} {line.provider} {event_id}: {line.fate.label}{note}")

    def table(self, found: Preview, limit: int | None) -> None:
        """Print how many events are chosen, by provider, status and type."""
        only = f"; the oldest {limit:,} are run" if limit is not None else ""
        self.stdout.write(f"{found} events chosen{only}.")
        self.columns([(str(n), *map(printable, kind)) for kind, n in _most(found)])
        if len(found.kinds) > SHOWN:
            self.stdout.write(f"  and {len(found.kinds) - SHOWN:,} more kinds")

    def columns(self, rows: Sequence[tuple[str, ...]]) -> None:
        """Print rows whose cells stand below one another, the first one to the right."""
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = [cell.ljust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            self.stdout.write("  ".join(["", first.rjust(widths[0]), *cells]).rstrip())

    def summary(self, report: Report) -> None:
        """Print the numbers, and why events were refused."""
        counts = [f"{fate.label}: {count:,}" for fate, count in report.counts.items()]
        self.stdout.write(", ".join(counts) or "Nothing to do.")
        for refusal, count in report.refusals.items():
            self.stdout.write(f"  refused, {refusal.label}: {count:,}")


def _most(found: Preview) -> list[tuple[tuple[str, ...], int]]:
    return [(tuple(kind), count) for kind, count in found.kinds.most_common(SHOWN)]


def printable(text: str) -> str:
    """Text from outside, fit for a terminal."""
    return (text if text.isprintable() else ascii(text)) or "-"
