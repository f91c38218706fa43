"""What a source has sent, in batches, with the pauses that its API asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime

from .. import ledger
from ..dispatch.intake import key_of
from ..models import WebhookEvent
from ..providers import Provider
from .base import RateLimited, Sent, Source

#: Events that are looked up with one query.
BATCH = 200
#: Seconds that a run waits for an API in all; a longer pause ends it.
PATIENCE = 60.0
#: Seconds that a pause lasts at least, so that there is an end to them.
SHORTEST_PAUSE = 1.0


class Patience:
    """The time that a run may spend waiting for an API."""

    def __init__(self) -> None:
        self.left = PATIENCE

    def wait(self, error: RateLimited) -> None:
        """Wait as the API asks; raise the error if that is too long."""
        pause = max(error.retry_after, SHORTEST_PAUSE)
        if pause > self.left:
            raise error
        self.left -= pause
        time.sleep(pause)


def batches(source: Source, since: datetime, patience: Patience) -> Iterator[dict[str, Sent]]:
    """What was sent by dedupe key; what came before an error comes before it here too."""
    batch: dict[str, Sent] = {}
    try:
        for key, each in _sent(source, since, patience):
            batch[key] = each
            if len(batch) == BATCH:
                yield batch
                batch = {}
    except Exception:
        # A source's own mistake too: else the event it stumbles over keeps the others out for ever.
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def known(batch: Mapping[str, Sent], provider: Provider) -> dict[str, WebhookEvent]:
    """What the ledger says of a batch, without the bodies, by the keys of the batch."""
    others = {
        key: key_of(provider, sent.scope, sent.also)
        for key, sent in batch.items()
        if sent.also is not None
    }
    events = WebhookEvent.objects.using(ledger.alias())
    rows = events.filter(dedupe_key__in={*batch, *others.values()}).defer("body", "response_body")
    found = {event.dedupe_key: event for event in rows}
    told = ((key, found.get(key) or found.get(others.get(key, ""))) for key in batch)
    return {key: event for key, event in told if event is not None}


def _sent(source: Source, since: datetime, patience: Patience) -> Iterator[tuple[str, Sent]]:
    """Each event once, by its dedupe key."""
    seen: set[str] = set()
    while True:
        try:
            for sent in source.sent(since):
                key = key_of(source.provider, sent.scope, sent.identity)
                if key not in seen:
                    seen.add(key)
                    yield key, sent
        except RateLimited as error:
            patience.wait(error)
        else:
            return
