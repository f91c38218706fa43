"""Between the server and its database: a wire that can be cut around any statement."""

from __future__ import annotations

import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

#: Where a statement is when its connection breaks: not sent, sent, or done and not acknowledged.
MOMENTS = ("before", "during", "after")


class Wire:
    """Forwards connections to a database; cuts those whose next statement is marked for it."""

    def __init__(self, host: str, to: int, *, port: int = 0) -> None:
        """`to` is the port behind the wire, `port` the one in front of it, any free one if 0."""
        self.address = host, to
        self.listening = socket.create_server(("127.0.0.1", port), backlog=256)
        self.cuts: Counter[str] = Counter()
        self._marker = b""
        self._moment = ""
        self._left = 0
        self._chance = 0.0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    def cut(self, marker: bytes, moment: str, times: int = 1) -> None:
        """Break the next connections that send something in which the pattern `marker` is found."""
        with self._lock:
            self._marker, self._moment, self._left = marker, moment, times

    def cut_at_random(self, chance: float) -> None:
        """Break connections at any statement, so many of a hundred as `chance` says."""
        with self._lock:
            self._chance = chance

    def close(self) -> None:
        with self._lock:
            open_now = [*self._open, self.listening]
        for each in open_now:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, work, *args) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                database = socket.create_connection(self.address)
                with self._lock:
                    self._open |= {client, database}
                self._start(self._pump_statements, client, database)
                self._start(self._pump_answers, client, database)

    def _moment_of(self, data: bytes) -> str:
        """When to cut the connection that sends this; empty to let it pass."""
        with self._lock:
            moment = ""
            if self._left and re.search(self._marker, data, re.DOTALL):
                self._left -= 1
                moment = self._moment
            elif random.random() < self._chance:
                moment = random.choice(MOMENTS)
            if moment:
                self.cuts[moment] += 1
            return moment

    def _pump_statements(self, client: socket.socket, database: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                moment = self._moment_of(data)
                if moment == "before":
                    break
                if moment == "after":
                    # From now on answers go nowhere; wait until there is one.
                    with self._lock:
                        self._open.discard(client)
                    database.sendall(data)
                    self._forget_answers(database)
                    break
                database.sendall(data)
                if moment == "during":
                    break
        self._hang_up(client, database)

    def _pump_answers(self, client: socket.socket, database: socket.socket) -> None:
        with suppress(OSError):
            while data := database.recv(65536):
                with self._lock:
                    relayed = client in self._open
                if not relayed:
                    break
                client.sendall(data)
        self._hang_up(client, database)

    @staticmethod
    def _forget_answers(database: socket.socket) -> None:
        # The other thread takes the answer and hangs up; here it is enough to see that it came.
        with suppress(OSError):
            database.recv(65536)

    def _hang_up(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
            with self._lock:
                self._open.discard(each)


@contextmanager
def wired(database_url: str) -> Iterator[tuple[Wire, str]]:
    """A wire to a database, and the URL of the database at the wire's other end."""
    parts = urlsplit(database_url)
    postgres = parts.scheme.startswith("postgres")
    wire = Wire(parts.hostname or "127.0.0.1", parts.port or (5432 if postgres else 3306))
    credentials = parts.netloc.rpartition("@")[0]
    netloc = f"{credentials}@127.0.0.1:{wire.port}" if credentials else f"127.0.0.1:{wire.port}"
    query = "sslmode=disable" if postgres else parts.query
    try:
        yield wire, urlunsplit(parts._replace(netloc=netloc, query=query))
    finally:
        wire.close()
