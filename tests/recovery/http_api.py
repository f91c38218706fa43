"""A provider's API on 127.0.0.1: real HTTP, with the faults that a test asks for."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as the API saw it."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """One answer; text is sent as it is, and anything else as JSON."""

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)


class Api(ABC):
    """What every fake API has: a record of what was asked, faults, and a clock of its own."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        #: Answered instead of what was asked for, one after the other; None is the usual answer.
        self.faults: deque[Reply | None] = deque()
        #: Seconds by which the API's clock is ahead of ours.
        self.ahead = 0.0
        #: While it is clear, the API accepts requests and does not answer.
        self.answers = threading.Event()
        self.answers.set()
        self.url = ""

    def now(self) -> float:
        """Unix time by the API's clock."""
        return time.time() + self.ahead

    @abstractmethod
    def answer(self, asked: Asked) -> Reply:
        """The usual answer."""

    @contextmanager
    def served(self) -> Iterator[None]:
        """Serve it for as long as the block runs."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:  # noqa: N805
                self._serve(handler)

            do_POST = do_GET  # noqa: N815

            def log_message(handler, *args: Any) -> None:  # noqa: N805
                pass

            def date_time_string(handler, timestamp: float | None = None) -> str:  # noqa: N805
                return formatdate(self.now(), usegmt=True)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield
        finally:
            self.answers.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        asked = Asked(
            handler.command,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in handler.headers.items()},
        )
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.asked.append(asked)
        self.answers.wait(30)
        reply = (self.faults.popleft() if self.faults else None) or self.answer(asked)
        body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body, indent=2)
        content = body.encode()
        try:
            handler.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
        except ConnectionError:
            pass
