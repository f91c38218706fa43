"""What a message does in a process that runs handlers: one due event, whoever's turn it is."""

from __future__ import annotations

from .lanes import Rotation
from .queued import run_claim

#: Shared by the threads of a process.
_rotation = Rotation()


def serve() -> bool:
    """Run one due event; False if there was none.

    A message stands for one event, but not for which: so a source that sends a flood of messages
    does not make the others wait behind it, and a message that comes twice or hours late does no
    harm. Raises the database's own error.
    """
    claim = _rotation.claim()
    if claim is None:
        return False
    run_claim(claim)
    return True
