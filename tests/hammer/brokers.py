"""Brokers that a test may stop and empty."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import kombu.connection
import redis

from tests.services import AMQP_URL

from .proxy import Wire


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class RedisBroker:
    """A Redis server of its own, which keeps nothing on disk."""

    #: A message that is not acknowledged for a second is delivered again.
    options = {
        "visibility_timeout": 1,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.queue = f"webhooks-{uuid4().hex}"
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def stop(self) -> None:
        """End it; without its disk it has forgotten everything when it starts again."""
        self.process.kill()
        self.process.wait()

    close = stop

    def empty(self) -> None:
        """Forget every message, also those that a worker has taken and not acknowledged."""
        with redis.Redis.from_url(self.url) as client:
            client.flushdb()

    def waiting(self) -> int:
        with redis.Redis.from_url(self.url) as client:
            return int(client.llen(self.queue))


class RabbitBroker:
    """A queue in the RabbitMQ there is, at the end of a wire that can be cut."""

    options: dict[str, Any] = {}

    def __init__(self, *, direct: bool = False) -> None:
        self.queue = f"webhooks-{uuid4().hex}"
        self.wire: Wire | None = None
        self.url = AMQP_URL
        if direct:
            return
        parts = urlsplit(AMQP_URL)
        self.address = parts.hostname or "127.0.0.1", parts.port or 5672
        self.port = free_port()
        credentials = parts.netloc.rpartition("@")[0]
        at = f"{credentials}@" if credentials else ""
        self.url = urlunsplit(parts._replace(netloc=f"{at}127.0.0.1:{self.port}"))
        self.start()

    def start(self) -> None:
        self.wire = Wire(*self.address, port=self.port)

    def stop(self) -> None:
        """Cut every connection and let no new one through."""
        assert self.wire is not None
        self.wire.close()

    def close(self) -> None:
        if self.wire is not None:
            self.stop()
        with kombu.connection.Connection(AMQP_URL) as connection:
            connection.default_channel.queue_delete(self.queue)

    def empty(self) -> None:
        with kombu.connection.Connection(AMQP_URL) as connection:
            connection.default_channel.queue_purge(self.queue)

    def waiting(self) -> int:
        with kombu.connection.Connection(AMQP_URL) as connection:
            declared = connection.default_channel.queue_declare(self.queue, passive=True)
            return int(declared.message_count)
