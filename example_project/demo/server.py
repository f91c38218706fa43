"""A real server for the shop, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = Path(__file__).with_name("gunicorn_conf.py")
START_SECONDS = 60
STOP_SECONDS = 5
LAST_LINES = 15


class ServerFailed(Exception):
    """The server did not start; the message has the end of its log."""


def open_socket(port: int) -> socket.socket:
    """Listen on a port, or on one that is free if somebody else has it."""
    try:
        return socket.create_server((HOST, port))
    except OSError:
        return socket.create_server((HOST, 0))


class Server:
    """Gunicorn with several workers, which inherits an open socket: nobody can take the port.

    Use it as a context manager. At the end no worker is left.
    """

    def __init__(self, port: int, workers: int, log: Path) -> None:
        self.log = log
        with open_socket(port) as listener, log.open("wb") as output:
            self.url = f"http://{HOST}:{listener.getsockname()[1]}"
            descriptor = listener.fileno()
            self.process = subprocess.Popen(  # noqa: S603
                [
                    *(sys.executable, "-m", "gunicorn", "example_project.wsgi"),
                    *("--config", str(CONFIG), "--workers", str(workers)),
                    *("--bind", f"fd://{descriptor}"),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[descriptor],
                # Ctrl-C reaches us alone, and we end it.
                start_new_session=True,
            )

    def __enter__(self) -> Server:
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Return when the server answers. Raises ServerFailed."""
        deadline = time.monotonic() + START_SECONDS
        while self.is_running and time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                page = f"{self.url}/admin/login/"
                if httpx.get(page, timeout=START_SECONDS, trust_env=False).is_success:
                    return
            time.sleep(0.1)
        raise ServerFailed(f"The server does not answer. The end of its log:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self.process.poll() is None

    def pausing_in(self, event_id: str) -> int | None:
        """The worker that has begun to pause in the handler of an event, if one has."""
        line = rf"process ([0-9]+) pauses .* event {re.escape(event_id)}$"
        found = re.search(line, self.log.read_text(errors="replace"), re.MULTILINE)
        return int(found[1]) if found else None

    def stop(self) -> None:
        """End the server and whatever workers it leaves behind."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError, PermissionError):  # the latter is macOS's word for it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
