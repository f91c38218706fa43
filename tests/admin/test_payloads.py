"""Bodies as text: parsed as the provider does it, else as they came, and never too much of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_webhook_idempotency.admin import payloads
from django_webhook_idempotency.admin.payloads import payload_of
from django_webhook_idempotency.admin.sources import Source, source_of
from django_webhook_idempotency.providers.sangho import Sangho
from tests.admin.conftest import EVENTS, address
from tests.admin.sample import FORM, Sample

Text = Callable[..., str]
JSON = "application/json"


def shown(body: bytes, content_type: str = JSON, provider: str = "sangho") -> payloads.Payload:
    """A whole body as the page shows it."""
    return payload_of(body, len(body), content_type, source_of(provider))


def test_json_is_indented_in_its_own_letters() -> None:
    found = shown(json.dumps({"name": "Año ✓", "list": [1, {"deep": None}]}).encode())
    assert (found.kind, found.cut) == (payloads.JSON, False)
    assert found.text.splitlines()[1] == '  "name": "Año ✓",'
    assert json.loads(found.text) == {"name": "Año ✓", "list": [1, {"deep": None}]}


def test_github_forms_show_the_document_inside() -> None:
    body = urlencode({"payload": json.dumps({"action": "opened"})}).encode()
    found = shown(body, FORM, "github")
    assert (found.kind, json.loads(found.text)) == (payloads.JSON, {"action": "opened"})


def test_tokens_in_a_payload_are_never_shown() -> None:
    """Slack's verification token and response URLs let their bearer act."""
    fields = {"command": "/deploy", "token": "xyzz0", "response_url": "https://hooks.example/1"}
    for body, kind in (
        (json.dumps(fields).encode(), JSON),
        (urlencode(fields).encode(), FORM),
        (urlencode({"payload": json.dumps(fields)}).encode(), FORM),
    ):
        text = shown(body, kind, "slack").text
        assert "/deploy" in text
        assert "xyzz0" not in text
        assert "hooks.example" not in text


def test_slash_commands_show_their_fields() -> None:
    found = shown(urlencode({"command": "/deploy", "text": "a b&c"}).encode(), FORM, "slack")
    assert (found.kind, found.text) == (payloads.FORM, "command = /deploy\ntext = a b&c")


@pytest.mark.parametrize(
    ("content_type", "body", "kind"),
    [(JSON, b'{"a": 1}', payloads.JSON), (FORM, b"a=1", payloads.FORM)],
)
def test_an_unknown_provider_is_read_by_its_media_type(
    content_type: str, body: bytes, kind: str
) -> None:
    assert shown(body, content_type, "retired").kind == kind


def test_what_cannot_be_parsed_stands_as_it_came() -> None:
    found = shown(b'{"broken": \xff "Caf\xc3\xa9"')
    assert (found.kind, found.text) == (payloads.TEXT, '{"broken": \ufffd "Café"')
    assert shown(b"[" * 100_000).kind == payloads.TEXT


def test_what_is_no_text_is_in_hexadecimal() -> None:
    found = shown(bytes(range(256)) * 4)
    assert (found.kind, found.cut, found.size) == (payloads.HEX, True, 1024)
    lines = found.text.splitlines()
    assert len(lines) == 32
    assert lines[2] == (
        "000020  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./"
    )
    assert not shown(b"\x00\x01\x02").cut


@pytest.mark.parametrize(
    "body",
    [rb'{"a": "\ud800"}', rb'{"\udfff": 1}', rb'{"a": "\u0000"}', b"NUL \x00 in a long text" * 9],
)
def test_text_that_cannot_be_sent_is_escaped(body: bytes) -> None:
    text = shown(body).text
    assert "\x00" not in text
    text.encode()


def test_a_large_document_is_cut() -> None:
    found = shown(json.dumps({"long": "é" * 200_000}).encode())
    assert (found.kind, found.cut, len(found.text)) == (payloads.JSON, True, payloads.SHOWN)


def test_the_start_of_a_huge_body_is_text() -> None:
    head = b'{"long": "' + "é".encode() * 60_000
    found = payload_of(head, 25_000_000, JSON, source_of("sangho"))
    assert (found.kind, found.cut, found.size) == (payloads.TEXT, True, 25_000_000)
    assert found.text.startswith('{"long": "ééé')


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), TypeError("y")])
def test_a_provider_that_fails_does_no_harm(error: Exception) -> None:
    class Failing(Sangho):
        def payload(self, incoming: Any) -> Any:
            raise error

    found = payload_of(b'{"a": 1}', 8, JSON, Source("own", "Own", None, Failing()))
    assert (found.kind, found.text) == (payloads.TEXT, '{"a": 1}')


def test_a_document_that_json_does_not_know_is_shown() -> None:
    class Own(Sangho):
        def payload(self, incoming: Any) -> Any:
            return {
                "parsed": {
                    1,
                },
                "bytes": b"x",
            }

    found = payload_of(b"<xml/>", 6, "text/xml", Source("own", "Own", None, Own()))
    assert json.loads(found.text) == {"parsed": "{1}", "bytes": "b'x'"}


def test_no_more_than_the_limit_leaves_the_database(
    admin_client: Client, text_of: Text, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1_000
    monkeypatch.setattr("django_webhook_idempotency.admin.details.READ_LIMIT", limit)
    body = b"start " + b"x" * 5_000 + b" end"
    event = sample.event("sangho", "a", "t", body)
    with CaptureQueriesContext(connection) as captured:
        page = text_of(address(EVENTS, event.pk))
    assert "start xxx" in page
    assert " end" not in page.split("webhook-text")[1]
    assert "Only the beginning is shown." in page
    assert "4.9\xa0KB" in page
    for query in captured.captured_queries:
        sql = query["sql"].lower().replace('"', "").replace("`", "")
        bare = sql.replace("length(django_webhook_idempotency_webhookevent.body", "")
        assert ".body," not in bare.replace("webhookevent.body, 1, 1000", "")
