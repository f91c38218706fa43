"""`manage.py purge_webhooks`: what can be asked for, what is refused, what is printed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import override_settings
from django.utils import timezone

from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.management.arguments import point_in_time
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from tests.test_retention import BODY, KEY, ago, make_delivery, make_event, make_run, orphans

#: Listens to Ctrl-C even where the tests run in the background, which ignores it.
MANAGE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def purge(*arguments: str, out: io.StringIO | None = None, **options: Any) -> str:
    out = out or io.StringIO()
    call_command("purge_webhooks", *arguments, stdout=out, no_color=True, **options)
    return out.getvalue()


def rows(printed: str) -> dict[str, list[str]]:
    lines = [line.split() for line in printed.splitlines()]
    return {cells[0]: cells[1:] for cells in lines}


@pytest.mark.django_db
class TestCommand:
    def test_it_purges_and_prints_what_went(self) -> None:
        event = make_event(KEY + 1)
        make_run(event)
        make_delivery(KEY + 1, event)
        make_event(BODY + 1)
        make_event(KEY + 1, "github", status=EventStatus.DEAD)
        printed = rows(purge())
        assert printed["gone"] == ["keys", "bodies", "deliveries", "runs", "ordering", "quarantine"]
        assert printed["stripe"] == ["1", "1", "1", "1", "0", "0"]
        assert printed["github"] == ["0", "0", "0", "0", "0", "0"]
        assert printed["total"] == ["1", "1", "1", "1", "0", "0"]
        assert WebhookEvent.objects.count() == 2

    def test_a_dry_run_prints_the_same_and_removes_nothing(self) -> None:
        for days in (KEY + 1, BODY + 1, 1):
            make_delivery(days, make_event(days))
        counted = purge("--dry-run")
        assert counted.startswith("would go")
        assert WebhookEvent.objects.exclude(body=None).count() == 3
        assert WebhookDelivery.objects.count() == 3
        assert rows(purge())["total"] == rows(counted)["total"] == ["1", "1", "2", "0", "0", "0"]

    def test_large_numbers_can_be_read(self) -> None:
        WebhookDelivery.objects.bulk_create(
            WebhookDelivery(provider="stripe", status=401, received_at=ago(99)) for _ in range(1200)
        )
        assert rows(purge())["total"] == ["0", "0", "1,200", "0", "0", "0"]

    def test_providers_can_be_chosen(self) -> None:
        for provider in ("stripe", "github", "slack"):
            make_event(KEY + 1, provider)
        printed = rows(purge("--provider", "stripe", "--provider", "slack"))
        assert printed.keys() == {"gone", "stripe", "slack", "total"}
        assert WebhookEvent.objects.get().provider == "github"

    def test_a_provider_that_is_configured_no_longer_can_be_chosen(self) -> None:
        make_event(KEY + 1, "gone")
        assert rows(purge("--provider", "gone"))["total"][0] == "1"

    def test_a_misspelt_provider_is_refused(self) -> None:
        make_event(KEY + 1)
        with pytest.raises(CommandError, match=r"'strpe' is not known. Known: .*stripe"):
            purge("--provider", "strpe")
        assert WebhookEvent.objects.count() == 1

    def test_settings_that_cannot_be_read_stop_it(self) -> None:
        make_event(KEY + 1)
        settings = {"PROVIDERS": {"stripe": {"RETENTION": 90}}}
        with (
            override_settings(WEBHOOK_IDEMPOTENCY=settings),
            pytest.raises(CommandError, match=r"Nothing was deleted. Option 'RETENTION'"),
        ):
            purge()
        assert WebhookEvent.objects.count() == 1

    def test_nothing_is_printed_where_nobody_wants_it(self) -> None:
        make_event(KEY + 1)
        assert purge(verbosity=0, out=Terminal()) == ""
        assert not WebhookEvent.objects.exists()

    def test_a_terminal_gets_a_progress_bar_and_a_file_does_not(self) -> None:
        for _ in range(6):
            make_event(KEY + 1)
        out = Terminal()
        shown = purge("--provider=stripe", "--batch-size=3", "--pause=0", out=out)
        assert "\r[" in shown
        assert "stripe keys" in shown
        assert shown.index("\r[") < shown.rindex("\r\033[K") < shown.index("gone")
        make_event(KEY + 1)
        assert "\r" not in purge()

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--batch-size", "0"),
            ("--batch-size", "x"),
            ("--pause", "-1"),
            ("--max-seconds", "soon"),
            ("--before", "yesterday"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, arguments: tuple[str, str]) -> None:
        with pytest.raises(CommandError, match=arguments[0]):
            purge(*arguments)


@pytest.mark.django_db
class TestWindow:
    """WB-082: a key has to outlive the provider's window."""

    short = {"PROVIDERS": {"stripe": {"RETENTION": timedelta(days=7)}, "github": {}}}

    @pytest.mark.parametrize("arguments", [(), ("--dry-run",), ("--provider", "stripe")])
    def test_a_retention_under_the_window_is_refused(self, arguments: tuple[str, ...]) -> None:
        make_event(KEY + 1, "github")
        make_event(14)
        with (
            override_settings(WEBHOOK_IDEMPOTENCY=self.short),
            pytest.raises(
                CommandError,
                match=r"Nothing was deleted\. Provider 'stripe' can send an event again for 30 "
                r"days, and keys would be kept for 7 days\.",
            ),
        ):
            purge(*arguments)
        assert WebhookEvent.objects.count() == 2

    def test_other_providers_can_still_be_purged(self) -> None:
        make_event(KEY + 1, "github")
        with override_settings(WEBHOOK_IDEMPOTENCY=self.short):
            assert rows(purge("--provider", "github"))["total"][0] == "1"

    def test_force_does_it_all_the_same(self) -> None:
        make_event(14)
        make_event(6)
        with override_settings(WEBHOOK_IDEMPOTENCY=self.short):
            assert rows(purge("--force"))["total"][0] == "1"

    def test_a_vendors_own_floor_counts(self) -> None:
        make_event(4, "sangho")
        with pytest.raises(CommandError, match="again for 3 days, and keys would be kept for 2 d"):
            purge("--provider", "sangho", "--before", "2d")
        assert rows(purge("--provider", "sangho", "--before", "3d"))["total"][0] == "1"

    def test_before_inside_the_window_is_refused(self) -> None:
        make_event(6)
        with pytest.raises(CommandError, match="Nothing was deleted"):
            purge("--before", "5d")
        assert rows(purge("--before", "5d", "--force"))["total"][0] == "1"


