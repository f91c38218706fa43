"""What every way in has in common, be it a view class or a decorator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connections

#: Options that the purge, the sweeper and the recovery read from the settings; on a view they would
#: do nothing.
NOT_ON_VIEWS = frozenset(
    {
        "retention",
        "body_retention",
        "delivery_retention",
        "quarantine_retention",
        "expect_every",
        "recovery",
    }
)


def refuse_retentions(names: Iterable[str]) -> None:
    """Raise TypeError if an option is set where whom it is for would never see it."""
    misplaced = sorted(NOT_ON_VIEWS & set(names))
    if misplaced:
        raise TypeError(
            f"{', '.join(misplaced)} cannot be set on a view. "
            "Set it in WEBHOOK_IDEMPOTENCY, in upper case."
        )


def open_to_providers(view: Any) -> Any:
    """Mark the outermost callable: no CSRF token, no login, no transaction around it.

    Django looks for these marks on what the URLconf holds, so whoever wraps the view afterwards
    has to carry them over; a system check finds who doesn't.
    """
    view.csrf_exempt = True
    view.login_required = False
    view._non_atomic_requests = set(connections)
    view.webhook_receiver = True
    return view
