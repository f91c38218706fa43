"""What a message does in a process that runs handlers: one due event, whoever's turn it is."""

from __future__ import annotations

from django.utils import timezone

from .. import ledger
from ..models import WebhookEvent
from .blocks import closed_blocks
from .claims import Claim
from .engines import tell
from .lanes import Rotation
from .queued import run_claim
from .runs import patience

#: For how many seconds a message looks for an event to run while its own is due: all that is due
#: may be just about to be claimed by others, and where nothing sweeps no other message would come.
LOOK_TIME = 3.0

#: Shared by the threads of a process.
_rotation = Rotation()


def serve(pk: int | None = None) -> WebhookEvent | None:
    """Run one due event and return it; None if there was none.

    A message stands for one event, but not for which: so a source that sends a flood of messages
    does not make the others wait behind it, and a message that comes twice or hours late does no
    harm. `pk` is the event that the message was sent for, if it is known; it may be gone. Raises
    StoreUnavailable, or the database's own error.
    """
    claim = _claim(pk)
    if claim is None:
        return None
    try:
        with closed_blocks():
            run_claim(claim)
    finally:
        if pk is not None and pk != claim.event.pk and not claim.announced and _is_due(pk):
            # A retry, which no sweep had announced yet, had its turn with this message: without
            # another, one event would be left over that no message leads to.
            tell(pk)
    return claim.event


def _claim(pk: int | None) -> Claim | None:
    claim = _rotation.claim()
    if claim is not None or pk is None:
        return claim
    for _ in patience(LOOK_TIME):
        if not _is_due(pk):
            return None
        claim = _rotation.claim()
        if claim is not None:
            return claim
    return None


def _is_due(pk: int) -> bool:
    events = WebhookEvent.objects.using(ledger.alias())
    return events.due(timezone.now()).filter(pk=pk).exists()
