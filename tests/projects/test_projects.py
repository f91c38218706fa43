"""The same events in projects that are set up in other ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.projects.play import EVENTS

SQLITE = "django.db.backends.sqlite3"


def play(**options: Any) -> dict[str, Any]:
    """Run a project in a process of its own and return what it found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.projects.play"],
        env={**os.environ, "PLAY_SETTINGS": json.dumps(options)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def is_right(found: dict[str, Any]) -> bool:
    """Whether every event had its one effect, and those that fail once were answered 500.

    Perhaps more than once each: a copy that comes between a rollback and the row that tells of it
    runs the event as its first.
    """
    ids = sorted(f"evt_{number}" for number in range(EVENTS))
    fails = found["errors"] >= EVENTS // 3
    return bool(found["events"] == EVENTS and found["effects"] == ids and fails)


def sqlite(path: Path, **options: Any) -> dict[str, Any]:
    return {"ENGINE": SQLITE, "NAME": str(path), "OPTIONS": {"timeout": 20, **options}}


@pytest.mark.parametrize("router", ["Hooks", "EffectsToo"])
def test_a_router_is_respected(tmp_path: Path, router: str) -> None:
    """WB-049: nothing is opened on a default database that has no engine."""
    databases = {"default": {}, "hooks": sqlite(tmp_path / "hooks.sqlite3")}
    if router == "Hooks":
        # What handlers write elsewhere isn't in the event's transaction, so it doubles here.
        databases["default"] = sqlite(tmp_path / "default.sqlite3")
    found = play(DATABASES=databases, DATABASE_ROUTERS=[f"tests.projects.play.{router}"])
    assert found["events"] == EVENTS
    assert is_right(found) == (router == "EffectsToo")


@pytest.mark.parametrize("atomic_requests", [True, False])
def test_a_project_without_time_zones(tmp_path: Path, atomic_requests: bool) -> None:
    database = {**sqlite(tmp_path / "db.sqlite3"), "ATOMIC_REQUESTS": atomic_requests}
    found = play(USE_TZ=False, TIME_ZONE="America/Bogota", DATABASES={"default": database})
    assert is_right(found)
    assert found["naive"]


#: PostgreSQL's numbers: repeatable read is 2, serializable 3.
OPTIONS = {
    "sqlite": [{"transaction_mode": mode} for mode in ("DEFERRED", "IMMEDIATE", "EXCLUSIVE")],
    "postgresql": [{"server_side_binding": True}, {"isolation_level": 2}, {"isolation_level": 3}],
    "mysql": [
        {"isolation_level": level, "charset": "utf8mb4"}
        for level in ("read committed", "repeatable read", "serializable")
    ],
}


@pytest.mark.parametrize("options", OPTIONS[connection.vendor], ids=str)
@pytest.mark.django_db(transaction=True)
def test_isolation_levels_modes_and_binding(tmp_path: Path, options: dict[str, Any]) -> None:
    """A conflict that a stricter level finds is run again, and nothing is lost or doubled."""
    database = {
        name: value
        for name, value in connection.settings_dict.items()
        if name in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    }
    if connection.vendor == "sqlite":
        database["NAME"] = str(tmp_path / "db.sqlite3")
        options = {"timeout": 20, **options}
    assert is_right(play(DATABASES={"default": {**database, "OPTIONS": options}}))
