"""`manage.py webhook_worker`: run the handlers of what was stored."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ... import ledger
from ...conf import conf
from ...dispatch.probes import Probes
from ...dispatch.worker import Ending, Worker, end_process
from ...providers import BUILT_IN
from ...retention import known_providers
from ..arguments import positive, seconds

#: Handlers at once where nothing is said. SQLite has one writer at a time.
CONCURRENCY, CONCURRENCY_SQLITE = 4, 1
GRACE = 25.0


def address(text: str) -> tuple[str, int]:
    """Read `PORT`, `HOST:PORT` or `[HOST]:PORT`."""
    found = re.fullmatch(r"(?:\[?([^\[\]\s]+?)\]?:)?(\d{1,5})", text, re.ASCII)
    if not found or int(found[2]) > 65535:
        raise ArgumentTypeError(f"{text!r} is neither a port nor HOST:PORT")
    return found[1] or "127.0.0.1", int(found[2])


class Command(BaseCommand):
    """Parses and prints; `dispatch.worker` does the work."""

    help = (
        "Run the handlers of stored webhook events: new ones, retries that are due, and events "
        "whose worker never came back. As many processes as you like can run side by side. "
        "SIGTERM and SIGINT stop it."
    )
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        parser.add_argument(
            "--once", action="store_true", help="Run what is due until nothing is, then end."
        )
        parser.add_argument(
            "--concurrency",
            type=positive,
            metavar="N",
            help="Handlers that run at once, each in a thread with a database connection of its "
            f"own. Default: {CONCURRENCY}, on SQLite {CONCURRENCY_SQLITE}, which has one writer.",
        )
        parser.add_argument(
            "--providers",
            nargs="+",
            metavar="SLUG",
            help="Only the events of these providers. Default: all.",
        )
        parser.add_argument(
            "--grace",
            type=seconds,
            default=GRACE,
            metavar="SECONDS",
            help="After a signal, the time in which running handlers may finish; then their "
            "events are given back and the process ends. A second signal does that at once. "
            "Default: %(default)g.",
        )
        parser.add_argument(
            "--probe",
            type=address,
            metavar="[HOST:]PORT",
            help="Answer /live and /ready over HTTP with 200 or 503. Default host: 127.0.0.1.",
        )

    def handle(
        self,
        *args: Any,
        providers: list[str] | None,
        concurrency: int | None,
        grace: float,
        once: bool,
        probe: tuple[str, int] | None,
        verbosity: int,
        **options: Any,
    ) -> None:
        """Run until it is told to stop."""
        self.refuse_unknown(providers)
        if concurrency is None:
            is_sqlite = connections[ledger.alias()].vendor == "sqlite"
            concurrency = CONCURRENCY_SQLITE if is_sqlite else CONCURRENCY
        worker = Worker(concurrency=concurrency, grace=grace, providers=providers, once=once)
        probes = self.probes(worker, probe)
        if verbosity:
            self.say(
                f"webhook worker started: providers={','.join(providers or ['all'])} "
                f"concurrency={concurrency} engine={conf.queue}"
                + (f" probe={probes.url}" if probes else "")
            )
        ending = worker.run()
        if probes:
            probes.stop()
        self.end(ending, verbosity)

    def refuse_unknown(self, slugs: list[str] | None) -> None:
        """Raise CommandError for a provider that nobody knows."""
        try:
            unknown = set(slugs or ()) - set(conf.providers) - set(BUILT_IN)
            known = known_providers() if unknown else []
        except (DatabaseError, ImproperlyConfigured) as error:
            raise CommandError(f"The providers cannot be told: {error}") from error
        for slug in sorted(unknown - set(known)):
            raise CommandError(f"Provider {slug!r} is not known. Known: {', '.join(known)}.")

    def probes(self, worker: Worker, address: tuple[str, int] | None) -> Probes | None:
        """Open the port that is asked for. Raises CommandError."""
        if address is None:
            return None
        host, port = address
        try:
            probes = Probes(address, {"/live": worker.is_dead, "/ready": worker.is_unready})
        except OSError as error:
            raise CommandError(f"No probe can listen on {host}:{port}: {error}") from error
        probes.start()
        return probes

    def end(self, ending: Ending, verbosity: int) -> None:
        """Say how it ended, and end the process where a handler still runs."""
        if verbosity:
            self.say(
                f"webhook worker stopped: runs={ending.runs} failed={ending.failures} "
                f"given_back={ending.given_back} left={ending.left}"
            )
        if ending.is_forced:
            end_process(1 if ending.left else 0)
        if ending.error is not None:
            raise CommandError(
                f"The worker ended: {type(ending.error).__name__}."
            ) from ending.error

    def say(self, line: str) -> None:
        """Print a line at once, whoever reads it and however it is buffered."""
        self.stdout.write(line)
        self.stdout.flush()
