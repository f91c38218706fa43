"""The page of one event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_webhook_idempotency.admin import details
from django_webhook_idempotency.enums import EventStatus, Outcome
from django_webhook_idempotency.models import HandlerRun, HandlerStep, WebhookEvent
from tests.admin.conftest import DELIVERIES, EVENTS, address
from tests.admin.sample import FINGERPRINT, Sample, raised

Text = Callable[..., str]
# Session, user, the event, the start of its bodies, deliveries, runs, steps, replays.
PAGE_QUERIES = 8


def section(page: str, name: str) -> str:
    """One section of the page."""
    return page.split(f'id="webhook-{name}"')[1].split("</fieldset>")[0]


def test_every_fact_of_an_event(text_of: Text, sample: Sample) -> None:
    event = sample.event(
        "github", "guid", "pull_request.opened", {"a": 1}, EventStatus.FAILED, scope="77",
        attempts=4, last_error="ValueError: no\nreally", secondary_key="5" * 64,
        content_key="c" * 64, next_attempt_at=sample.now + timedelta(hours=1),
        lease_expires_at=sample.now + timedelta(hours=2), lease_token="f00dcafe" * 4,
    )  # fmt: skip
    page = text_of(address(EVENTS, event.pk))
    for text in (">failed<", ">GitHub<", "pull_request.opened", ">77<", "guid", f"#{event.pk}",
                 ">4<", "ValueError: no<br>really", event.dedupe_key, "5" * 64, "c" * 64,
                 event.body_digest, "application/json"):  # fmt: skip
        assert text in page, text
    assert page.count(".412 ") == 4  # received, processed, next attempt, end of the lease
    assert "?provider=github" in page


def test_the_lease_token_is_never_shown(admin_client: Client, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, lease_token="f00dcafe" * 4)
    sample.delivery(event, Outcome.PROCESSED)
    for path in (address(EVENTS), address(EVENTS, event.pk), address(DELIVERIES)):
        assert "f00dcafe" not in admin_client.get(path).content.decode()


def test_the_only_run_of_an_event_has_no_row_and_is_shown(text_of: Text, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, handled_by="shop.webhooks.only")
    runs = section(text_of(address(EVENTS, event.pk)), "runs")
    assert "<td>1</td>" in runs
    assert "<td>shop.webhooks.only</td>" in runs
    assert ">succeeded<" in runs


def test_finished_steps_are_named_and_their_results_are_not_shown(
    text_of: Text, sample: Sample, staff_client: Callable[..., Client]
) -> None:
    """What a step returned may be somebody's secret."""
    event = sample.event("github", "guid", "push", {})
    for number in range(details.SHOWN + 1):
        HandlerStep.objects.create(
            event=event, key=str(number), name=f"step-{number}", handler="a.b", result='"tok_9f"'
        )
    page = text_of(address(EVENTS, event.pk))
    steps = section(page, "steps")
    assert "<td>step-100</td>" in steps and "<td>a.b</td>" in steps
    assert "step-0<" not in steps and "Only the newest 100 are shown." in steps
    assert "tok_9f" not in page
    client = staff_client("view_webhookevent")
    assert "step-100" not in client.get(address(EVENTS, event.pk)).content.decode()


def test_a_superseded_run_is_no_failure(text_of: Text, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, EventStatus.SUPERSEDED)
    HandlerRun.objects.create(
        event=event, handler="h", number=1, started_at=sample.now, finished_at=sample.now,
        error_class="Superseded",
    )  # fmt: skip
    runs = section(text_of(address(EVENTS, event.pk)), "runs")
    assert ">superseded<" in runs
    assert "Superseded" not in runs and ">failed<" not in runs


def test_an_event_without_a_run_says_so(text_of: Text, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, EventStatus.IGNORED, attempts=0)
    assert "No handler has run" in section(text_of(address(EVENTS, event.pk)), "runs")


def test_runs_tell_how_each_ended(text_of: Text, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, handled_by="shop.webhooks.other")
    sample.run(event, 1, raised(ValueError("no such order")))
    sample.run(event, 2)
    sample.run(event, 3, finished_at=None)
    runs = section(text_of(address(EVENTS, event.pk)), "runs")
    assert [runs.count(word) for word in (">failed<", ">succeeded<", ">not finished<")] == [1, 1, 1]
    assert "ValueError: no such order" in runs
    assert "<details><summary>Traceback</summary>" in runs
    assert "Traceback (most recent call last):" in runs
    assert runs.index("<td>3</td>") < runs.index("<td>2</td>") < runs.index("<td>1</td>")
    assert "230 ms" in runs
    assert "shop.webhooks.other" not in runs


