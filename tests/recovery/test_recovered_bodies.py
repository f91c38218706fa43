"""A body from an API has no digest, and is compared with nothing."""

from __future__ import annotations

import hashlib

from django.utils import timezone

from django_webhook_idempotency.dispatch.intake import new_event
from django_webhook_idempotency.providers import Identity, Incoming, configured_provider

BODY = b'{"action": "opened"}'


def event_with(body_digest: str):
    return new_event(
        configured_provider("github", {"SAME_BODY": "refuse"}),
        Incoming.stored(BODY, "application/json"),
        Identity("guid-1", "issues"),
        scope="",
        content_type="application/json",
        body_digest=body_digest,
        received_at=timezone.now(),
    )


def test_bodies_without_a_digest_are_not_all_the_same_body():
    assert not event_with("").content_key


def test_a_body_with_a_digest_is_still_known_again():
    digest = hashlib.sha256(BODY).hexdigest()

    assert event_with(digest).content_key == event_with(digest).content_key != ""
