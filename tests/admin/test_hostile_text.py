"""WB-098: whatever is stored renders as text, on every page, in every field."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from django_webhook_idempotency.enums import Outcome
from tests.admin.conftest import DELIVERIES, EVENTS, address
from tests.admin.sample import Sample

SCRIPT = "</script><script>alert(1)</script>"
QUOTES = "\" onmouseover='alert(1)' x=`{{ 7|add:7 }}"
FORM = "application/x-www-form-urlencoded"


class Reader(HTMLParser):
    """Collects what a person reads, and what a strict Content-Security-Policy forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag == "style" or (tag == "script" and not names.get("src")):
            self.forbidden.append(tag)
        self.forbidden += [name for name in names if name == "style" or name.startswith("on")]
        self.forbidden += [
            value for value in names.values() if value and value.strip().startswith("javascript:")
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(client: Client, path: str, **parameters: str) -> Reader:
    """One page, parsed."""
    reader = Reader()
    reader.feed(client.get(path, parameters, follow=True).content.decode())
    return reader


OF_EVENT = [
    "body", "response_body", "event_type", "event_id", "scope", "provider", "last_error",
    "handled_by", "content_type",
]  # fmt: skip
OF_DELIVERY = ["provider", "note", "retry_reason", "secret_fingerprint"]
OF_RUN = ["error_class", "error_message", "traceback", "handler"]
SHORT = {"provider": 64, "retry_reason": 64, "secret_fingerprint": 8}


def write(sample: Sample, field: str, text: str) -> list[str]:
    """Store hostile text in one field; returns the addresses of the pages that may show it."""
    event_values: dict[str, Any] = {
        "provider": "slack", "event_id": "id", "event_type": "t", "response_status": 200,
    }  # fmt: skip
    delivery_values: dict[str, Any] = {}
    run_values: dict[str, Any] = {"error_class": "E"}
    document: bytes = b'{"an": "answer"}'
    cut = text[: SHORT.get(field, 255)]
    for name, names, values in (
        (field, OF_EVENT, event_values),
        (field, OF_DELIVERY, delivery_values),
        (field, OF_RUN, run_values),
    ):
        if name in names:
            values[name] = cut
    if field == "json":
        document = json.dumps({text: [text]}).encode()
    if field == "form":
        document, event_values["content_type"] = urlencode({text: text}).encode(), FORM
    if field == "headers":
        delivery_values["headers"] = {text: text}
    document = str(event_values.pop("body", "")).encode() or document
    if "response_body" in event_values:
        event_values["response_body"] = text.encode()
    event = sample.event(document=document, **event_values)
    delivery = sample.delivery(event, Outcome.PROCESSED, conflict=True, **delivery_values)
    if field != "handled_by":
        sample.run(event, 1, **run_values)
    return [
        address(EVENTS), address(DELIVERIES), address(EVENTS, event.pk),
        address(DELIVERIES, delivery.pk),
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["json", "form", "headers", *OF_EVENT, *OF_DELIVERY, *OF_RUN])
@pytest.mark.parametrize("text", [SCRIPT, QUOTES])
def test_stored_text_stays_text(
    admin_client: Client, sample: Sample, field: str, text: str
) -> None:
    pages = [read(admin_client, path) for path in write(sample, field, text)]
    assert [page.forbidden for page in pages] == [[]] * 4
    shown = {"json": json.dumps(text)[1:-1]}.get(field, text[: SHORT.get(field, 255)])
    assert any(shown in page.text for page in pages)


@pytest.mark.parametrize("text", [SCRIPT, QUOTES])
@pytest.mark.parametrize("name", ["event_type", "scope", "provider", "q", "older", "status"])
def test_what_the_query_string_says_stays_text(
    admin_client: Client, sample: Sample, name: str, text: str
) -> None:
    sample.event("slack", "id", "t", {})
    assert read(admin_client, address(EVENTS), **{name: f'">{text}'}).forbidden == []


def test_no_page_needs_inline_code(admin_client: Client, sample: Sample) -> None:
    event = sample.event("slack", "id", "t", {})
    delivery = sample.delivery(event, Outcome.PROCESSED)
    sample.run(event, 1)
    paths = [address(EVENTS), address(EVENTS, event.pk), address(DELIVERIES)]
    for path in [*paths, address(DELIVERIES, delivery.pk), f"{address(EVENTS)}?q=nothing"]:
        assert read(admin_client, path).forbidden == [], path
        html = admin_client.get(path).content.decode()
        assert 'href="/static/django_webhook_idempotency/admin.css"' in html, path
