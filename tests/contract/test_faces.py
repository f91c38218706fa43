"""One contract for every way in, atomic and leased, and for both lease stores."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction
from django.http import HttpResponse

from django_webhook_idempotency import signals
from django_webhook_idempotency.exceptions import Ignore, Reject, Retry
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.contract.conftest import Face, faces
from tests.contract.faces import ANSWERING, OWN, REGISTERED, script


def outcomes() -> list[str]:
    return list(WebhookDelivery.objects.order_by("id").values_list("outcome", flat=True))


def raises(error: Exception, times: int = 1):
    """Fail so many times, then succeed."""
    left = [error] * times

    def act(event):
        if left:
            raise left.pop()

    return act


def test_a_copy_has_no_effect(face: Face) -> None:
    """WB-001, WB-002, WB-075: one effect, and every copy of a finished event is answered 2xx."""
    answers = [face.deliver() for _ in range(4)]
    assert [answer.status_code // 100 for answer in answers] == [2, 2, 2, 2]
    assert Effect.objects.count() == 1
    assert outcomes() == ["processed", "duplicate", "duplicate", "duplicate"]
    assert answers[1].json() == {"status": "duplicate", "event": "evt_1"}
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, event.lease_token) == ("processed", 1, "")
    assert event.processed_at is not None


def test_different_ids_are_different_events(face: Face) -> None:
    face.deliver("evt_1")
    face.deliver("evt_2")
    assert Effect.objects.count() == 2


def test_a_failed_event_runs_when_it_comes_again(face: Face) -> None:
    """WB-009, WB-010, WB-021: failure never consumes an event."""
    script.act = raises(ValueError("broken"), times=2)
    answers = [face.deliver() for _ in range(4)]
    assert [answer.status_code // 100 for answer in answers] == [5, 5, 2, 2]
    assert outcomes() == ["failed", "failed", "processed", "duplicate"]
    # What an atomic handler wrote before it failed is undone; a leased one's is not.
    assert Effect.objects.count() == (1 if face.atomic else 3)
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, event.last_error) == ("processed", 3, "")
    assert [run.error_class for run in HandlerRun.objects.order_by("id")] == [
        "ValueError",
        "ValueError",
        "",
    ]


def test_a_failed_event_can_be_seen(face: Face) -> None:
    """WB-038: row, error, traceback and body outlive the rollback."""
    script.act = raises(ValueError("broken"))
    body = face.deliver().wsgi_request.body
    event = WebhookEvent.objects.get()
    assert event.status == "failed"
    assert event.last_error == "ValueError: broken"
    assert bytes(event.body or b"") == body
    run = HandlerRun.objects.get()
    assert (run.error_class, run.error_message, run.number) == ("ValueError", "broken", 1)
    assert "raise left.pop()" in run.traceback
    assert WebhookDelivery.objects.get().event == event


def test_the_handlers_integrity_error_is_a_failure(face: Face) -> None:
    """DESIGN promise 7: only a conflict on the dedupe key is a duplicate."""

    def conflict(event: WebhookEvent) -> None:
        if len(script.seen) == 1:
            raise IntegrityError(1062, "Duplicate entry for key 'webhook_event_dedupe_key'")

    script.act = conflict
    assert face.deliver().status_code == 500
    assert outcomes() == ["failed"]
    assert face.deliver().status_code // 100 == 2
    assert outcomes() == ["failed", "processed"]


def test_reject_is_final_until_somebody_sends_it_again(face: Face) -> None:
    """Sangho stops at any 2xx, so a rejected event is answered with one."""
    script.act = raises(Reject("not ours"))
    assert face.deliver().status_code == 200
    event = WebhookEvent.objects.get()
    assert (event.status, event.last_error) == ("dead", "Reject: not ours")
    assert face.deliver().status_code // 100 == 2
    assert WebhookEvent.objects.get().status == "processed"


def test_reject_with_a_status_of_its_own(face: Face) -> None:
    script.act = raises(Reject(status=410))
    assert face.deliver().status_code == 410


def test_retry_asks_for_a_later_delivery(face: Face) -> None:
    script.act = raises(Retry("busy", after=90))
    answer = face.deliver()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "90")
    event = WebhookEvent.objects.get()
    assert event.status == "failed"
    assert event.next_attempt_at is not None
    assert 80 < (event.next_attempt_at - event.received_at).total_seconds() < 100


def test_ignore_undoes_an_atomic_handlers_writes(face: Face) -> None:
    script.act = raises(Ignore())
    answer = face.deliver()
    assert (answer.status_code, answer.json()["status"]) == (200, "ignored")
    assert Effect.objects.count() == (0 if face.atomic else 1)
    assert WebhookEvent.objects.get().status == "ignored"
    assert face.deliver().json()["status"] == "duplicate"


def test_attempts_are_used_up(face: Face, settings) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "MAX_ATTEMPTS": 2}
    script.act = raises(ValueError("broken"), times=2)
    face.deliver()
    assert WebhookEvent.objects.get().status == "failed"
    face.deliver()
    assert WebhookEvent.objects.get().status == "dead"
    # A dead letter is unfinished: sent again by a person, it runs.
    assert face.deliver().status_code // 100 == 2
    assert WebhookEvent.objects.get().status == "processed"


def test_another_body_under_the_same_id_is_a_conflict(face: Face) -> None:
    face.deliver(amount=1)
    answer = face.deliver(amount=2)
    assert (answer.status_code, answer.json()["status"]) == (200, "duplicate")
    assert Effect.objects.count() == 1
    assert list(WebhookDelivery.objects.order_by("id").values_list("conflict", flat=True)) == [
        False,
        True,
    ]


@faces([name for name in OWN if name != "keyed"], REGISTERED)
def test_an_unfinished_event_runs_from_the_body_that_was_stored(face: Face) -> None:
    """DESIGN §3: a copy whose body differs is never processed. For keys, see `test_keyed.py`."""
    script.act = raises(ValueError("broken"))
    face.deliver(amount=1)
    face.deliver(amount=2)
    assert script.bodies[0] == script.bodies[1]
    assert b'"amount": 1' in script.bodies[1]
    assert script.seen[1].data == script.seen[0].data
    assert WebhookDelivery.objects.latest("id").conflict


@faces([name for name in OWN if name != "keyed"], REGISTERED)
def test_a_wrong_signature_leaves_no_event(face: Face) -> None:
    answer = face.deliver(headers={"Sangho-Signature": "t=1700000000,v1=" + "0" * 64})
    assert (answer.status_code, answer.json()) == (401, {"status": "rejected"})
    assert not WebhookEvent.objects.exists()
    assert script.seen == []
    assert outcomes() == ["rejected"]


def test_a_wrong_method_is_refused(face: Face) -> None:
    answer = face.client.get(face.path)
    assert answer.status_code == 405
    assert "POST" in answer.headers["Allow"]


@faces([name for name in OWN if name != "below-api-view"], REGISTERED)
def test_atomic_requests_makes_no_difference(face: Face) -> None:
    """WB-037, WB-038, WB-051. Below `api_view`, see `test_a_transaction_around_it_is_refused`."""
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        script.act = raises(ValueError("broken"))
        assert [face.deliver().status_code // 100 for _ in range(3)] == [5, 2, 2]
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert Effect.objects.count() == (1 if face.atomic else 2)
    assert outcomes() == ["failed", "processed", "duplicate"]
    assert HandlerRun.objects.count() == 2


def test_a_transaction_around_it_is_refused(face: Face, caplog) -> None:
    """WB-038: whoever opens one around the receiver is told, and nothing is lost."""
    with transaction.atomic():
        answer = face.deliver()
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert not WebhookEvent.objects.exists()
    assert "transaction is open around the webhook receiver" in caplog.text


@faces(ANSWERING)
def test_a_views_answer_is_passed_on(face: Face) -> None:
    assert face.deliver().json() == {"handled": "evt_1"}


@pytest.mark.parametrize("status", [500, 422])
def test_a_view_that_answers_an_error_has_failed(face: Face, status: int) -> None:
    """What it wrote is undone, and its answer is sent."""
    left = [HttpResponse("no", status=status)]
    script.act = lambda event: left.pop() if left else None
    answer = face.deliver()
    assert (answer.status_code, answer.content) == (status, b"no")
    assert Effect.objects.count() == (0 if face.atomic else 1)
    if face.name == "keyed" and status == 422:
        # Nothing vouches for the delivery: it must not claim the id.
        assert not WebhookEvent.objects.exists()
        assert outcomes() == ["rejected"]
    else:
        assert WebhookEvent.objects.get().status == "failed"
    assert face.deliver().status_code // 100 == 2
    assert WebhookEvent.objects.get().status == "processed"


def test_an_event_is_explained_to_the_signals(face: Face) -> None:
    heard = []
    names = ["received", "processed", "duplicate", "failed", "dead"]
    receivers = {}
    for name in names:

        def hear(name=name, **sent):
            heard.append((name, sent["event"].event_id, sent["delivery"].outcome))
            raise RuntimeError("a receiver cannot undo anything")

        receivers[name] = hear
        getattr(signals, f"webhook_{name}").connect(hear, weak=False)
    try:
        script.act = raises(Reject("no"))
        for _ in range(3):
            face.deliver()
    finally:
        for name, hear in receivers.items():
            getattr(signals, f"webhook_{name}").disconnect(hear)
    assert heard == [
        ("received", "evt_1", "failed"),
        ("failed", "evt_1", "failed"),
        ("dead", "evt_1", "failed"),
        ("received", "evt_1", "processed"),
        ("processed", "evt_1", "processed"),
        ("received", "evt_1", "duplicate"),
        ("duplicate", "evt_1", "duplicate"),
    ]


def test_bodies_can_be_kept_only_while_they_are_needed(face: Face, settings) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "STORE_BODY": "unfinished"}
    script.act = raises(ValueError("broken"))
    face.deliver()
    assert WebhookEvent.objects.get().body is not None
    face.deliver()
    assert WebhookEvent.objects.get().body is None
    face.deliver("evt_2")
    assert WebhookEvent.objects.get(event_id="evt_2").body is None
    assert script.bodies[0] == script.bodies[1] != b""


def test_deliveries_need_not_be_kept(face: Face, settings) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {**settings.WEBHOOK_IDEMPOTENCY, "STORE_DELIVERIES": False}
    script.act = raises(ValueError("broken"))
    for _ in range(3):
        face.deliver()
    face.deliver(headers={"Sangho-Signature": "nonsense"})
    assert not WebhookDelivery.objects.exists()
    assert WebhookEvent.objects.get().status == "processed"
