"""A few weeks in the life of a receiver: five providers, every status and every outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django_webhook_idempotency.enums import EventStatus, Outcome
from tests.admin.sample import FINGERPRINT, FORM, Sample, raised


def charge(sample: Sample, event_type: str = "payment_intent.succeeded") -> tuple[str, Any]:
    """A Stripe event."""
    event_id = f"evt_1{sample.token(23)}"
    return event_id, {
        "id": event_id,
        "object": "event",
        "api_version": "2026-08-26.dahlia",
        "created": int(sample.now.timestamp()),
        "type": event_type,
        "livemode": True,
        "pending_webhooks": 1,
        "data": {
            "object": {
                "id": f"pi_3{sample.token(23)}",
                "object": "payment_intent",
                "amount": sample.random.randrange(500, 25_000),
                "currency": "eur",
                "description": "Bücher & Kaffee <Bestellung 1042>",
                "metadata": {"order": "1042", "gift": "año nuevo ✓"},
            }
        },
    }


def guid(sample: Sample) -> str:
    """A GitHub delivery id."""
    digits = f"{sample.random.getrandbits(128):032x}"
    return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def pull_request() -> dict[str, Any]:
    """A GitHub payload."""
    return {
        "action": "opened",
        "number": 42,
        "pull_request": {"title": "Fix the rounding of refunds", "draft": False, "commits": 3},
        "repository": {"full_name": "octo-shop/backend", "private": True},
        "sender": {"login": "octocat"},
    }


def fill() -> dict[str, int]:
    """Write it all; returns the numbers of the events that have something to tell."""
    sample = Sample()
    background(sample)
    return {**troubled(sample), **lively(sample)}


def background(sample: Sample) -> None:
    """Weeks of ordinary traffic."""
    for number in range(170):
        minutes = 60 + (170 - number) * 190 + sample.random.randrange(100)
        provider = sample.random.choice(["stripe", "stripe", "github", "sangho", "slack"])
        if provider == "stripe":
            event_id, document = charge(sample)
            event = sample.event(
                "stripe", event_id, document["type"], document, minutes=minutes, scope=":live"
            )
        elif provider == "github":
            event = sample.event(
                "github", guid(sample), "push", {"ref": "refs/heads/main"}, minutes=minutes,
                scope="510293847",
            )  # fmt: skip
        else:
            event_id = ("evt_" if provider == "sangho" else "Ev") + sample.token(12)
            kind = "order.paid" if provider == "sangho" else "app_mention"
            event = sample.event(provider, event_id, kind, {"id": event_id}, minutes=minutes)
        sample.delivery(event, Outcome.PROCESSED, milliseconds=sample.random.uniform(8, 240))
        if number % 9 == 0:
            sample.delivery(event, Outcome.DUPLICATE, milliseconds=3.1, after=timedelta(minutes=4))


def troubled(sample: Sample) -> dict[str, int]:
    """Failures, a dead letter, a conflict, and what strangers sent."""
    dead = sample.event(
        "standard_webhooks", f"msg_{sample.token(24)}", "invoice.voided",
        {"type": "invoice.voided", "data": {"invoice": "2026-0917"}}, EventStatus.DEAD, minutes=47,
        attempts=20, processed_at=None, last_error="Reject: invoice 2026-0917 belongs to nobody",
    )  # fmt: skip
    sample.delivery(dead, Outcome.FAILED, 200, 58.2)
    sample.run(dead, 20, raised(LookupError("invoice 2026-0917 belongs to nobody")))
    conflict = sample.event(
        "sangho", f"evt_{sample.token(14)}", "order.paid", {"id": "evt", "total": "19.90"},
        minutes=33,
    )  # fmt: skip
    sample.delivery(conflict, Outcome.PROCESSED, milliseconds=101)
    sample.delivery(
        conflict, Outcome.DUPLICATE, milliseconds=4, after=timedelta(minutes=1), conflict=True
    )
    error = raised(ValueError("Order 1042 is not in the books <yet>"))
    event_id, document = charge(sample, "charge.refunded")
    failed = sample.event(
        "stripe", event_id, "charge.refunded", document, EventStatus.FAILED, minutes=18,
        scope=":live", attempts=3, processed_at=None, last_error=f"ValueError: {error}",
        next_attempt_at=sample.now + timedelta(minutes=7),
    )  # fmt: skip
    for number in (1, 2, 3):
        sample.delivery(
            failed, Outcome.FAILED, 500, 341.7, after=timedelta(minutes=5 * (number - 1))
        )
        sample.run(failed, number, error)
    strangers = [
        (Outcome.REJECTED, 401, "stripe", "bad_signature"),
        (Outcome.REJECTED, 401, "slack", "stale_timestamp"),
        (Outcome.MALFORMED, 400, "sangho", "The delivery carries no event id."),
        (Outcome.TOO_LARGE, 413, "stripe", "The body has more than 5242880 bytes."),
    ]
    for outcome, status, provider, note in strangers:
        sample.delivery(
            None, outcome, status, 1.4, provider=provider, note=note, after=timedelta(minutes=-9)
        )
    return {"failed": failed.pk, "dead": dead.pk, "conflict": conflict.pk}


def lively(sample: Sample) -> dict[str, int]:
    """Retries with their reasons, slow answers, forms, and what is still under way."""
    late = sample.event(
        "slack", "Ev08" + sample.token(7), "message.channels",
        {"type": "event_callback", "event": {"type": "message", "text": "deploy please"}},
        minutes=11, scope="A0BCD1234",
    )  # fmt: skip
    sample.delivery(late, Outcome.PROCESSED, milliseconds=3412)
    sample.delivery(
        late, Outcome.DUPLICATE, 200, 5, after=timedelta(seconds=4),
        retry_number=1, retry_reason="http_timeout",
    )  # fmt: skip
    fields = {"command": "/deploy", "text": "backend now", "trigger_id": "13345224609.738474920",
              "team_id": "T0123", "user_name": "someone"}  # fmt: skip
    command = sample.event(
        "slack", fields["trigger_id"], "/deploy", urlencode(fields).encode(), minutes=9,
        scope="A0BCD1234:T0123", content_type=FORM,
    )  # fmt: skip
    sample.delivery(command, Outcome.PROCESSED, milliseconds=2640)
    opened = sample.event(
        "github", guid(sample), "pull_request.opened", pull_request(), minutes=6, scope="510293847"
    )
    sample.delivery(opened, Outcome.PROCESSED, milliseconds=8420)
    twin = sample.event(
        "github", guid(sample), "pull_request.opened", pull_request(), minutes=5, scope="510293847"
    )
    sample.delivery(
        twin, Outcome.PROCESSED, milliseconds=91, conflict=True,
        note=f"same body as event {opened.pk}, under another id",
    )  # fmt: skip
    sample.delivery(
        None, Outcome.HANDSHAKE, 200, 1, provider="slack", secret_fingerprint=FINGERPRINT
    )
    quiet = sample.event(
        "github", guid(sample), "star.created", {"action": "created"}, EventStatus.IGNORED,
        minutes=4, scope="510293847", attempts=0,
    )  # fmt: skip
    sample.delivery(quiet, Outcome.IGNORED, milliseconds=6.3)
    event_id, document = charge(sample, "customer.updated")
    old = sample.event(
        "stripe", event_id, "customer.updated", document, EventStatus.SUPERSEDED, minutes=3,
        scope=":live",
    )  # fmt: skip
    sample.delivery(old, Outcome.SUPERSEDED, milliseconds=15)
    running = sample.event(
        "sangho", f"evt_{sample.token(14)}", "export.requested", {"rows": 120_000},
        EventStatus.PROCESSING, minutes=1, processed_at=None,
        lease_expires_at=sample.now + timedelta(seconds=40), lease_token="f" * 32,
    )  # fmt: skip
    sample.delivery(running, Outcome.IN_PROGRESS, 503, 2003, after=timedelta(seconds=20))
    stored = sample.event(
        "sangho", f"evt_{sample.token(14)}", "order.paid", {"total": "7.10"}, EventStatus.PENDING,
        minutes=0.2, attempts=0, processed_at=None,
    )  # fmt: skip
    sample.delivery(stored, Outcome.ACCEPTED, 202, 9)
    return {"late": late.pk, "form": command.pk, "twin": twin.pk}
