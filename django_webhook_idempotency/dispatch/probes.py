"""Answers of a worker to who asks whether it lives and whether it works: `/live` and `/ready`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Path to a question; the answer is None if all is well, or else what is wrong.
Questions = Mapping[str, Callable[[], str | None]]

#: Seconds that somebody who asks has to say what.
PATIENCE = 5.0


class _Answer(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server_version = "webhook_worker"
    sys_version = ""
    server: Probes

    def do_GET(self) -> None:
        """200 if all is well, 503 if not, 404 for any other path."""
        question = self.server.questions.get(self.path.partition("?")[0])
        if question is None:
            self._send(HTTPStatus.NOT_FOUND, {"status": "unknown"})
            return
        problem = question()
        if problem is None:
            self._send(HTTPStatus.OK, {"status": "ok"})
        else:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "why": problem})

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def _send(self, status: HTTPStatus, document: Mapping[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: it is asked every few seconds."""


class Probes(ThreadingHTTPServer):
    """A small HTTP server in a thread of its own. Raises OSError where the address is taken."""

    daemon_threads = True
    # One that asks and never reads is not waited for.
    block_on_close = False

    def __init__(self, address: tuple[str, int], questions: Questions) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Answer)
        self.questions = questions
        self._thread = threading.Thread(
            target=self.serve_forever, name="webhook-probes", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever asked has hung up."""
