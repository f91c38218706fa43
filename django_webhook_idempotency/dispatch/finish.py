"""Write where a claimed event stands, and know one's own writing again if the answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import ledger
from ..exceptions import LeaseLost
from ..models import WebhookEvent
from .runs import insist

#: Bytes, which databases give back in forms of their own; the rest of a row tells enough.
_NOT_COMPARED = frozenset({"body", "response_body"})


def finish(
    event: WebhookEvent,
    token: str,
    changes: Mapping[str, Any],
    also: Callable[[], object] | None = None,
) -> None:
    """Write what became of a claimed event, despite a passing fault; `also` in one transaction.

    Raises LeaseLost if the claim is somebody else's by now.
    """
    using, tries = ledger.alias(), 0

    def write() -> None:
        nonlocal tries
        tries += 1
        try:
            if also is None:
                ledger.write_finish(event, token, changes)
                return
            with ledger.own_transaction(using):
                ledger.write_finish(event, token, changes)
                also()
        except LeaseLost:
            if tries == 1 or not is_written(event, changes):
                raise

    insist(using, write)
    ledger.adopt(event, changes)


def is_written(event: WebhookEvent, changes: Mapping[str, Any]) -> bool:
    """Whether the event's row is as these changes leave it: only the answer to them was lost."""
    meant = {"attempts": event.attempts, **ledger.UNLEASED, **changes}
    meant = {name: value for name, value in meant.items() if name not in _NOT_COMPARED}
    rows = WebhookEvent.objects.using(ledger.alias()).filter(pk=event.pk)
    return meant in rows.values(*meant)
