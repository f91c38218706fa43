"""The list of deliveries and the page of one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.test import Client

from django_webhook_idempotency.enums import Outcome
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from tests.admin.conftest import DELIVERIES, EVENTS, address
from tests.admin.sample import FINGERPRINT, Sample

Listed = Callable[..., list[int]]
Text = Callable[..., str]
LIST_QUERIES = 6  # session, user, page of rows, their events, first and last day
PAGE_QUERIES = 4  # session, user, the delivery, its event


def test_a_row_says_what_was_decided(text_of: Text, sample: Sample) -> None:
    event = sample.event("slack", "Ev08", "message.channels", {})
    sample.delivery(
        event, Outcome.DUPLICATE, 200, 2_500, retry_number=1, retry_reason="http_timeout",
        conflict=True, note="why it is so",
    )  # fmt: skip
    page = text_of(address(DELIVERIES))
    row = page.split("<tbody>")[1].split("</tbody>")[0]
    assert f'<a href="{address(EVENTS, event.pk)}">' in row
    for text in (
        ">duplicate<", ">Slack<", "message.channels", "Ev08", "200<", "2.50 s of 3 s",
        "near deadline", "retry 1 · http_timeout", "body differs", "why it is so",
    ):  # fmt: skip
        assert text in row, text


def test_deliveries_without_an_event_and_of_a_purged_one(text_of: Text, sample: Sample) -> None:
    event = sample.event("sangho", "gone", "t", {})
    sample.delivery(event, Outcome.PROCESSED)
    WebhookEvent.objects.filter(pk=event.pk)._raw_delete("default")
    row = text_of(address(DELIVERIES)).split("<tbody>")[1].split("</tbody>")[0]
    assert f"#{event.pk}, purged" in row
    stranger = sample.delivery(None, Outcome.REJECTED, 401, note="bad_signature")
    assert "bad_signature" in text_of(address(DELIVERIES, stranger.pk))


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({}, "abcd"),
        ({"outcome": "rejected"}, "d"),
        ({"provider": "slack"}, "bc"),
        ({"outcome": "duplicate", "provider": "slack"}, "b"),
        ({"conflict": "1"}, "c"),
        ({"retry_reason": "http_timeout"}, "b"),
        ({"retry_reason": "http*"}, "bc"),
        ({"retry_reason": "*", "outcome": "processed"}, "c"),
        ({"q": "one"}, "ab"),
        ({"q": "two", "conflict": "1"}, "c"),
        ({"q": "nobody"}, ""),
    ],
)
def test_filters_and_search(
    sample: Sample, listed: Listed, parameters: dict[str, str], found: str
) -> None:
    one = sample.event("sangho", "one", "t", {})
    two = sample.event("slack", "two", "t", {})
    deliveries = {
        "a": sample.delivery(one, Outcome.PROCESSED),
        "b": sample.delivery(
            one, Outcome.DUPLICATE, provider="slack", retry_number=1, retry_reason="http_timeout"
        ),
        "c": sample.delivery(
            two, Outcome.PROCESSED, conflict=True, retry_number=2, retry_reason="http_error"
        ),
        "d": sample.delivery(None, Outcome.REJECTED, provider="github"),
    }
    assert listed(DELIVERIES, **parameters) == [deliveries[name].pk for name in reversed(found)]


def test_the_deliveries_of_one_event(sample: Sample, listed: Listed, text_of: Text) -> None:
    one, two = sample.event("sangho", "one", "t", {}), sample.event("sangho", "two", "t", {})
    mine = sample.delivery(one, Outcome.PROCESSED)
    sample.delivery(two, Outcome.PROCESSED)
    assert listed(DELIVERIES, event=one.pk) == [mine.pk]
    assert f"#{one.pk}" in text_of(address(DELIVERIES), event=one.pk).split("By event ")[1]
    assert "By event " not in text_of(address(DELIVERIES))
    link = f'{address(DELIVERIES)}?event={one.pk}"'
    assert link in text_of(address(EVENTS, one.pk))


@pytest.mark.parametrize(
    ("name", "value"),
    [("event", "x"), ("event", "-1"), ("event", "1" * 30), ("event", "٣"), ("conflict", "2")],
)
def test_filters_that_make_no_sense(admin_client: Client, name: str, value: str) -> None:
    assert admin_client.get(address(DELIVERIES), {name: value}).status_code == 302


def test_an_event_without_a_type_is_named_by_its_id(text_of: Text, sample: Sample) -> None:
    event = sample.event("sangho", "evt_1", "", {})
    delivery = sample.delivery(event, Outcome.PROCESSED)
    for path in (address(DELIVERIES), address(DELIVERIES, delivery.pk)):
        page = text_of(path)
        assert f'<a href="{address(EVENTS, event.pk)}">' in page
        assert "evt_1" in page


def test_the_page_of_a_delivery(text_of: Text, sample: Sample) -> None:
    event = sample.event("github", "guid", "push", {}, scope="77")
    delivery = sample.delivery(event, Outcome.PROCESSED, 202, 11_000, note="a remark")
    page = text_of(address(DELIVERIES, delivery.pk))
    for text in (">processed<", "202", "11 s of 10 s", "too late", "a remark", "push", FINGERPRINT,
                 delivery.body_digest, "x-github-hook-id", "GitHub-Hookshot/044aadd"):  # fmt: skip
        assert text in page, text
    assert address(EVENTS, event.pk) in page
    assert f"{address(DELIVERIES)}?provider=github" in page


@pytest.mark.parametrize("headers", [[], "text", None, {"a": ["b"]}, {"a": {"b": 1}}])
def test_headers_of_another_shape_do_no_harm(text_of: Text, sample: Sample, headers: Any) -> None:
    event = sample.event("github", "guid", "push", {})
    delivery = sample.delivery(event, Outcome.PROCESSED, headers=headers or {})
    text_of(address(DELIVERIES, delivery.pk))
    text_of(address(EVENTS, event.pk))


@pytest.mark.parametrize("number", [1, 60])
def test_the_number_of_statements_does_not_grow(
    admin_client: Client, sample: Sample, django_assert_num_queries: Any, number: int
) -> None:
    for count in range(number):
        event = sample.event("sangho", f"evt_{count}", "t", {"big": "x" * 2_000})
        delivery = sample.delivery(
            event, Outcome.PROCESSED, after=timedelta(seconds=count), retry_reason="why"
        )
    with django_assert_num_queries(LIST_QUERIES):
        admin_client.get(address(DELIVERIES))
    with django_assert_num_queries(LIST_QUERIES):
        admin_client.get(address(DELIVERIES), {"outcome": "processed", "provider": "sangho"})
    with django_assert_num_queries(LIST_QUERIES + 1):  # where to stop looking
        admin_client.get(address(DELIVERIES), {"retry_reason": "*"})
    ContentType.objects.get_for_model(WebhookDelivery)  # kept from one request to the next
    with django_assert_num_queries(PAGE_QUERIES):
        admin_client.get(address(DELIVERIES, delivery.pk))