def test_deliveries_tell_what_was_decided(text_of: Text, sample: Sample) -> None:
    event = sample.event("slack", "Ev08", "app_mention", {})
    first = sample.delivery(event, Outcome.PROCESSED, 200, 3_500)
    sample.delivery(
        event, Outcome.DUPLICATE, 208, 5, after=timedelta(minutes=1), conflict=True,
        retry_number=2, retry_reason="http_timeout", note="why it is so",
    )  # fmt: skip
    deliveries = section(text_of(address(EVENTS, event.pk)), "deliveries")
    for text in (">processed<", ">duplicate<", ">208<", "3.50 s of 3 s", "too late", FINGERPRINT,
                 "retry 2 · http_timeout", "body differs", "why it is so", "3 headers",
                 "Slackbot 1.0", address(DELIVERIES, first.pk)):  # fmt: skip
        assert text in deliveries, text
    assert deliveries.index(">duplicate<") < deliveries.index(">processed<")
    assert "Only the newest" not in deliveries


def test_an_event_whose_deliveries_are_gone(text_of: Text, sample: Sample) -> None:
    event = sample.event("slack", "Ev08", "app_mention", {})
    assert "No delivery of this event is kept." in text_of(address(EVENTS, event.pk))


def test_tables_are_bounded_and_say_so(
    text_of: Text, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(details, "SHOWN", 3)
    event = sample.event("slack", "Ev08", "app_mention", {})
    for number in range(1, 5):
        sample.delivery(event, Outcome.FAILED, note=f"delivery number {number}")
        sample.run(event, number, ValueError(f"run number {number}"))
    page = text_of(address(EVENTS, event.pk))
    for name in ("deliveries", "runs"):
        part = section(page, name)
        assert "Only the newest 3 are shown." in part
        assert "number 4" in part
        assert "number 1" not in part


@pytest.mark.parametrize("number", [1, 120])
def test_the_number_of_statements_does_not_grow(
    admin_client: Client, sample: Sample, django_assert_num_queries: Any, number: int
) -> None:
    event = sample.event("slack", "Ev08", "app_mention", {})
    for count in range(number):
        sample.delivery(event, Outcome.DUPLICATE)
        sample.run(event, count, ValueError("no"))
    ContentType.objects.get_for_model(WebhookEvent)  # kept from one request to the next
    with django_assert_num_queries(PAGE_QUERIES) as captured:
        admin_client.get(address(EVENTS, event.pk))
    for query in captured.captured_queries:
        assert "COUNT(" not in query["sql"]


@pytest.mark.parametrize("provider", ["retired", "broken", "", "x" * 64, "<b>"])
def test_an_unknown_provider_does_no_harm(
    text_of: Text, sample: Sample, settings: Any, provider: str
) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"broken": {"CLASS": "no.such.Class"}}}
    event = sample.event(provider, "id", "t", {"still": "readable"})
    delivery = sample.delivery(event, Outcome.PROCESSED)
    assert '"still": "readable"' in text_of(address(EVENTS, event.pk))
    text_of(address(DELIVERIES, delivery.pk))
    text_of(address(EVENTS))
    text_of(address(DELIVERIES))


def test_the_answer_kept_for_copies(text_of: Text, sample: Sample) -> None:
    event = sample.event(
        "sangho", "evt", "t", {}, response_status=201, response_content_type="application/json",
        response_body=b'{"made": 7}',
    )  # fmt: skip
    answer = section(text_of(address(EVENTS, event.pk)), "answer")
    assert '"made": 7' in answer
    assert "201" in answer
    plain = sample.event("sangho", "evt_2", "t", {})
    assert 'id="webhook-answer"' not in text_of(address(EVENTS, plain.pk))


def test_a_pruned_body_is_told_from_an_empty_one(text_of: Text, sample: Sample) -> None:
    pruned = sample.event("sangho", "a", "t", {})
    WebhookEvent.objects.filter(pk=pruned.pk).update(body=None)
    assert "The body is not kept" in text_of(address(EVENTS, pruned.pk))
    empty = sample.event("sangho", "b", "t", b"")
    assert "The body is empty" in text_of(address(EVENTS, empty.pk))


@pytest.mark.parametrize("number", ["0", "999", "x", "9" * 30])
def test_an_event_that_is_not_there(admin_client: Client, db: None, number: str) -> None:
    response = admin_client.get(f"{address(EVENTS)}{number}/change/")
    assert (response.status_code, response["Location"]) == (302, "/admin/")
