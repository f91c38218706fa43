"""gunicorn in processes of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .journal import Journal

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 60  # seconds


@dataclass
class Server:
    """A running gunicorn: its address, what its handlers wrote down, and what it logged."""

    port: int
    directory: Path
    log_file: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def journal(self) -> Journal:
        return Journal(self.directory / "journal")

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self.process.poll() is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
                return
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
            finally:
                connection.close()
        raise AssertionError(f"The server did not start:\n{self.log}")

    def wait_for(self, word: str, event: str = "", count: int = 1, timeout: float = 20) -> Any:
        """Wait until the journal has so many lines with a word; returns the last."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            lines = self.journal.lines(word, event)
            if len(lines) >= count:
                return lines[count - 1]
            time.sleep(0.005)
        raise AssertionError(f"No {count} x {word!r} {event} in the journal.\n{self.log}")

    def stop(self) -> None:
        """End the server and every worker of it at once, stopped ones too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serve(
    directory: Path,
    log_file: Path,
    database_url: str,
    *,
    workers: int = 4,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Server]:
    """Run the hammer's project under gunicorn's synchronous workers."""
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.hammer.settings",
        "HAMMER_DIRECTORY": str(directory),
        "HAMMER_SETTINGS": json.dumps(settings or {}),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
    }
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        file = listening.fileno()
        command = [sys.executable, "-m", "gunicorn", "tests.hammer.wsgi"]
        command += ["--config", "python:tests.hammer.gunicorn_conf"]
        command += ["--workers", str(workers), "--bind", f"fd://{file}"]
        with open(log_file, "wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                pass_fds=[file],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        server = Server(listening.getsockname()[1], directory, log_file, process)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        server.stop()
