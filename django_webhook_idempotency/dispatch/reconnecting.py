"""A delivery that finds its connection dead takes another, instead of the next one's chances.

A process keeps its connection from request to request (`CONN_MAX_AGE`), and a restart or fail-over
of the database shows at the first statement on it: by then a provider that sends everything once
has sent it.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import DatabaseError, connections

from .. import ledger
from ..models import WebhookEvent
from .work import Result, Work


def deliver_once_more(
    deliver: Callable[[WebhookEvent, Work], Result], event: WebhookEvent, work: Work
) -> Result:
    """Deliver, and again if a connection from before this request broke before a handler ran.

    Raises what `deliver` raises.
    """
    using = ledger.alias()
    before = connections[using].connection
    try:
        return deliver(event, work)
    except DatabaseError:
        old = before is not None and ledger.was_lost(using, before)
        if not old or work.report.ran:
            raise
    return deliver(event, work)
