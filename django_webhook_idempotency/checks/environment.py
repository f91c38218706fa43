"""Checks of the databases and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections, router
from django.utils import timezone
from django.utils.connection import ConnectionDoesNotExist

from .. import ledger
from .limits import has_own_limit
from .targets import targets

VENDORS = frozenset({"postgresql", "mysql", "sqlite"})
APP = "django_webhook_idempotency"
#: The settings of a server that let a commit return before it is on disk: name, how to ask for it,
#: and the values that do. Of PostgreSQL's, `local` and `remote_write` are about its standbys.
_DURABILITY = {
    "postgresql": [
        ("synchronous_commit", "SHOW synchronous_commit", {"off"}),
        ("fsync", "SHOW fsync", {"off"}),
    ],
    "mysql": [
        (
            "innodb_flush_log_at_trx_commit",
            "SELECT @@innodb_flush_log_at_trx_commit",
            {"0", "2"},
        )
    ],
    "sqlite": [("PRAGMA synchronous", "PRAGMA synchronous", {"0"})],
}


def check_database(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """The ledger is in a database that the claim is written for."""
    alias = ledger.alias()
    try:
        vendor = connections[alias].vendor
    except ConnectionDoesNotExist:
        problem = f"The routers send the ledger to {alias!r}, which is not in DATABASES."
    else:
        if vendor in VENDORS:
            return []
        problem = f"The ledger is in {alias!r}, whose database {vendor!r} is not supported."
    hint = f"Route {APP} to PostgreSQL, MariaDB, MySQL or SQLite in DATABASE_ROUTERS."
    return [Error(problem, hint=hint, id="webhooks.E021")]


def check_other_databases(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """What an atomic handler writes commits with the event only in the ledger's own database."""
    alias = ledger.alias()
    others = sorted(
        model._meta.label
        for model in apps.get_models()
        if model._meta.app_label != APP
        and model._meta.managed
        and router.db_for_write(model) != alias
    )
    if not others:
        return []
    shown = ", ".join(others[:3]) + (" and others" if len(others) > 3 else "")
    return [
        Warning(
            f"The ledger is in {alias!r}, and {shown} are not: what a handler writes there does "
            "not commit together with its event.",
            hint="Route the ledger to the database that handlers write to. Where they write to "
            "several, make them atomic=False and safe to run twice, and silence this check.",
            id="webhooks.W030",
        )
    ]


def check_packet(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterable[CheckMessage]:
    """MySQL and MariaDB take a body in one statement. Asks the database."""
    alias = ledger.alias()
    if alias not in (databases or ()) or connections[alias].vendor != "mysql":
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        packet = cursor.fetchone()[0]
    largest = max(
        (target for target in targets() if has_own_limit(target)),
        key=lambda target: target.provider.max_body,
        default=None,
    )
    # The driver writes quotes and backslashes as two bytes each.
    if largest is None or packet >= 2 * largest.provider.max_body:
        return []
    return [
        Warning(
            f"{largest} may send bodies of {largest.provider.max_body:,} bytes, which can take up "
            f"twice that in a statement, and max_allowed_packet of {alias!r} is {packet:,}.",
            hint="Raise max_allowed_packet on the server, such as to 64M, or lower "
            f"{largest.where('MAX_BODY')}.",
            id="webhooks.W022",
        )
    ]


def check_durability(
    app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterable[CheckMessage]:
    """What is committed outlives a crash of the server, as an acknowledgement says. Asks it."""
    alias = ledger.alias()
    if alias not in (databases or ()):
        return []
    with connections[alias].cursor() as cursor:
        lax = {}
        for name, sql, values in _DURABILITY.get(connections[alias].vendor, []):
            cursor.execute(sql)
            value = str(cursor.fetchone()[0])
            if value in values:
                lax[name] = value
    if not lax:
        return []
    shown = " and ".join(f"{name} is {value}" for name, value in lax.items())
    return [
        Warning(
            f"{shown} on {alias!r}: in a crash the database forgets what it committed last. Its "
            "providers were answered 2xx and don't send it again.",
            hint="Leave it at the server's default, for the connections of this database at "
            "least; or silence this check.",
            id="webhooks.W041",
        )
    ]


def check_clock(app_configs: Any = None, **kwargs: Any) -> Iterable[CheckMessage]:
    """Stored times never jump."""
    if settings.USE_TZ:
        return []
    zone = timezone.get_default_timezone()
    year = timezone.now().year
    if len({datetime(year, month, 1, tzinfo=zone).utcoffset() for month in range(1, 13)}) == 1:
        return []
    return [
        Warning(
            f"USE_TZ is off, and clocks in {settings.TIME_ZONE} are put forward once a year: every "
            "lease runs out at that moment, and a handler can be started beside itself.",
            hint="Set USE_TZ = True, or TIME_ZONE = 'UTC'.",
            id="webhooks.W023",
        )
    ]
