"""The demo from its fresh database to its verdict."""

from __future__ import annotations

import asyncio
import secrets
import signal
from argparse import Namespace
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connections
from rich.console import Console

from .audit import count, problems
from .report import make_console, progress, show
from .sender import Sender, SentLedger
from .server import Server
from .traffic import Volley, events_of, plan

USER = "admin"


def run(options: Namespace, folder: Path) -> int:
    """Show it all; returns the exit status, 0 only if every event took effect exactly once."""
    console = make_console()
    with ExitStack() as stack:
        console.print("Making a fresh database and starting the server ...")
        password = make_database()
        server = stack.enter_context(Server(options.port, options.workers, folder / "server.log"))
        stack.callback(ignore_signals)
        login = f"Admin: {server.url}/admin/  user: {USER}  password: {password}"
        console.print(f"{options.workers} workers of gunicorn serve the shop. Seed: {options.seed}")
        console.print(login, soft_wrap=True)
        volleys = plan(options.events, Random(options.seed))  # noqa: S311
        sent = send(console, server, volleys)
        counts = count(sent, events_of(volleys))
        wrong = problems(counts.values(), sent)
        show(console, counts, sent, wrong)
        if wrong:
            console.print("The end of the server's log:")
            console.print(server.log_end(), markup=False, soft_wrap=True)
        if not options.exit:
            console.print(login, soft_wrap=True)
            console.print("Look around. Ctrl-C ends the server.")
            serve(server)
    return 1 if wrong else 0


def ignore_signals() -> None:
    """Let a second Ctrl-C not disturb the cleaning up, which takes seconds at most."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)


def make_database() -> str:
    """Create the tables and the admin's login; returns the password."""
    call_command("migrate", verbosity=0)
    password = secrets.token_urlsafe(9)
    get_user_model()._default_manager.create_superuser(USER, password=password)
    connections.close_all()
    return password


def send(console: Console, server: Server, volleys: list[Volley]) -> SentLedger:
    """Let the providers send their deliveries."""
    total = sum(volley.copies for volley in volleys)
    with progress(console, "Deliveries acknowledged", total) as advance:
        return asyncio.run(Sender(server, advance).run(volleys))


def serve(server: Server) -> None:
    """Go on until Ctrl-C, or until the server ends by itself."""
    with suppress(KeyboardInterrupt):
        server.process.wait()
