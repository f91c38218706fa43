"""Which services the tests can reach, and what happens to a test that needs an absent one."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import IO
from urllib.parse import unquote, urlsplit

import pytest

POSTGRES_URL = os.environ.get("POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/webhooks")
MARIADB_URL = os.environ.get("MARIADB_URL", "mysql://root@127.0.0.1:3306/webhooks")
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
AMQP_URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")
CONNECT_TIMEOUT = 3  # seconds


def lock_file(name: str) -> IO[bytes]:
    """Open a file that this user's runs agree on; the kernel frees it when a run dies."""
    return open(os.path.join(gettempdir(), f"webhooks-{os.getuid()}-{name}.lock"), "ab")


@cache
def own_redis() -> tuple[str, IO[bytes]]:
    """The URL of a Redis database that no other run uses now, and the file that says so.

    Some tests empty it, and runs on different databases have the same leases.
    """
    for number in range(1, 16):
        file = lock_file(f"redis-{number}")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            continue
        return urlsplit(REDIS_URL)._replace(path=f"/{number}").geturl(), file
    raise RuntimeError("Every database of the Redis is used by another run of the tests.")


def required() -> bool:
    """Whether an absent service is a failure, not a skip."""
    return os.environ.get("WEBHOOK_TEST_REQUIRE_SERVICES", "") not in ("", "0")


def require(name: str) -> None:
    """Skip the running test when the service `name` is absent; fail it where all are required."""
    problem = service_problem(name)
    if problem is None:
        return
    if required():
        pytest.fail(f"{problem} (WEBHOOK_TEST_REQUIRE_SERVICES is set)", pytrace=False)
    pytest.skip(problem)


@cache
def service_problem(name: str) -> str | None:
    """Return why the service `name` cannot be used, or None when it answers."""
    return PROBES[name]()


def database_problem(url: str) -> str | None:
    """Return why no connection to the server of a database URL can be had, or None."""
    scheme = urlsplit(url).scheme
    if scheme.startswith("postgres"):
        return postgres_problem(url)
    if scheme.startswith(("mysql", "mariadb")):
        return mariadb_problem(url)
    return None


def postgres_problem(url: str = POSTGRES_URL) -> str | None:
    try:
        import psycopg
    except ImportError as error:
        return f"PostgreSQL: its driver is missing: {error}"
    parts = urlsplit(url)
    try:
        psycopg.connect(
            host=parts.hostname,
            port=parts.port,
            user=unquote(parts.username or "") or None,
            password=unquote(parts.password or "") or None,
            dbname="postgres",
            connect_timeout=CONNECT_TIMEOUT,
        ).close()
    except psycopg.Error as error:
        return f"PostgreSQL is not reachable: {' '.join(str(error).split())}"
    return None


def mariadb_problem(url: str = MARIADB_URL) -> str | None:
    try:
        import MySQLdb
    except ImportError as error:
        return f"MariaDB: its driver is missing: {error}"
    parts = urlsplit(url)
    try:
        MySQLdb.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            connect_timeout=CONNECT_TIMEOUT,
        ).close()
    except MySQLdb.Error as error:
        return f"MariaDB is not reachable: {error}"
    return None


def redis_problem() -> str | None:
    try:
        import redis
    except ImportError as error:
        return f"Redis: its client is missing: {error}"
    client = redis.Redis.from_url(REDIS_URL, socket_connect_timeout=CONNECT_TIMEOUT)
    try:
        client.ping()
    except redis.RedisError as error:
        return f"Redis is not reachable: {error}"
    finally:
        client.close()
    return None


def rabbitmq_problem() -> str | None:
    try:
        from kombu.connection import Connection
    except ImportError as error:
        return f"RabbitMQ: its client is missing: {error}"
    try:
        with Connection(AMQP_URL, connect_timeout=CONNECT_TIMEOUT) as connection:
            connection.connect()
    except OSError as error:
        return f"RabbitMQ is not reachable: {error}"
    return None


def postgres_command(name: str) -> str:
    """The path of one of PostgreSQL's own programs, which Debian keeps out of the PATH.

    Raises FileNotFoundError if there is none.
    """
    installed = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = max(installed, key=lambda path: float(path.parts[-3]), default=None)
    return command(name) if newest is None else str(newest)


def command(*names: str) -> str:
    """The path of the first of these commands that is there. Raises FileNotFoundError."""
    for name in names:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if path:
            return path
    raise FileNotFoundError(f"no command {' or '.join(names)}")


def postgres_server_problem() -> str | None:
    try:
        postgres_command("initdb")
    except FileNotFoundError as error:
        return f"PostgreSQL's server: {error}"
    return None


def mariadb_server_problem() -> str | None:
    try:
        command("mariadb-install-db", "mysql_install_db")
        command("mariadbd", "mysqld")
    except FileNotFoundError as error:
        return f"MariaDB's server: {error}"
    return None


def command_problem(*names: str) -> Callable[[], str | None]:
    """Return a probe that wants one of the commands `names` to start."""

    def probe() -> str | None:
        for name in names:
            path = shutil.which(name)
            if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0:
                return None
        return f"no command {' or '.join(names)}"

    return probe


PROBES: dict[str, Callable[[], str | None]] = {
    "postgres": postgres_problem,
    "mariadb": mariadb_problem,
    # Servers of a test's own, which it may kill and start again.
    "postgres-server": postgres_server_problem,
    "mariadb-server": mariadb_server_problem,
    "redis": redis_problem,
    # A Redis of a test's own, which it may stop and empty.
    "redis-server": command_problem("redis-server"),
    "rabbitmq": rabbitmq_problem,
    "node": command_problem("node"),
    "npm": command_problem("npm"),
    "chromium": command_problem("chromium", "chromium-browser", "google-chrome"),
}
