"""`manage.py schedule_webhooks`: let Celery Beat's database scheduler do what has to be done."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router, transaction

from ...exceptions import MissingExtra
from ...schedule import PERIODIC, Periodic

#: Under this a row's description says how the command left it; what differs from that now, an
#: operator has changed.
_MARK = "Set by schedule_webhooks: "


class Command(BaseCommand):
    """Parses, writes the rows of django-celery-beat, and says what it did."""

    help = (
        "Create or update the periodic tasks that webhooks need in django-celery-beat's tables. "
        "Leaves alone what was changed in the admin. Can be run at every deployment."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what can be asked for."""
        parser.add_argument(
            "--dry-run", action="store_true", help="Say what would be done, and do nothing."
        )
        parser.add_argument(
            "--remove", action="store_true", help="Delete the periodic tasks of this app."
        )

    def handle(self, *args: Any, dry_run: bool, remove: bool, **options: Any) -> None:
        """Look at each periodic task and do what is needed, all or nothing."""
        require_beat()
        from django_celery_beat.models import PeriodicTask

        using = router.db_for_write(PeriodicTask)
        if PeriodicTask._meta.db_table not in connections[using].introspection.table_names():
            raise CommandError(
                "The tables of django_celery_beat are not there. Run manage.py migrate first."
            )
        with transaction.atomic(using=using):
            for periodic in PERIODIC:
                rows = list(PeriodicTask.objects.filter(task=periodic.task).order_by("pk"))
                if remove:
                    self.remove(periodic, rows, dry_run=dry_run)
                else:
                    self.install(periodic, rows, dry_run=dry_run)

    def install(self, periodic: Periodic, rows: list[Any], *, dry_run: bool) -> None:
        """Create the row, bring it up to date, or leave it as somebody wants it."""
        from django_celery_beat.models import PeriodicTask

        if not rows:
            self.say("created", periodic, str(periodic), dry_run=dry_run)
            if not dry_run:
                # Another deployment may be at it in the same moment.
                PeriodicTask.objects.get_or_create(
                    name=periodic.task, defaults={"task": periodic.task, **columns(periodic)}
                )
        for row in rows:
            now, wanted = terms(row), terms_of(periodic)
            if now == wanted:
                self.say("as it should be", periodic, now, dry_run=False)
            elif now != left_as(row):
                self.say("left as it was changed", periodic, f"{now}; not {wanted}", dry_run=False)
            else:
                self.say("updated", periodic, f"{wanted}; it was {now}", dry_run=dry_run)
                if not dry_run:
                    for name, value in columns(periodic).items():
                        setattr(row, name, value)
                    row.save()

    def remove(self, periodic: Periodic, rows: list[Any], *, dry_run: bool) -> None:
        """Delete whatever runs the task. Its schedule may be somebody else's too, and stays."""
        for row in rows:
            self.say("removed", periodic, terms(row), dry_run=dry_run)
            if not dry_run:
                row.delete()
        if not rows:
            self.say("not there", periodic, "nothing to remove", dry_run=False)

    def say(self, done: str, periodic: Periodic, terms: str, *, dry_run: bool) -> None:
        """Print a line for one row."""
        self.stdout.write(f"{periodic.task}: {'would be ' if dry_run else ''}{done} ({terms})")


def require_beat() -> None:
    """Raise CommandError unless django-celery-beat is installed, in both senses."""
    try:
        import django_celery_beat  # noqa: F401
    except ImportError:
        raise CommandError(str(MissingExtra("celery", "schedule_webhooks"))) from None
    if not apps.is_installed("django_celery_beat"):
        raise CommandError(
            "django_celery_beat is not in INSTALLED_APPS. Add it and run migrate; or, without the "
            "database scheduler, put django_webhook_idempotency.schedule.beat_schedule() into the "
            "Celery app's beat_schedule."
        )


def columns(periodic: Periodic) -> dict[str, Any]:
    """What a row says that nobody has changed."""
    from django_celery_beat.models import CrontabSchedule, IntervalSchedule

    interval = crontab = None
    if periodic.every is not None:
        interval = _one(
            IntervalSchedule.objects.all(),
            every=int(periodic.every.total_seconds()),
            period=IntervalSchedule.SECONDS,
        )
    else:
        crontab = _one(
            CrontabSchedule.objects.all(),
            **{
                **dict.fromkeys(("day_of_week", "day_of_month", "month_of_year"), "*"),
                "minute": str(periodic.minute),
                "hour": str(periodic.hour),
                "timezone": CrontabSchedule().timezone,
            },
        )
    return {
        "interval": interval,
        "crontab": crontab,
        "expire_seconds": periodic.expires,
        "description": f"{periodic.description}\n{_MARK}{terms_of(periodic)}",
    }


def _one(rows: Any, **values: Any) -> Any:
    """A row with these values; there may be several, for nothing keeps them from being doubled."""
    return rows.filter(**values).first() or rows.create(**values)


def terms_of(periodic: Periodic) -> str:
    """The terms on which a task is to run."""
    return f"{periodic}, expires after {periodic.expires} s"


def terms(row: Any) -> str:
    """The terms on which a row's task runs now, in the same words."""
    crontab = row.crontab
    if row.interval is not None:
        text = f"every {row.interval.every} {row.interval.period}"
    elif crontab is None:
        text = f"{row.schedule}"
    elif crontab.minute.isdigit() and crontab.hour.isdigit() and _is_daily(crontab):
        text = f"daily at {int(crontab.hour):02}:{int(crontab.minute):02}"
    else:
        text = f"crontab {crontab}"
    expires = row.expires_
    text += f", expires after {expires} s" if isinstance(expires, int) else ""
    changes = [f"{name} {getattr(row, name)}" for name in _OPERATORS if getattr(row, name)]
    return ", ".join([text, *changes, *([] if row.enabled else ["disabled"])])


#: What only an operator sets.
_OPERATORS = ("queue", "exchange", "routing_key", "priority", "one_off", "start_time")


def _is_daily(crontab: Any) -> bool:
    return (crontab.day_of_week, crontab.day_of_month, crontab.month_of_year) == ("*", "*", "*")


def left_as(row: Any) -> str:
    """The terms on which the command left a row; empty if it never touched it."""
    return str(row.description).partition(_MARK)[2].strip()
