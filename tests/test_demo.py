"""`make demo` as a person and CI run it: in a process of its own, with fewer events.

A check that cannot fail shows nothing, so the demo is also run over a shop that is broken.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from example_project.demo.events import PROVIDERS
from example_project.demo.traffic import Trouble, events_of, plan

pytest.importorskip("rich")

ROOT = Path(__file__).resolve().parent.parent
#: Seconds; the demo takes a few, and a busy machine many.
PATIENCE = 240

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the demo with arguments; whatever is left of it is ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        # What a shell may have set must make no difference.
        environment = os.environ | {
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(tmp_path),
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/nowhere",
            "DEBUG": "0",
            "WEBHOOK_SECRET_STRIPE": "",
        }
        demo = subprocess.Popen(
            [sys.executable, "-m", "example_project.demo", "--events", "15", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(demo)
        return demo

    yield start
    for demo in started:
        if demo.poll() is None:
            demo.terminate()
        demo.communicate()


def read_until(demo: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read what the demo prints up to a line that matches."""
    assert demo.stdout is not None
    seen = []
    for line in demo.stdout:
        seen.append(line)
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"The demo ended without {pattern!r}:\n{''.join(seen)}")


def numbers(output: str) -> dict[str, list[int]]:
    """The rows of the table by provider."""
    rows = re.findall(r"^│ (\w+) +│(.*)│$", output, re.MULTILINE)
    return {name: [int(cell) for cell in cells.split("│")] for name, cells in rows}


@pytest.mark.once
@pytest.mark.slow
class TestExit:
    def test_status_0_and_the_table_on_a_port_that_is_free(self, start, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            demo = start("--exit", "--port", port)
            output, _ = demo.communicate(timeout=PATIENCE)
        assert demo.returncode == 0, output
        table = numbers(output)
        assert list(table) == [*PROVIDERS, "all"]
        assert table["all"] == [
            sum(table[name][column] for name in PROVIDERS) for column in range(7)
        ]
        for name, (sent, events, effects, duplicates, recovered, lost, doubled) in table.items():
            events_sent = 15 if name == "all" else 3
            assert (events, effects, lost, doubled) == (events_sent, events_sent, 0, 0)
            assert sent > events + duplicates
            assert duplicates > 0
            assert recovered >= (6 if name == "all" else 1)
        assert re.search(r"Admin: http://127.0.0.1:\d+/admin/  user: admin  password: \S+", output)
        assert f":{port}/" not in output
        assert "RIGHT" in output
        assert list(tmp_path.glob("webhook-demo-*")) == []

    @pytest.mark.parametrize(
        ("handler", "sentence"),
        [
            ("LedgerEntry.objects.create(**entry)", "events took effect more than once"),
            ("LedgerEntry.objects.filter(**entry).delete()", "events are lost"),
        ],
        ids=["doubled", "lost"],
    )
    def test_status_1_over_a_shop_that_is_broken(self, start, tmp_path, handler, sentence):
        app = tmp_path / "sabotage"
        app.mkdir()
        (app / "__init__.py").touch()
        (app / "settings.py").write_text(
            "from example_project.settings import *\nINSTALLED_APPS += ['sabotage']\n"
        )
        (app / "webhooks.py").write_text(
            "from django_webhook_idempotency.handlers import webhook_handler\n"
            "from example_project.shop.models import LedgerEntry\n"
            "@webhook_handler('slack')\n"
            "def sabotage(event):\n"
            "    entry = {'provider': 'slack', 'event_id': event.event_id}\n"
            f"    {handler}\n"
        )
        demo = start("--exit", "--port", "0", "--settings", "sabotage.settings")
        output, _ = demo.communicate(timeout=PATIENCE)
        assert demo.returncode == 1, output
        assert re.search(rf"WRONG \d+ {sentence}", output)
        assert "RIGHT" not in output


@pytest.mark.once
@pytest.mark.slow
class TestCtrlC:
    def test_ends_what_goes_on_serving_with_a_working_admin(self, start, tmp_path):
        demo = start("--port", "0")
        login = read_until(demo, r"Admin: (\S+)/admin/  user: (\S+)  password: (\S+)")
        address, user, password = login.groups()
        read_until(demo, "Ctrl-C ends the server")
        with httpx.Client(
            base_url=address, follow_redirects=True, timeout=60, trust_env=False
        ) as browser:
            browser.get("/admin/login/")
            token = browser.cookies["csrftoken"]
            form = {"username": user, "password": password, "csrfmiddlewaretoken": token}
            page = browser.post("/admin/login/?next=/admin/shop/ledgerentry/", data=form)
            assert page.status_code == 200
            assert page.text.count('class="field-provider') == 15
            assert browser.get("/static/admin/css/base.css").status_code == 200
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=PATIENCE)
        assert demo.returncode == 0, output
        with pytest.raises(httpx.ConnectError):
            httpx.get(address, trust_env=False)
        assert list(tmp_path.glob("webhook-demo-*")) == []

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
    def test_in_the_middle_leaves_nothing_behind(self, start, tmp_path, name):
        demo = start("--events", "200", "--exit", "--port", "0")
        address = read_until(demo, r"Admin: (\S+)")[1]
        read_until(demo, "acknowledged: ")
        demo.send_signal(getattr(signal, name))
        output, _ = demo.communicate(timeout=PATIENCE)
        assert demo.returncode == 130, output
        with pytest.raises(httpx.ConnectError):
            httpx.get(address, trust_env=False)
        assert list(tmp_path.glob("webhook-demo-*")) == []


class TestPlan:
    def test_has_every_trouble_for_every_provider(self):
        volleys = plan(50, Random(1))
        assert {(volley.event.provider, volley.trouble) for volley in volleys} == {
            (provider, trouble) for provider in PROVIDERS for trouble in Trouble
        }

    def test_has_two_to_five_copies_of_each_event(self):
        volleys = plan(100, Random(2))
        events = [event for some in events_of(volleys).values() for event in some]
        copies = {event.event_id: 0 for event in events}
        for volley in volleys:
            copies[volley.event.event_id] += volley.copies
        assert len(events) == 100
        assert set(copies.values()) == {2, 3, 4, 5}

    def test_is_the_same_with_the_same_seed(self):
        first, second = (
            [(volley.event.event_id, volley.copies) for volley in plan(30, Random(3))]
            for _ in range(2)
        )
        assert first == second
