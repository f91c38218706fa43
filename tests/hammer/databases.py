"""Database servers of a test's own, which it may kill and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dj_database_url
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from tests.services import command, postgres_command

from .brokers import free_port

START_TIMEOUT = 60  # seconds


class DatabaseServer(ABC):
    """A server that keeps its data in a directory, and crashes when it is told to."""

    #: The user that Debian's package made, since the server refuses to run as root.
    user = ""
    url = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.log_file = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        if self.owner:
            shutil.chown(directory, self.owner)
        self.create()
        self.start()

    @property
    def owner(self) -> str | None:
        return self.user if os.geteuid() == 0 else None

    def run(self, *command: str) -> None:
        subprocess.run(
            command, user=self.owner, cwd=self.directory, capture_output=True, check=True
        )

    @abstractmethod
    def create(self) -> None:
        """Make the files of an empty server."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it in the foreground."""

    def start(self) -> None:
        """Start it and wait until it answers; after a crash it repairs its files first."""
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                user=self.owner,
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            assert time.monotonic() < deadline, self.log_file.read_text()
            time.sleep(0.05)

    def answers(self) -> bool:
        with suppress(OperationalError):
            return self.rows("SELECT 1") == [(1,)]
        return False

    def crash(self) -> None:
        """End it at once, with all of its processes; every client loses its connection."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def rows(self, sql: str) -> list[Any]:
        """What a statement finds, over a connection of its own."""
        connection = ConnectionHandler({"default": dict(dj_database_url.parse(self.url))})[
            "default"
        ]
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()


class PostgresServer(DatabaseServer):
    user = "postgres"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        options = ["--auth=trust", "--username=postgres", "--no-sync", "--locale=C", "-E", "UTF8"]
        self.run(postgres_command("initdb"), *options, "-D", str(self.directory / "data"))

    def command(self) -> list[str]:
        at = ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        data = ["-D", str(self.directory / "data"), "-k", str(self.directory)]
        return [postgres_command("postgres"), *data, *at]


class MariaServer(DatabaseServer):
    user = "mysql"

    @property
    def url(self) -> str:  # type: ignore[override]
        return f"mysql://{self.login}@127.0.0.1:{self.port}/test"

    @property
    def login(self) -> str:
        return self.owner or pwd.getpwuid(os.geteuid()).pw_name

    def create(self) -> None:
        self.run(
            command("mariadb-install-db", "mysql_install_db"),
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            f"--datadir={self.directory / 'data'}",
        )

    def command(self) -> list[str]:
        data = [f"--datadir={self.directory / 'data'}", f"--socket={self.directory / 'socket'}"]
        at = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-grant-tables"]
        return [command("mariadbd", "mysqld"), "--no-defaults", *data, *at, "--skip-name-resolve"]


SERVERS: dict[str, type[DatabaseServer]] = {"postgresql": PostgresServer, "mysql": MariaServer}


@contextmanager
def database_server(vendor: str) -> Iterator[DatabaseServer]:
    """Start an empty server; it and its files are gone afterwards.

    Not in pytest's own directory, which is closed to the server's user.
    """
    directory = Path(tempfile.mkdtemp(prefix="webhooks-"))
    server: DatabaseServer | None = None
    try:
        server = SERVERS[vendor](directory)
        yield server
    finally:
        if server is not None:
            server.crash()
        shutil.rmtree(directory, ignore_errors=True)
