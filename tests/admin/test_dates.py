"""The date drill-down: Django's look, from the calendar and not from the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.test import Client, override_settings

from django_webhook_idempotency.admin.dates import DrillDown, Span, drill_down
from django_webhook_idempotency.models import WebhookEvent
from tests.admin.conftest import EVENTS, address
from tests.admin.sample import Sample

Listed = Callable[..., list[int]]


def link(start: date | None, end: date | None) -> str:
    """A link that says where it leads."""
    return f"{start}..{end}"


def drilled(
    first: date, last: date, start: str = "", end: str = ""
) -> tuple[tuple[str, str] | None, list[tuple[str, str]]]:
    """The drill-down as plain pairs of title and link."""
    span = Span.parse({"received_at__gte": start, "received_at__lt": end})
    found: DrillDown = drill_down(span, first, last, link)
    back = (found.back.title, found.back.link) if found.back else None
    return back, [(choice.title, choice.link) for choice in found.choices]


def test_several_years_start_with_years() -> None:
    assert drilled(date(2024, 12, 31), date(2026, 1, 1)) == (
        None,
        [
            ("2024", "2024-01-01..2025-01-01"),
            ("2025", "2025-01-01..2026-01-01"),
            ("2026", "2026-01-01..2027-01-01"),
        ],
    )


def test_one_year_starts_with_its_months() -> None:
    back, choices = drilled(date(2026, 11, 30), date(2026, 12, 1))
    assert back is None
    assert choices == [
        ("November 2026", "2026-11-01..2026-12-01"),
        ("December 2026", "2026-12-01..2027-01-01"),
    ]


def test_one_month_starts_with_its_days() -> None:
    back, choices = drilled(date(2026, 2, 27), date(2026, 2, 28))
    assert back is None
    assert choices == [
        ("February 27", "2026-02-27..2026-02-28"),
        ("February 28", "2026-02-28..2026-03-01"),
    ]


def test_a_year_has_months_and_a_way_back_to_all() -> None:
    back, choices = drilled(date(2024, 11, 9), date(2026, 2, 1), "2025-01-01", "2026-01-01")
    assert back == ("All dates", "None..None")
    assert [title for title, _ in choices][::11] == ["January 2025", "December 2025"]
    assert len(choices) == 12


def test_a_month_has_days_and_a_way_back_to_its_year() -> None:
    back, choices = drilled(date(2023, 5, 5), date(2026, 2, 1), "2024-02-01", "2024-03-01")
    assert back == ("2024", "2024-01-01..2025-01-01")
    assert len(choices) == 29
    assert choices[-1] == ("February 29", "2024-02-29..2024-03-01")


def test_a_day_is_the_end_with_a_way_back_to_its_month() -> None:
    back, choices = drilled(date(2026, 2, 1), date(2026, 3, 1), "2026-02-28", "2026-03-01")
    assert back == ("February 2026", "2026-02-01..2026-03-01")
    assert choices == [("February 28", "")]


@pytest.mark.parametrize(
    ("start", "end", "title"),
    [
        ("2026-02-01", "2026-02-09", "2026-02-01 00:00 – 2026-02-09 00:00"),  # noqa: RUF001
        ("2026-02-01T10:30", "", "2026-02-01 10:30 – …"),  # noqa: RUF001
        ("", "2026-02-09", "… – 2026-02-09 00:00"),  # noqa: RUF001
        ("2026-03-01", "2026-02-01", "2026-03-01 00:00 – 2026-02-01 00:00"),  # noqa: RUF001
    ],
)
def test_another_range_is_named(start: str, end: str, title: str) -> None:
    back, choices = drilled(date(2026, 2, 1), date(2026, 3, 1), start, end)
    assert back == ("All dates", "None..None")
    assert choices == [(title, "")]


def test_rows_without_a_date_inside_show_no_choices() -> None:
    assert drilled(date(2026, 2, 1), date(2026, 3, 1), "2019-01-01", "2020-01-01")[1] == []


@pytest.fixture
def night(sample: Sample) -> list[int]:
    """Give three events around midnight in Madrid, which is 22:00 UTC in summer."""
    times = [(1, 21, 59), (1, 22, 0), (2, 21, 59)]
    pks = []
    for number, (day, hour, minute) in enumerate(times):
        event = sample.event("sangho", f"evt_{number}", "t", {})
        moment = datetime(2026, 7, day, hour, minute, tzinfo=UTC)
        WebhookEvent.objects.filter(pk=event.pk).update(received_at=moment)
        pks.append(event.pk)
    return pks


@override_settings(TIME_ZONE="Europe/Madrid")
def test_days_are_those_of_the_time_zone(night: list[int], listed: Listed) -> None:
    span = {"received_at__gte": "2026-07-01", "received_at__lt": "2026-07-02"}
    assert listed(EVENTS, **span) == [night[0]]
    span = {"received_at__gte": "2026-07-02", "received_at__lt": "2026-07-03"}
    assert listed(EVENTS, **span) == [night[2], night[1]]


@override_settings(TIME_ZONE="Europe/Madrid")
def test_times_with_an_offset_are_exact(night: list[int], listed: Listed) -> None:
    assert listed(EVENTS, received_at__gte="2026-07-01T22:00:00Z") == [night[2], night[1]]
    assert listed(EVENTS, received_at__lt="2026-07-02T00:00:00+02:00") == [night[0]]


def test_a_list_of_dates_is_in_the_order_of_time(sample: Sample, listed: Listed) -> None:
    late = sample.event("sangho", "a", "t", {}, minutes=0).pk
    early = sample.event("sangho", "b", "t", {}, minutes=90).pk
    assert listed(EVENTS) == [early, late]
    assert listed(EVENTS, received_at__gte="2000-01-01") == [late, early]


def test_the_drill_down_keeps_the_filters(admin_client: Client, night: list[int]) -> None:
    response = admin_client.get(address(EVENTS), {"provider": "sangho", "older": night[2]})
    down = response.context["cl"].drill_down
    assert next(choice.link for choice in down.choices) == (
        "?provider=sangho&received_at__gte=2026-07-01&received_at__lt=2026-07-02"
    )
    page = response.content.decode()
    assert '<nav class="toplinks" aria-label="Dates">' in page
    response = admin_client.get(address(EVENTS) + down.choices[0].link)
    assert response.context["cl"].drill_down.back.title == "July 2026"
    assert (
        "received_at__gte=2026-07-01"
        in response.context["cl"]
        .filter_specs[0]
        .choices(response.context["cl"])
        .__next__()["query_string"]
    )


def test_an_empty_table_has_no_drill_down(admin_client: Client) -> None:
    assert "toplinks" not in admin_client.get(address(EVENTS)).content.decode()


@override_settings(USE_TZ=False)
def test_naive_times_work(admin_client: Client, listed: Listed) -> None:
    event = Sample().event("sangho", "a", "t", {})
    day: dict[str, Any] = {"received_at__gte": "2000-01-01T00:00:00Z"}
    assert listed(EVENTS, **day) == [event.pk]
    assert listed(EVENTS, received_at__lt="2000-01-01") == []
    assert admin_client.get(address(EVENTS, event.pk)).status_code == 200
