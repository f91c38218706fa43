"""What Celery Beat is to do, as a dictionary and as rows of django-celery-beat."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from io import StringIO
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import crontab
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError

from django_webhook_idempotency import schedule as schedule_module
from django_webhook_idempotency.names import PURGE, RECOVER, SWEEP
from django_webhook_idempotency.schedule import PERIODIC, Periodic, beat_schedule
from tests.celery_apps import no_celery_apps

HAS_BEAT = apps.is_installed("django_celery_beat")
beat_models: Any = import_module("django_celery_beat.models") if HAS_BEAT else None

pytestmark = pytest.mark.django_db
needs_beat = pytest.mark.skipif(
    not HAS_BEAT, reason="django-celery-beat is not installed: it does not go with Django 6.1"
)


def schedule(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("schedule_webhooks", *arguments, stdout=out)
    return out.getvalue().splitlines()


def row(task: str) -> Any:
    return beat_models.PeriodicTask.objects.get(task=task)


class TestDictionary:
    def test_holds_the_sweep_the_recovery_and_the_purge(self) -> None:
        entries = beat_schedule()
        assert set(entries) == {SWEEP, RECOVER, PURGE}
        assert entries[RECOVER]["schedule"].total_seconds() == 600
        assert entries[RECOVER]["options"] == {"expires": 600}
        assert entries[SWEEP]["schedule"].total_seconds() == 10
        assert entries[PURGE]["schedule"] == crontab("17", "3")
        assert entries[SWEEP]["options"] == {"expires": 10}

    def test_beat_understands_it(self) -> None:
        with no_celery_apps():
            app = Celery("scheduled", broker="memory://", set_as_current=False)
            app.conf.beat_schedule = beat_schedule()
            scheduler = Scheduler(app, lazy=True)
            scheduler.merge_inplace(app.conf.beat_schedule)
            assert {entry.task for entry in scheduler.schedule.values()} == {SWEEP, RECOVER, PURGE}
            assert 0 < scheduler.schedule[SWEEP].is_due().next <= 10

    def test_needs_no_settings(self) -> None:
        """The project's celery.py imports it before there are any."""
        program = "from django_webhook_idempotency.schedule import beat_schedule; beat_schedule()"
        environment = {"PATH": "", "PYTHONPATH": ":".join(sys.path)}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@needs_beat