class TestPointInTime:
    @pytest.mark.parametrize(
        ("text", "age"),
        [
            ("90d", timedelta(days=90)),
            ("12h", timedelta(hours=12)),
            ("30m", timedelta(minutes=30)),
            ("45s", timedelta(seconds=45)),
            ("2w", timedelta(days=14)),
        ],
    )
    def test_an_age(self, text: str, age: timedelta) -> None:
        assert abs(timezone.now() - age - point_in_time(text)) < timedelta(seconds=30)

    @override_settings(USE_TZ=True, TIME_ZONE="Europe/Madrid")
    def test_a_date_or_time_is_the_projects_own(self) -> None:
        assert point_in_time("2026-07-01").isoformat() == "2026-07-01T00:00:00+02:00"
        assert point_in_time("2026-01-31T12:30").isoformat() == "2026-01-31T12:30:00+01:00"
        assert point_in_time("2026-01-31 12:30Z").isoformat() == "2026-01-31T12:30:00+00:00"

    @override_settings(USE_TZ=False, TIME_ZONE="UTC")
    def test_without_time_zones_it_is_naive(self) -> None:
        assert point_in_time("2026-07-01") == datetime(2026, 7, 1)
        assert point_in_time("2026-07-01T12:00Z") == datetime(2026, 7, 1, 12)
        assert point_in_time("1d").tzinfo is None

    @pytest.mark.parametrize("text", ["", "d", "1y", "-5d", "2026-13-01", "2026-02-30", "9999999d"])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(ArgumentTypeError):
            point_in_time(text)


