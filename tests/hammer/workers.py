"""`manage.py webhook_worker` in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import connection

from .journal import Journal
from .server import ROOT
from .sqlite import SQLITE

START_TIMEOUT = 60  # seconds


@dataclass
class Worker:
    """A running worker: what its handlers wrote down, and what it printed and logged."""

    directory: Path
    log_file: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def journal(self) -> Journal:
        return Journal(self.directory / "journal")

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for_line(self, pattern: str, timeout: float = START_TIMEOUT) -> re.Match[str]:
        """Wait until it has printed or logged something."""
        deadline = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.log)
            if found:
                return found
            assert self.process.poll() is None, f"The worker ended:\n{self.log}"
            assert time.monotonic() < deadline, f"No {pattern!r} in:\n{self.log}"
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self, timeout: float = 30) -> int:
        """Wait until it has ended; its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The worker did not end:\n{self.log}") from None

    def stop(self, timeout: float = 30) -> int:
        """Stop it as a supervisor does; its exit status."""
        self.signal(signal.SIGTERM)
        return self.ended(timeout)

    def kill(self) -> None:
        """End it at once, also if it is stopped."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str) -> tuple[int, dict[str, str]]:
        """What its probe answers; status 0 if there is none."""
        url = self.wait_for_line(r"probe=(\S+)")[1]
        try:
            with urllib.request.urlopen(url + path, timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}


@contextmanager
def working(
    directory: Path,
    log_file: Path,
    database_url: str,
    *arguments: str,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Worker]:
    """Run the hammer's project under a worker."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.hammer.settings",
        "HAMMER_DIRECTORY": str(directory),
        "HAMMER_SETTINGS": json.dumps(settings or {}),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
    }
    # Its output goes where a supervisor would send it, with Python's own buffering.
    environment.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "django", "webhook_worker", *arguments]
    with open(log_file, "wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    worker = Worker(directory, log_file, process)
    try:
        yield worker
    finally:
        worker.kill()


#: Starts a worker with these arguments on this run's database.
Work = Callable[..., Worker]


@contextmanager
def crew(directory: Path, database_url: str) -> Iterator[Work]:
    """Give a function that starts workers; they share one journal and end with the test."""
    with ExitStack() as stack:
        number = 0

        def work(
            *arguments: str,
            url: str = "",
            database: Mapping[str, Any] | None = None,
            **webhook: Any,
        ) -> Worker:
            nonlocal number
            number += 1
            changes: dict[str, Any] = dict(database or {})
            if connection.vendor == "sqlite":
                changes["OPTIONS"] = SQLITE
            return stack.enter_context(
                working(
                    directory,
                    directory / f"worker-{number}",
                    url or database_url,
                    *arguments,
                    settings={"DATABASE": changes, "WEBHOOK_IDEMPOTENCY": webhook},
                )
            )

        yield work
