"""Paging by place: every row once, in order, in both directions, whatever the bound."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.db.models import QuerySet
from django.test import Client

from django_webhook_idempotency.admin.events import WebhookEventAdmin
from django_webhook_idempotency.admin.seeking import Page, Place, Seek, served
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from tests.admin.conftest import EVENTS, address
from tests.admin.sample import Sample

Text = Callable[..., str]
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def rows(sample: Sample) -> list[WebhookEvent]:
    """Give events whose times are out of order and partly equal; every third is of type "rare"."""
    chance = random.Random(3)
    events = [
        WebhookEvent(
            provider="sangho",
            event_id=str(number),
            dedupe_key=str(number),
            event_type="rare" if number % 3 == 0 else "common",
            received_at=START + timedelta(minutes=chance.randrange(8)),
        )
        for number in range(40)
    ]
    others = [
        WebhookEvent(provider=provider, event_id=provider, dedupe_key=provider, received_at=START)
        for provider in ("github", "slack")
    ]
    WebhookEvent.objects.bulk_create([*events[:20], *others, *events[20:]])
    return list(WebhookEvent.objects.filter(provider="sangho").order_by("pk"))


def walk(seek: Seek, pages: int = 100) -> list[Page]:
    """Every page from the newest to the end."""
    found = [seek.page()]
    while found[-1].older is not None:
        assert len(found) < pages, "endless"
        found.append(seek.page(found[-1].older))
    return found


def newest_first(rows: QuerySet[WebhookEvent], *, by_time: bool) -> list[int]:
    """What a list without pages would show."""
    order = ["-received_at", "-pk"] if by_time else ["-pk"]
    return list(rows.order_by(*order).values_list("pk", flat=True))


@pytest.mark.parametrize("size", [1, 3, 7, 40, 41])
@pytest.mark.parametrize("limit", [None, 1, 4, 13, 40, 100])
@pytest.mark.parametrize("by_time", [False, True])
def test_pages_are_the_list_cut_in_pieces(
    rows: list[WebhookEvent], size: int, limit: int | None, by_time: bool
) -> None:
    everything = WebhookEvent.objects.filter(provider="sangho")
    matching = everything if limit is None else everything.filter(event_type="rare")
    rest = WebhookEvent.objects.all()
    if limit is not None:
        rest = rest.filter(event_type="rare")
    seek = Seek(
        rest,
        None if limit is None else WebhookEvent.objects.all(),
        {"provider": "sangho"},
        by_time=by_time,
        size=size,
        limit=limit or 1,
    )
    pages = walk(seek)
    shown = [row.pk for page in pages for row in page.rows]
    assert shown == newest_first(matching, by_time=by_time)
    assert all(len(page.rows) <= size for page in pages)
    if limit is None:
        assert [len(page.rows) for page in pages[:-1]] == [size] * (len(pages) - 1)
        assert {page.looked_through for page in pages} == {None}
    assert pages[0].newer is None

    back = [pages[-1]]
    while back[-1].newer is not None:
        assert len(back) < 100, "endless"
        back.append(seek.page(back[-1].newer, older=False))
    returned = [row.pk for page in reversed(back[:-1]) for row in page.rows]
    assert [row.pk for row in back[-1].rows] == [row.pk for row in pages[0].rows]
    seen = {row.pk for page in back for row in page.rows}
    assert seen == set(shown)
    assert all(
        [row.pk for row in page.rows] == [pk for pk in shown if pk in {r.pk for r in page.rows}]
        for page in back
    )
    assert set(returned) <= set(shown)


def test_a_bounded_look_says_so_until_it_finds(rows: list[WebhookEvent]) -> None:
    everything = WebhookEvent.objects.filter(provider="sangho")
    oldest = rows[0].pk
    seek = Seek(everything.filter(pk=oldest), everything, size=5, limit=15)
    pages = walk(seek)
    assert [([row.pk for row in page.rows], page.looked_through) for page in pages] == [
        ([], 15),
        ([], 15),
        ([oldest], None),
    ]


@pytest.mark.parametrize("by_time", [False, True])
def test_the_way_back_from_an_empty_page_misses_nothing(
    rows: list[WebhookEvent], by_time: bool
) -> None:
    everything = WebhookEvent.objects.all()
    order = ["received_at", "pk"] if by_time else ["pk"]
    middle = everything.order_by(*order)[20]
    seek = Seek(everything.filter(pk=middle.pk), everything, by_time=by_time, size=5, limit=5)
    start = Place(middle.pk, middle.received_at if by_time else None)
    for older in (False, True):
        empty = seek.page(start, older=older)
        assert (empty.rows, empty.looked_through) == ([], 5)
        back = empty.older if not older else empty.newer
        assert back is not None
        assert [row.pk for row in seek.page(back, older=not older).rows] == [middle.pk]


def test_new_rows_do_not_shift_a_page(rows: list[WebhookEvent], sample: Sample) -> None:
    seek = Seek(WebhookEvent.objects.filter(provider="sangho"), size=5)
    first = seek.page()
    sample.event("sangho", "later", "t", {})
    second = seek.page(first.older)
    assert [row.pk for row in second.rows] == [row.pk for row in reversed(rows[30:35])]


@pytest.mark.parametrize("place", [Place(7), Place(7, START), Place(0, START + timedelta(1))])
def test_a_place_survives_a_link(place: Place) -> None:
    assert Place.parse(str(place), by_time=place.moment is not None) == place


@pytest.mark.parametrize("text", ["", "x", "-1", "7_", "7_x", "1" * 20, "²"])
@pytest.mark.parametrize("by_time", [False, True])
def test_what_is_no_place_is_refused(text: str, by_time: bool) -> None:
    with pytest.raises(ValueError):
        Place.parse(text, by_time=by_time)


def test_the_index_that_serves_the_most() -> None:
    assert served(WebhookEvent, {"status", "scope"}, "id") == ["status"]
    assert served(WebhookEvent, {"scope"}, "id") == []
    assert served(WebhookEvent, set(), "received_at") == []
    assert served(WebhookDelivery, {"provider", "outcome"}, "id") == ["outcome", "provider"]
    assert served(WebhookDelivery, {"provider"}, "id") == ["provider"]


def links(client: Client, **parameters: Any) -> dict[str, str]:
    """The links under a list by their text, and its sentence."""
    page = client.get(address(EVENTS), parameters).content.decode()
    pager = page.split("webhook-pages")[1].split("</nav>")[0]
    found = {}
    for piece in pager.split('<a href="')[1:]:
        target, text = piece.split("</a>")[0].split(">", 1)
        words = text.replace("&lsaquo;", "").replace("&rsaquo;", "").replace("&laquo;", "")
        found[words.strip()] = target.split('"')[0].replace("&amp;", "&")
    found["said"] = " ".join(pager.split("<span>")[1].split("</span>")[0].split())
    return found


def test_the_links_lead_there_and_back(
    admin_client: Client, rows: list[WebhookEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebhookEventAdmin, "list_per_page", 15)

    def shown(link: str) -> list[int]:
        response = admin_client.get(address(EVENTS) + link)
        return [row.pk for row in response.context["cl"].result_list]

    def follow(link: str) -> dict[str, str]:
        return links(admin_client, **dict(parse_qsl(link[1:])))

    numbers = [row.pk for row in reversed(rows)]
    first = links(admin_client, provider="sangho")
    assert first.keys() == {"Older", "said"}
    assert first["said"] == "15 shown, newest first."
    second = follow(first["Older"])
    assert "provider=sangho" in first["Older"]
    assert shown(first["Older"]) == numbers[15:30]
    assert second.keys() == {"Newest", "Newer", "Older", "said"}
    third = follow(second["Older"])
    assert shown(second["Older"]) == numbers[30:]
    assert third.keys() == {"Newest", "Newer", "said"}
    assert shown(third["Newer"]) == numbers[15:30]
    assert shown(second["Newer"]) == shown(second["Newest"]) == numbers[:15]
    assert follow(third["Newest"]) == first


def test_the_end_of_a_look_is_told(
    admin_client: Client, rows: list[WebhookEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebhookEventAdmin, "look_limit", 20)
    found = links(admin_client, event_type="rare", provider="sangho")
    assert found["said"] == "7 found; looked through 20 rows so far."
    assert links(admin_client, event_type="common", provider="sangho")["said"].startswith("13 ")
    further = links(admin_client, **dict(parse_qsl(found["Look further back"][1:])))
    assert further["said"].startswith("7 found")


def test_other_links_start_at_the_newest_page(text_of: Text, rows: list[WebhookEvent]) -> None:
    page = text_of(address(EVENTS), older=rows[30].pk, event_type="rare")
    others = page.split('id="changelist-filter"')[1] + page.split('id="changelist-search"')[1]
    assert "event_type=rare" in others
    assert f"older={rows[30].pk}" not in others
    assert 'name="older"' not in others
