"""`manage.py replay_webhooks`: what it prints, asks, refuses and ends with."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import BaseCommand
from django.test import Client

from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import Replay, WebhookEvent
from django_webhook_idempotency.signals import webhook_processed
from tests.deliveries import deliver
from tests.replay.conftest import Recorder

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def handler(client: Client, handlers: Any, configure: Callable[..., None]) -> Recorder:
    """Give a handler on which two of three events have died."""
    configure(PROCESSING="inline")
    handler = Recorder(Reject(), Reject())
    handlers.add(handler, name="h")
    for number in range(3):
        deliver(client, "stripe", f"evt_{number}", "invoice.paid")
    return handler


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("replay_webhooks", *arguments, "--by=ann", stdout=out)
    return out.getvalue()


def test_it_counts_and_runs_what_is_chosen(handler: Recorder) -> None:
    printed = run("--status=dead", "--yes", "--reason=repaired")
    assert printed.splitlines()[:2] == ["2 events chosen.", "  2  stripe  dead  invoice.paid"]
    assert printed.splitlines()[-1] == "processed: 2"
    assert handler.calls == 5
    assert set(Replay.objects.values_list("requested_by", "reason")) == {("ann", "repaired")}
    assert run("--status=dead", "--yes", "--reason=repaired").splitlines() == [
        "0 events chosen.",
        "Nothing to do.",
    ]


def test_a_dry_run_touches_nothing_and_wants_no_reason(handler: Recorder) -> None:
    before = list(WebhookEvent.objects.order_by("pk").values())
    assert "2 events chosen" in run("--provider=stripe", "--dry-run")
    document = json.loads(run("--provider=stripe", "--dry-run", "--json"))
    assert document["preview"]["kinds"] == [
        {"provider": "stripe", "status": "dead", "event_type": "invoice.paid", "count": 2}
    ]
    assert list(WebhookEvent.objects.order_by("pk").values()) == before
    assert not Replay.objects.exists()


def test_one_document_for_a_machine(handler: Recorder) -> None:
    document = json.loads(run("--event=evt_2", "--event=evt_0", "--yes", "--json", "--reason=x"))
    assert document["report"]["counts"]["processed"] == 2
    assert document["report"]["good"] is True


def test_its_end_says_that_something_failed_or_was_refused(handler: Recorder) -> None:
    handler.errors = [ValueError()]
    with pytest.raises(CommandError) as failed:
        run("--event=evt_0", "--yes", "--reason=x")
    assert failed.value.returncode == 1
    WebhookEvent.objects.update(body=None)
    out = StringIO()
    with pytest.raises(CommandError):
        call_command(
            "replay_webhooks", "--event=evt_1", "--yes", "--reason=x", "--by=ann", stdout=out
        )
    assert "recover_webhooks" in out.getvalue()
    assert "refused, its body is not kept any more: 1" in out.getvalue()


def test_only_so_many(handler: Recorder) -> None:
    assert "the oldest 1 are run" in run("--status=dead", "--limit=1", "--yes", "--reason=x")
    assert Replay.objects.get().event.event_id == "evt_0"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--yes", "--reason=x"], "Say which events"),
        (["--status=dead", "--yes"], "--reason"),
        (["--status=dead", "--yes", "--reason= "], "--reason"),
        (["--status=dead", "--yes", "--reason=" + "x" * 256], "255 are kept"),
        (["--event=nobody", "--yes", "--reason=x"], "No such event is here: nobody"),
        (["--status=gone", "--yes", "--reason=x"], "invalid choice"),
        (["--type=a*b", "--yes", "--reason=x"], "neither a type nor"),
        (["--status=dead", "--rate=0", "--yes", "--reason=x"], "above zero"),
        (["--status=dead", "--reason=x"], "pass --yes"),
    ],
)
def test_what_cannot_be_done_is_said(
    handler: Recorder, arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    with pytest.raises(CommandError, match=problem):
        run(*arguments)
    assert not Replay.objects.exists()


@pytest.mark.parametrize(("answer", "replays"), [("y\n", 2), ("n\n", 0), ("\n", 0)])
def test_on_a_terminal_it_asks(
    handler: Recorder, database_url: str, answer: str, replays: int
) -> None:
    """In a process of its own, on a terminal of its own; no handler is registered there."""
    parent, child = pty.openpty()
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(ROOT),
    }
    command = ["replay_webhooks", "--status=dead", "--by=ann", "--reason=x"]
    process = subprocess.Popen(
        [sys.executable, "-m", "django", *command],
        cwd=ROOT, env=environment, stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    os.write(parent, answer.encode())
    out, error = process.communicate(timeout=60)
    os.close(parent)
    os.close(child)
    assert "Run 2 events again? [y/N]" in error
    assert process.returncode == 1
    assert ("Nothing was touched" in error) == (replays == 0)
    assert ("no handler is registered for it: 2" in out) == (replays == 2)


def test_the_document_is_one_where_it_asks(
    handler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = StringIO("y\n")
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", stdin)
    assert json.loads(run("--event=evt_0", "--reason=x", "--json"))["report"]["good"] is True


def test_signals_and_log_lines_are_those_of_a_worker(
    handler: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    sent = []

    def note(**more: Any) -> None:
        sent.append((more["event"].event_id, more["delivery"]))

    webhook_processed.connect(note)
    with caplog.at_level(logging.INFO, "django_webhook_idempotency"):
        run("--event=evt_0", "--yes", "--reason=two\nlines “quoted”")
    webhook_processed.disconnect(note)
    assert sent == [("evt_0", None)]
    asked, ran = (record.getMessage() for record in caplog.records[-2:])
    assert asked.endswith(
        r"event=evt_0 type=invoice.paid status_before=dead handler=- by=ann "
        r'reason="two\nlines \u201cquoted\u201d"'
    )
    assert "webhook run" in ran
    assert "outcome=processed" in ran


def test_the_page_names_every_option() -> None:
    command = load_command_class("django_webhook_idempotency", "replay_webhooks")
    text = (ROOT / "docs/replay.md").read_text()
    assert [name for name in own_options(command) if f"`{name}" not in text] == []


def own_options(command: BaseCommand) -> set[str]:
    def names(of: BaseCommand) -> set[str]:
        actions = of.create_parser("", "")._actions
        return {name for action in actions for name in action.option_strings}

    return names(command) - names(BaseCommand())