class TestRows:
    def test_are_created_once(self) -> None:
        assert all("created" in line for line in schedule())
        before = list(beat_models.PeriodicTask.objects.values())
        assert all("as it should be" in line for line in schedule())
        assert list(beat_models.PeriodicTask.objects.values()) == before
        assert beat_models.PeriodicTask.objects.count() == 3
        assert beat_models.IntervalSchedule.objects.count() == 2
        assert (row(SWEEP).interval.every, row(SWEEP).expire_seconds) == (10, 10)
        assert (row(PURGE).crontab.hour, row(PURGE).crontab.minute) == ("3", "17")

    def test_say_what_the_dictionary_says(self) -> None:
        schedule()
        for name, entry in beat_schedule().items():
            made = row(name)
            expected = entry["schedule"]
            if name in (SWEEP, RECOVER):
                assert made.schedule.run_every == expected
            else:
                assert (made.schedule.hour, made.schedule.minute) == (
                    expected.hour,
                    expected.minute,
                )
            assert made.expires_ == entry["options"]["expires"]
            assert made.enabled

    def test_a_dry_run_changes_nothing(self) -> None:
        assert all("would be created" in line for line in schedule("--dry-run"))
        assert beat_models.PeriodicTask.objects.count() == 0
        assert beat_models.IntervalSchedule.objects.count() == 0
        schedule()
        assert all("would be removed" in line for line in schedule("--dry-run", "--remove"))
        assert beat_models.PeriodicTask.objects.count() == 3

    def test_a_schedule_that_is_there_twice_is_used(self) -> None:
        for _ in range(2):
            beat_models.IntervalSchedule.objects.create(every=10, period="seconds")
        schedule()
        assert beat_models.IntervalSchedule.objects.filter(every=10).count() == 2

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"enabled": False}, "disabled"),
            ({"queue": "slow"}, "queue slow"),
            ({"priority": 9}, "priority 9"),
            ({"expire_seconds": 99}, "expires after 99 s"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_an_operator_changed_is_left_and_told(
        self, change: dict[str, Any], said: str
    ) -> None:
        schedule()
        for name, value in change.items():
            changed = row(SWEEP)
            setattr(changed, name, value)
            changed.save()
        (line,) = [line for line in schedule() if SWEEP in line]
        assert "left as it was changed" in line
        assert said in line
        assert "not every 10 seconds" in line
        for name, value in change.items():
            assert getattr(row(SWEEP), name) == value

    def test_another_interval_or_crontab_is_left_too(self) -> None:
        schedule()
        sweep = row(SWEEP)
        sweep.interval = beat_models.IntervalSchedule.objects.create(every=2, period="minutes")
        sweep.save()
        purge = row(PURGE)
        purge.crontab = beat_models.CrontabSchedule.objects.create(hour="1", minute="*/5")
        purge.save()
        lines = schedule()
        assert "every 2 minutes" in lines[0]
        assert "crontab */5 1" in lines[2]
        assert ["left as it was changed" in line for line in lines] == [True, False, True]
        assert row(SWEEP).interval.every == 2

    def test_a_row_of_the_operators_own_is_no_reason_for_a_second(self) -> None:
        interval = beat_models.IntervalSchedule.objects.create(every=1, period="minutes")
        beat_models.PeriodicTask.objects.create(name="mine", task=SWEEP, interval=interval)
        assert "left as it was changed (every 1 minutes" in schedule()[0]
        assert row(SWEEP).name == "mine"

    def test_a_new_default_arrives_where_nobody_changed_the_old(self, monkeypatch: Any) -> None:
        schedule()
        renamed = row(SWEEP)
        renamed.name = "webhooks"
        renamed.save()
        newer = [
            Periodic(periodic.task, periodic.description, expires=77, hour=4, minute=5)
            for periodic in PERIODIC
        ]
        monkeypatch.setattr(schedule_module, "PERIODIC", newer)
        module = "django_webhook_idempotency.management.commands.schedule_webhooks"
        monkeypatch.setattr(f"{module}.PERIODIC", newer)
        assert all("updated (daily at 04:05" in line for line in schedule())
        assert row(SWEEP).interval is None
        assert (row(SWEEP).crontab.hour, row(SWEEP).name) == ("4", "webhooks")
        assert all("as it should be" in line for line in schedule())

    def test_are_removed(self) -> None:
        interval = beat_models.IntervalSchedule.objects.create(every=10, period="seconds")
        beat_models.PeriodicTask.objects.create(name="shop", task="shop.tick", interval=interval)
        schedule()
        assert all("removed" in line for line in schedule("--remove"))
        assert [left.name for left in beat_models.PeriodicTask.objects.all()] == ["shop"]
        assert all("nothing to remove" in line for line in schedule("--remove"))

    def test_beat_is_told_of_a_change(self) -> None:
        schedule()
        assert beat_models.PeriodicTasks.last_change() is not None


class TestWithoutBeat:
    @needs_beat
    def test_not_in_installed_apps(self, settings: Any) -> None:
        settings.INSTALLED_APPS = [
            name for name in settings.INSTALLED_APPS if name != "django_celery_beat"
        ]
        with pytest.raises(CommandError, match="is not in INSTALLED_APPS"):
            schedule()

    def test_not_installed(self, monkeypatch: Any) -> None:
        monkeypatch.setitem(sys.modules, "django_celery_beat", None)
        with pytest.raises(CommandError, match=r"django-webhook-idempotency\[celery\]"):
            schedule()


@needs_beat
def test_before_migrate_it_says_what_to_do(monkeypatch: Any) -> None:
    monkeypatch.setattr(beat_models.PeriodicTask._meta, "db_table", "not_there_yet")
    with pytest.raises(CommandError, match="migrate first"):
        schedule()
