"""The list of events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.admin import summaries
from django_webhook_idempotency.enums import EventStatus, Outcome
from tests.admin.conftest import EVENTS, address
from tests.admin.sample import Sample

Listed = Callable[..., list[int]]
Text = Callable[..., str]
LIST_QUERIES = 6  # session, user, page of rows, their deliveries, first and last day


def row_of(client: Client, **parameters: Any) -> str:
    """The only row of the list, as HTML."""
    page = client.get(address(EVENTS), parameters).content.decode()
    rows = page.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]
    assert len(rows) == 1, rows
    return rows[0]


def test_a_row_says_what_happened(admin_client: Client, sample: Sample) -> None:
    event = sample.event(
        "slack", "Ev08", "message.channels", {}, EventStatus.DEAD, scope="A0B", attempts=3
    )
    sample.delivery(event, Outcome.FAILED, 500, 120)
    sample.delivery(
        event, Outcome.FAILED, 500, 9, after=timedelta(minutes=1),
        retry_number=1, retry_reason="http_error",
    )  # fmt: skip
    sample.delivery(
        event, Outcome.FAILED, 500, 9, after=timedelta(minutes=5),
        retry_number=2, retry_reason="http_timeout",
    )  # fmt: skip
    row = row_of(admin_client)
    assert address(EVENTS, event.pk) in row
    for text in ("message.channels", "Ev08", ">dead letter<", ">Slack<", ">A0B<", "120 ms of 3 s"):
        assert text in row, text
    assert '<div class="webhook-small">3 attempts</div>' in row
    assert '<td class="field-copies">2<' in row
    assert "retry 2 · http_timeout" in row
    assert "http_error" not in row
    assert f"{timezone.localtime(event.received_at):%H:%M:%S}" in row


@pytest.mark.parametrize(
    ("milliseconds", "text", "warning"),
    [
        (8_000, "8 s of 10 s", None),
        (8_001, "8.00 s of 10 s", "near deadline"),
        (10_000, "10 s of 10 s", "near deadline"),
        (10_001, "10.00 s of 10 s", "too late"),
    ],
)
def test_the_first_answer_is_held_against_the_deadline(
    admin_client: Client, sample: Sample, milliseconds: int, text: str, warning: str | None
) -> None:
    event = sample.event("github", "guid", "push", {})
    sample.delivery(event, Outcome.PROCESSED, milliseconds=milliseconds)
    sample.delivery(event, Outcome.DUPLICATE, milliseconds=1, after=timedelta(seconds=9))
    row = row_of(admin_client)
    assert text in row
    assert [word for word in ("near deadline", "too late") if word in row] == (
        [warning] if warning else []
    )


def test_a_provider_without_deadline_has_just_a_duration(
    admin_client: Client, sample: Sample
) -> None:
    sample.delivery(sample.event("stripe", "evt", "a", {}), Outcome.PROCESSED, milliseconds=90_000)
    row = row_of(admin_client)
    assert '<td class="field-first_duration">90 s</td>' in row


def test_the_first_delivery_is_the_one_that_brought_the_event(
    admin_client: Client, sample: Sample
) -> None:
    event = sample.event("github", "guid", "push", {})
    sample.delivery(event, Outcome.IN_PROGRESS, 409, 2003, after=timedelta(milliseconds=30))
    sample.delivery(event, Outcome.PROCESSED, 200, 4111)
    assert "4.11 s of 10 s" in row_of(admin_client)


def test_without_kept_deliveries_nothing_is_claimed_of_them(
    admin_client: Client, sample: Sample
) -> None:
    event = sample.event("github", "guid", "push", {})
    row = row_of(admin_client)
    assert '<td class="field-copies">–</td>' in row  # noqa: RUF001
    assert '<td class="field-first_duration">–</td>' in row  # noqa: RUF001
    sample.delivery(event, Outcome.DUPLICATE, after=timedelta(days=2))
    assert '<td class="field-first_duration">–</td>' in row_of(admin_client)  # noqa: RUF001


def test_a_flood_of_copies_is_bounded(
    admin_client: Client, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries, "READ_LIMIT", 5)
    event = sample.event("github", "guid", "push", {})
    for _ in range(8):
        sample.delivery(event, Outcome.DUPLICATE)
    assert "at least 4" in row_of(admin_client)


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({}, "abcde"),
        ({"status": "failed"}, "d"),
        ({"provider": "slack"}, "ce"),
        ({"provider": "retired"}, "b"),
        ({"event_type": "order.paid"}, "a"),
        ({"event_type": "order.*"}, "ab"),
        ({"event_type": "*"}, "abcd"),
        ({"event_type": " order.paid "}, "a"),
        ({"event_type": "order"}, ""),
        ({"event_type": "order%*"}, ""),
        ({"scope": "A0B"}, "c"),
        ({"scope": "A0*"}, "cd"),
        ({"provider": "slack", "scope": "A0*"}, "c"),
        ({"status": "failed", "event_type": "charge.refunded", "provider": "stripe"}, "d"),
        ({"q": "b"}, "b"),
        ({"q": " b "}, "b"),
        ({"q": "nobody"}, ""),
        ({"q": "c", "status": "failed"}, ""),
    ],
)
def test_filters_and_search(
    sample: Sample, listed: Listed, parameters: dict[str, str], found: str
) -> None:
    events = {
        "a": sample.event("sangho", "a", "order.paid", {}),
        "b": sample.event("retired", "b", "order.refunded", {}),
        "c": sample.event("slack", "c", "app_mention", {}, scope="A0B"),
        "d": sample.event("stripe", "d", "charge.refunded", {}, EventStatus.FAILED, scope="A0C"),
        "e": sample.event("slack", "e", "", {}),
    }
    assert listed(EVENTS, **parameters) == [events[name].pk for name in reversed(found)]


def test_search_by_number_and_by_key(sample: Sample, listed: Listed) -> None:
    event, other = sample.event("sangho", "a", "t", {}), sample.event("sangho", "b", "t", {})
    for term in (f"#{event.pk}", str(event.pk), event.dedupe_key):
        assert listed(EVENTS, q=term) == [event.pk]
    twin = sample.event("slack", str(other.pk), "t", {})
    assert listed(EVENTS, q=other.pk) == [twin.pk, other.pk]


def test_one_id_in_two_scopes_is_found_twice(sample: Sample, listed: Listed) -> None:
    events = [sample.event("github", "guid", "push", {}, scope=hook) for hook in ("1", "2")]
    assert listed(EVENTS, q="guid") == [events[1].pk, events[0].pk]


def test_an_id_longer_than_its_column_is_found(sample: Sample, listed: Listed) -> None:
    event = sample.event("github", "x" * 255, "push", {})
    assert listed(EVENTS, q="x" * 300) == [event.pk]


@pytest.mark.parametrize(
    "parameters",
    [
        {"event_type": "a\x00b"},
        {"provider": "a\x00"},
        {"scope": "\x00*"},
        {"older": "x"},
        {"older": "99999999999999999999"},
        {"older": "1_2026-01-01T00:00:00"},
        {"newer": "-1"},
        {"older": "٣"},
        {"received_at__gte": "yesterday"},
        {"received_at__gte": "2026-13-01"},
        {"received_at__gte": "9999-12-31"},
        {"received_at__lt": "0001-01-01"},
        {"received_at__gte": "2026-01-01", "older": "5"},
    ],
)
def test_what_makes_no_sense_leads_to_the_whole_list(
    admin_client: Client, parameters: dict[str, str]
) -> None:
    response = admin_client.get(address(EVENTS), parameters)
    assert (response.status_code, response["Location"]) == (302, f"{address(EVENTS)}?e=1")
    assert admin_client.get(response["Location"]).status_code == 200


@pytest.mark.parametrize("term", ["\x00", "9" * 30, "#" + "9" * 19, "%", "é" * 300, "\ud800"])
def test_a_search_for_anything_is_harmless(admin_client: Client, term: str) -> None:
    query = term.encode("utf-8", "surrogatepass")
    assert admin_client.get(address(EVENTS), {"q": query}).status_code == 200


def test_lookups_written_by_hand_are_refused(admin_client: Client) -> None:
    for lookup in ("last_error__icontains", "body__contains", "deliveries__note", "event_type__gt"):
        assert admin_client.get(address(EVENTS), {lookup: "x"}).status_code == 400


def test_the_order_cannot_be_changed(sample: Sample, listed: Listed) -> None:
    events = [sample.event("sangho", name, "t", {}).pk for name in "abc"]
    for order in ("0", "-1", "3", "3.-2", "x"):
        assert listed(EVENTS, o=order) == events[::-1]


def test_providers_come_from_the_settings(text_of: Text, sample: Sample, settings: Any) -> None:
    sample.event("retired", "a", "t", {})
    settings.WEBHOOK_IDEMPOTENCY = {
        "PROVIDERS": {
            "stripe": {"SECRETS": ["x"]},
            "shop": {"CLASS": "django_webhook_idempotency.providers.stripe.Stripe"},
            "broken": {"CLASS": "no.such.Provider"},
        }
    }
    page = text_of(address(EVENTS)).split("By provider")[1]
    assert "?provider=stripe" in page
    assert ">Stripe (shop)<" in page
    assert ">broken<" in page
    assert "?provider=retired" not in page
    assert ">retired<" in text_of(address(EVENTS), provider="retired").split("By provider")[1]


def test_an_empty_list_has_a_page(text_of: Text, db: None) -> None:
    assert "0 shown" in text_of(address(EVENTS))


@pytest.mark.parametrize("number", [1, 60])
def test_the_number_of_statements_does_not_grow(
    admin_client: Client, sample: Sample, django_assert_num_queries: Any, number: int
) -> None:
    for count in range(number):
        event = sample.event("sangho", f"evt_{count}", "t", {"big": "x" * 2_000})
        sample.delivery(event, Outcome.PROCESSED)
        sample.delivery(event, Outcome.DUPLICATE)
    with django_assert_num_queries(LIST_QUERIES):
        admin_client.get(address(EVENTS))
    with django_assert_num_queries(LIST_QUERIES):
        admin_client.get(address(EVENTS), {"status": "processed"})
    with django_assert_num_queries(LIST_QUERIES + 1):  # where to stop looking
        admin_client.get(address(EVENTS), {"event_type": "t"})
    with django_assert_num_queries(LIST_QUERIES + 1):  # the id's event
        admin_client.get(address(EVENTS), {"q": "evt_0"})