@pytest.mark.django_db(transaction=True)
class TestStopping:
    def fill(self, number: int) -> None:
        for _ in range(number):
            make_delivery(KEY + 1, make_event(KEY + 1))

    def test_the_time_limit_shows_in_the_exit_status(self) -> None:
        """WB-086: a job that left something is not green."""
        self.fill(3)
        with pytest.raises(CommandError, match="Run it again to go on") as stopped:
            purge("--max-seconds", "0")
        assert stopped.value.returncode == 3
        assert rows(purge("--max-seconds", "600"))["total"][0] == "3"
        assert rows(purge("--max-seconds", "0"))["total"][0] == "0"

    def test_ctrl_c_leaves_a_table_of_what_went(self) -> None:
        class Impatient(Terminal):
            def write(self, text: str) -> int:
                if "stripe keys" in text:
                    raise KeyboardInterrupt
                return super().write(text)

        self.fill(3)
        out = Impatient()
        with pytest.raises(CommandError, match="Interrupted") as stopped:
            purge("--provider=stripe", "--batch-size=1", "--pause=0", out=out)
        assert stopped.value.returncode == 130
        assert rows(out.getvalue().split("\r")[-1])["total"] == ["1", "0", "3", "0", "0", "0"]

    @pytest.mark.parametrize("lasts", [True, False])
    def test_a_database_that_is_locked_is_tried_again_a_few_times(
        self, monkeypatch: pytest.MonkeyPatch, lasts: bool
    ) -> None:
        monkeypatch.setattr("django_webhook_idempotency.retention.purge.TRY_PAUSE", 0)
        self.fill(2)
        failures = 100 if lasts else 3

        def lock(execute: Any, sql: str, *rest: Any) -> Any:
            nonlocal failures
            if sql.startswith("DELETE") and failures:
                failures -= 1
                raise OperationalError("database is locked")
            return execute(sql, *rest)

        with connection.execute_wrapper(lock):
            if not lasts:
                assert rows(purge())["total"] == ["2", "0", "2", "0", "0", "0"]
                return
            with pytest.raises(CommandError, match=r"database is locked\. Run it again"):
                purge()
        assert failures == 94
        assert WebhookEvent.objects.count() == 2

    def test_another_failure_of_the_database_is_not(self) -> None:
        self.fill(1)

        def fail(execute: Any, sql: str, *rest: Any) -> Any:
            if sql.startswith("DELETE"):
                raise OperationalError("disk full")
            return execute(sql, *rest)

        with connection.execute_wrapper(fail), pytest.raises(CommandError, match="disk full"):
            purge()

    def start(self, database_url: str) -> subprocess.Popen[str]:
        """A purge in a process of its own that deletes a row every now and then."""
        environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        }
        arguments = ["purge_webhooks", "--batch-size", "1", "--pause", "0.02"]
        return subprocess.Popen(
            [sys.executable, "-c", MANAGE, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_keys(self, process: subprocess.Popen[str], fewer_than: int) -> None:
        deadline = time.monotonic() + 120
        while WebhookEvent.objects.count() >= fewer_than:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @pytest.mark.parametrize(
        ("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
    )
    def test_a_purge_that_is_killed_goes_on_when_it_is_started_again(
        self, database_url: str, number: int, status: int
    ) -> None:
        self.fill(80)
        process = self.start(database_url)
        try:
            self.wait_for_keys(process, 78)
            process.send_signal(number)
            printed, problem = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == status, problem
        assert ("Interrupted" in problem) == (number == signal.SIGINT)
        left = WebhookEvent.objects.count()
        assert 0 < left < 80
        if number == signal.SIGINT:
            # Ctrl-C can come between a commit and its entry in the table.
            assert int(rows(printed)["total"][0]) in (80 - left, 79 - left)
        assert orphans() == 0
        assert rows(purge())["total"][0] == str(left)
        assert not WebhookEvent.objects.exists()
        assert not WebhookDelivery.objects.exists()
