"""`manage.py adopt_webhooks`: take over the ids that an existing dedupe table remembers."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, tzinfo
from typing import Any, TextIO

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ...adopt import (
    AdoptError,
    Adoption,
    Columns,
    DjStripe,
    Report,
    Scopes,
    Sheet,
    Table,
    wrong_scope,
)
from ...providers import BUILT_IN, Provider, configured_provider
from ...providers.keyed import Keyed
from ...providers.stripe import Stripe
from ...retention import known_providers
from ..arguments import delimiter, time_zone

#: As a shell reports a process that Ctrl-C ended.
INTERRUPTED = 130
TABLE, DJSTRIPE = "table", "djstripe"


class Command(BaseCommand):
    """Parses and prints; `adopt` does the work."""

    help = (
        "Take over the ids of events that were processed before this app received them, so that a "
        "copy of one is a duplicate. Changes nothing that is here already. Can be stopped at any "
        "time and started again."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        parser.add_argument("provider", metavar="PROVIDER", help="Whose events they are.")
        parser.add_argument(
            "--from", required=True, dest="source", metavar="SOURCE",
            help=f"'{TABLE}' for a table, '{DJSTRIPE}' for dj-stripe's events, or the path of a "
            "CSV file with the columns in its first line, '-' for standard input.",
        )  # fmt: skip
        parser.add_argument(
            "--database", default="default", metavar="ALIAS",
            help="The database of the table. Default: %(default)s.",
        )  # fmt: skip
        parser.add_argument(
            "--table", default="processed_webhook_events", metavar="NAME",
            help="The table; its id column should have an index. Default: %(default)s.",
        )  # fmt: skip
        defaults = Columns()
        for name, what in (("id", "id"), ("type", "type"), ("time", "time of processing")):
            empty = "" if name == "id" else " Empty if there is none."
            parser.add_argument(
                f"--{name}-column", default=getattr(defaults, name), metavar="NAME",
                help=f"The column with an event's {what}.{empty} Default: %(default)s.",
            )  # fmt: skip
        self.add_scopes(parser)
        parser.add_argument(
            "--time-zone", default="UTC", type=time_zone, metavar="NAME",
            help="That of times which do not say theirs. Default: %(default)s.",
        )  # fmt: skip
        parser.add_argument(
            "--delimiter", default=",", type=delimiter, metavar="MARK",
            help="Between the cells of a CSV line.",
        )  # fmt: skip
        parser.add_argument(
            "--own-account", action="append", default=[], dest="own_accounts", metavar="ACCT",
            help="Your own Stripe account, for dj-stripe's rows that do not hold the whole event; "
            "can be given several times.",
        )  # fmt: skip
        parser.add_argument(
            "--all", action="store_true", dest="everything",
            help="Take over also what is older than its key is kept; the next purge deletes that.",
        )  # fmt: skip
        parser.add_argument(
            "--unlisted", action="store_true",
            help="The provider is only named in @idempotent_webhook.",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="Count, and write nothing.")
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def add_scopes(self, parser: CommandParser) -> None:
        """Declare what tells equal ids apart."""
        scopes = parser.add_argument_group(
            "scopes",
            "A key is made of provider, scope and id: with the wrong scope, no copy is known. A "
            "scope is the provider's own (GitHub: the hook's id; Stripe: '<account>:<mode>'; "
            "Slack: the app's id), after the one in our URL if that names one.",
        )
        own = scopes.add_mutually_exclusive_group()
        own.add_argument("--scope", metavar="SCOPE", help="The provider's own, of all rows.")
        own.add_argument("--scope-column", default="", metavar="NAME", help="Its column.")
        url = scopes.add_mutually_exclusive_group()
        url.add_argument(
            "--url-scope", default="", metavar="SCOPE",
            help="The one in our URL, webhooks/<provider>/<scope>/, of all rows.",
        )  # fmt: skip
        url.add_argument("--url-scope-column", default="", metavar="NAME", help="Its column.")

    def handle(self, *args: Any, provider: str, source: str, **options: Any) -> None:
        """Take over what the source has, and print the numbers."""
        try:
            known = self.provider(provider, unlisted=options["unlisted"])
            adoption = Adoption(known, options["everything"], options["dry_run"])
            with self.opened(source, known, options) as rows:
                problem = self.run(adoption, rows, show=self.stdout.isatty())
        except (AdoptError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(adoption.report.as_dict()))
        elif options["verbosity"]:
            self.summary(adoption)
        if problem is not None:
            raise problem
        if not adoption.report.is_good:
            raise CommandError("Some rows could not be read.")

    def provider(self, slug: str, *, unlisted: bool) -> Provider:
        """The provider. Raises CommandError for one that nobody knows."""
        known = {*known_providers(), *BUILT_IN}
        if slug not in known and not unlisted:
            raise CommandError(
                f"Provider {slug!r} is not known. Known: {', '.join(sorted(known))}. If only "
                "@idempotent_webhook names it, pass --unlisted."
            )
        return configured_provider(slug, default=Keyed)

    @contextmanager
    def opened(self, source: str, provider: Provider, options: dict[str, Any]) -> Iterator[Any]:
        """What reads the rows. Raises CommandError if the options do not go with it."""
        if options["database"] not in connections:
            raise CommandError(f"No database {options['database']!r} is in DATABASES.")
        self.check_scopes(provider, options, in_rows=source == DJSTRIPE)
        if source == DJSTRIPE:
            yield self.djstripe(provider, options)
            return
        columns = Columns(options["id_column"], options["type_column"], options["time_column"])
        scopes = Scopes(
            options["scope"] or "",
            options["scope_column"],
            options["url_scope"],
            options["url_scope_column"],
            needs_own=bool(provider.scoped_by),
        )
        zone: tzinfo = options["time_zone"] or UTC
        if source == TABLE:
            yield Table(options["database"], options["table"], columns, scopes, zone).rows()
            return
        with _file(source) as file:
            yield Sheet(file, columns, scopes, zone, options["delimiter"]).rows()

    def check_scopes(self, provider: Provider, options: dict[str, Any], *, in_rows: bool) -> None:
        """Raise CommandError for scopes that no delivery can have."""
        scope, in_rows = options["scope"], in_rows or bool(options["scope_column"])
        if scope is None and not in_rows and provider.scoped_by:
            raise CommandError(
                f"Provider {provider.key!r} tells equal ids apart by {provider.scoped_by}. Name it "
                "with --scope or --scope-column; without it no copy would be known."
            )
        wrong = wrong_scope(provider, None if in_rows else scope or "", options["url_scope"])
        if wrong:
            raise CommandError(f"No copy would be known: {wrong}.")

    def djstripe(self, provider: Provider, options: dict[str, Any]) -> Any:
        """What reads dj-stripe's rows."""
        if not isinstance(provider, Stripe):
            raise CommandError(f"dj-stripe has events of Stripe, and none of {provider.key!r}.")
        if options["scope"] is not None or options["scope_column"] or options["url_scope_column"]:
            raise CommandError(
                "The scopes of dj-stripe's events are in its rows: leave --scope, --scope-column "
                "and --url-scope-column out."
            )
        return DjStripe(
            options["database"], provider, options["own_accounts"], options["url_scope"]
        ).rows()

    def run(self, adoption: Adoption, rows: Any, *, show: bool) -> CommandError | None:
        """Adopt until all is done or something stops it; returns what did."""
        try:
            for report in adoption.steps(rows):
                if show:
                    self.stdout.write(f"\r{report.read:,} read\033[K", ending="")
                    self.stdout.flush()
        except KeyboardInterrupt:
            return CommandError("Interrupted. Run it again to go on.", returncode=INTERRUPTED)
        except AdoptError as error:
            return CommandError(str(error))
        except DatabaseError as error:
            return CommandError(f"The database stopped it: {error} Run it again to go on.")
        finally:
            if show:
                self.stdout.write("\r\033[K", ending="")
        return None

    def summary(self, adoption: Adoption) -> None:
        """Print the numbers, and where the first bad rows stand."""
        report: Report = adoption.report
        word = "to adopt" if adoption.dry_run else "adopted"
        self.stdout.write(
            f"{report.read:,} read, {report.adopted:,} {word}, {report.known:,} known"
        )
        if report.unfinished:
            self.stdout.write(f"  of the known, {report.unfinished:,} are still to be run here")
        for why, count in report.skipped.most_common():
            self.stdout.write(f"  {count:,} skipped: {why}")
        for bad in report.first:
            self.stdout.write(f"  {bad.place}: {bad.why}")


@contextmanager
def _file(path: str) -> Iterator[TextIO]:
    """A CSV file, or standard input for `-`. Raises CommandError."""
    if path == "-":
        yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
        return
    try:
        file = open(path, encoding="utf-8-sig", newline="")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"{path!r} cannot be read: {error.strerror}.") from error
    with file:
        yield file
