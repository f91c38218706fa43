"""System checks: what is wrong with a project's settings, with a hint each.

Each check is a plain function. All of them run with `manage.py check --tag webhooks` too; only
those registered under `Tags.database` query the database.
"""

from __future__ import annotations

from django.core.checks import Tags
from django.core.checks import register as register_check

from .environment import (
    check_clock,
    check_database,
    check_durability,
    check_other_databases,
    check_packet,
)
from .ids import IDS
from .limits import check_quarantine, check_retention, check_uploads
from .options import check_options, check_own_problems, check_settings
from .order import check_order
from .queues import check_enqueue_timeout, check_queue, check_queued_views
from .recovery import check_recovery
from .secrets import check_secrets
from .stores import check_store
from .urlconf import check_handlers, check_views

__all__ = ["IDS", "register"]

TAG = "webhooks"


def register() -> None:
    """Register every check; called once when the app is ready."""
    for check in (check_settings, check_options, check_own_problems):
        register_check(check, TAG)
    register_check(check_secrets, TAG, Tags.security)
    register_check(check_retention, TAG)
    register_check(check_uploads, TAG)
    register_check(check_quarantine, TAG)
    register_check(check_store, TAG, Tags.caches)
    for check in (check_database, check_other_databases, check_clock):
        register_check(check, TAG)
    for check in (check_packet, check_durability):
        register_check(check, TAG, Tags.database)
    for check in (check_queue, check_enqueue_timeout, check_queued_views):
        register_check(check, TAG)
    register_check(check_views, TAG, Tags.urls)
    register_check(check_handlers, TAG)
    register_check(check_order, TAG)
    register_check(check_recovery, TAG)
