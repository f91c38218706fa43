"""Start here: `python -m example_project.demo`, from the root of the repository."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import django

from .server import ServerFailed

#: Variables that would change what the demo shows.
FOREIGN = ("ALLOWED_HOSTS", "CELERY_BROKER_URL", "REDIS_URL", "SECRET_KEY")
FOREIGN_PREFIXES = ("GUNICORN_", "WEBHOOK_")
FEWEST_EVENTS = 10
INTERRUPTED = 130


def number(fewest: int) -> Callable[[str], int]:
    """An argparse type: a whole number from `fewest` up."""

    def parse(text: str) -> int:
        value = int(text)
        if value < fewest:
            raise argparse.ArgumentTypeError(f"{value} is less than {fewest}")
        return value

    parse.__name__ = "whole number"
    return parse


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m example_project.demo",
        description="Send hundreds of webhooks with copies, races, failures and killed workers "
        "to a real server, and count what came of them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--exit", action="store_true", help="end with status 0 if the table is right, else 1")
    add("--events", type=number(FEWEST_EVENTS), default=250, help="events to send")
    add("--workers", type=number(1), default=3, help="processes of the server")
    add("--port", type=number(0), default=8000, help="a free one is chosen if it is taken")
    add("--seed", type=int, default=SystemRandom().randrange(10**6), help="repeats a run's traffic")
    add("--settings", default="example_project.settings", help="settings module of the shop")
    return parser.parse_args(arguments)


def set_up(options: argparse.Namespace, folder: Path) -> None:
    """Point Django, here and in the server, to a database in `folder`, whatever the shell says."""
    for name in list(os.environ):
        if name in FOREIGN or name.startswith(FOREIGN_PREFIXES):
            del os.environ[name]
    os.environ |= {
        "DATABASE_URL": f"sqlite:///{folder / 'demo.sqlite3'}",
        "DEBUG": "1",
        "DJANGO_SETTINGS_MODULE": options.settings,
    }
    django.setup()


def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit status."""
    options = parse(arguments)
    # However it is ended, it ends as by Ctrl-C and leaves nothing behind.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="webhook-demo-") as folder:
            set_up(options, Path(folder))
            # Only now: it imports models.
            from .show import run

            return run(options, Path(folder))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ServerFailed as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
