#!/usr/bin/env python
"""Photograph the admin pages: `python -m tests.admin.screenshots [FOLDER]`.

Starts a server of its own with sample data, and a real Chromium.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APP = "admin/django_webhook_idempotency"
WIDE, NARROW = 1440, 500
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
]  # fmt: skip
START_TIMEOUT = 30  # seconds
PAGE_TIMEOUT = 60  # seconds


@contextmanager
def live_server(folder: Path, language: str = "en") -> Iterator[tuple[str, dict[str, int]]]:
    """A server with sample data; gives its address and the events worth a look."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.admin.live_settings",
        "LIVE_DATABASE": str(folder / "live.sqlite3"),
        "LIVE_LANGUAGE": language,
    }
    prepare = "import tests.admin.screenshots as s; s.prepare()"
    done = subprocess.run(
        [sys.executable, "-c", prepare], cwd=ROOT, env=environment, text=True, check=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    events = {name: int(number) for name, number in map(str.split, done.stdout.splitlines())}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "django", "runserver", "--noreload", f"127.0.0.1:{port}"],
        cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/admin/")
        yield address, events
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=START_TIMEOUT)


def prepare() -> None:
    """Fill a new database and print the events worth a look; runs in a process of its own."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from tests.admin.traffic import fill

    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("admin", password="admin")
    for name, number in fill().items():
        sys.stdout.write(f"{name} {number}\n")


def wait_for(address: str) -> None:
    """Wait until a page answers."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def browse(folder: Path, address: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a Chromium of its own."""
    chromium = shutil.which("chromium") or "chromium"
    profile = tempfile.mkdtemp(dir=folder)
    return subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={profile}", *flags, address],
        text=True, capture_output=True, timeout=PAGE_TIMEOUT, check=True,
    )  # fmt: skip


def main(target: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as name, live_server(Path(name)) as (address, events):
        pages = {
            "events": f"{APP}/webhookevent/",
            "event-failed": f"{APP}/webhookevent/{events['failed']}/change/",
            "event-retried": f"{APP}/webhookevent/{events['late']}/change/",
            "deliveries": f"{APP}/webhookdelivery/",
        }
        looks = {
            "light": (WIDE, "--blink-settings=preferredColorScheme=1"),
            "dark": (WIDE, "--blink-settings=preferredColorScheme=0"),
            "narrow": (NARROW, "--blink-settings=preferredColorScheme=1"),
        }
        for page, path in pages.items():
            for look, (width, flag) in looks.items():
                picture = target / f"{page}-{look}.png"
                browse(
                    Path(name), f"{address}/{path}", flag,
                    f"--window-size={width},1400", f"--screenshot={picture}",
                )  # fmt: skip
                sys.stdout.write(f"{picture} {picture.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    main(folder.resolve())
