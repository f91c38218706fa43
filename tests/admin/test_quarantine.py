"""The quarantine in the admin: read by those who may, verified again by those who may do that."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_webhook_idempotency.admin import quarantine as quarantine_admin
from django_webhook_idempotency.models import QuarantinedDelivery, SecretUse, WebhookEvent
from django_webhook_idempotency.providers import configured_provider
from django_webhook_idempotency.signatures import Secret
from tests.admin.conftest import address
from tests.app.models import Effect
from tests.deliveries import body_of, signed_headers

KEPT, USES = "quarantineddelivery", "secretuse"
PERMISSIONS = (f"view_{KEPT}", f"reverify_{KEPT}")
Login = Callable[..., Client]

pytestmark = pytest.mark.django_db(transaction=True)


def keep(provider: str = "stripe", event_id: str = "evt_1", **more: Any) -> QuarantinedDelivery:
    """Keep a delivery that the secrets of the settings verify, or another body of it."""
    body = more.pop("body", body_of(provider, event_id))
    headers = signed_headers(provider, body, event_id, timestamp=int(time.time()))
    return QuarantinedDelivery.objects.create(
        **{
            "provider": provider,
            "reason": "bad_signature",
            "content_type": "application/json",
            "body": body,
            "signed_headers": {name.lower(): value for name, value in headers.items()},
            **more,
        }
    )


def act(client: Client, *rows: QuarantinedDelivery, **more: Any) -> Any:
    """Choose the action for some rows; with `confirmed`, on the page that asks."""
    data = {"action": "verify_again", "_selected_action": [row.pk for row in rows], **more}
    if "confirmed" not in more:
        data["index"] = "0"
    return client.post(address(KEPT), data, follow=True)


class TestReading:
    def test_a_list_by_provider_and_reason_newest_first(
        self, listed: Callable[..., list[int]]
    ) -> None:
        first, second, third = keep(), keep("slack"), keep(reason="other")
        assert listed(KEPT) == [third.pk, second.pk, first.pk]
        assert listed(KEPT, provider="stripe") == [third.pk, first.pk]
        assert listed(KEPT, provider="stripe", reason="bad_signature") == [first.pk]
        before = {"received_at__lt": (timezone.now() - timedelta(days=1)).isoformat()}
        assert listed(KEPT, **before) == []

    def test_the_body_is_shown_and_what_it_was_judged_by_is_not(
        self, text_of: Callable[..., str]
    ) -> None:
        document = {"type": "x", "event_id": "Ev1", "token": "of-the-app", "text": "plain words"}
        row = keep("slack", body=json.dumps(document).encode(), scope="tenant-7")
        page = text_of(address(KEPT, row.pk))
        for text in ("plain words", "tenant-7", "bad_signature", '"token": "********"'):
            assert text in page
        for text in ("of-the-app", *row.signed_headers.values()):
            assert text not in page and text not in text_of(address(KEPT))
        assert 'name="_save"' not in page and "/delete/" not in page

    def test_no_statement_of_a_list_reads_a_body_or_a_header(
        self, admin_client: Client, django_assert_max_num_queries: Any
    ) -> None:
        for number in range(30):
            keep(event_id=f"evt_{number}")
        with django_assert_max_num_queries(8) as captured:
            assert admin_client.get(address(KEPT)).status_code == 200
        for query in captured.captured_queries:
            assert "signed_headers" not in query["sql"] and "COUNT(" not in query["sql"]
            assert '."body"' not in query["sql"].replace("`", '"')

    def test_no_statement_of_a_page_reads_more_of_a_body_than_is_shown(
        self, admin_client: Client
    ) -> None:
        row = keep()
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(address(KEPT, row.pk)).status_code == 200
        about = [
            query["sql"].replace("`", '"').lower()
            for query in captured.captured_queries
            if KEPT in query["sql"]
        ]
        assert about and not any("signed_headers" in sql for sql in about)
        whole = [sql for sql in about if re.search(r'[ ,]"[a-z_]+"\."body"', sql)]
        assert not whole

    def test_nobody_reads_without_the_permission(self, staff_client: Login) -> None:
        row = keep()
        client = staff_client()
        for path in (address(KEPT), address(KEPT, row.pk), address(USES)):
            assert client.get(path).status_code == 403


class TestVerifyAgain:
    @pytest.fixture(autouse=True)
    def effects(self, handlers: Any) -> None:
        handlers.add(lambda event: Effect.objects.create(event_id=event.event_id))

    def test_it_asks_first_and_says_how_many_hold(self, staff_client: Login) -> None:
        client = staff_client(*PERMISSIONS)
        page = act(client, keep(), keep("slack"), keep(body=b"{}", signed_headers={}))
        text = page.content.decode()
        assert "3 deliveries are chosen. With the secrets of now, 2 hold." in text
        assert "stripe-signature" not in text and "v1=" not in text
        assert QuarantinedDelivery.objects.count() == 3
        assert not WebhookEvent.objects.exists()

    def test_what_holds_is_processed_and_the_rest_stays(self, staff_client: Login) -> None:
        rows = [keep(), keep(event_id="evt_2"), keep(body=b'{"id": "x"}', signed_headers={})]
        left = keep(event_id="evt_3")
        page = act(staff_client(*PERMISSIONS), *rows, confirmed="yes").content.decode()
        assert "2 hold now: 2 processed" in page and "1 are still refused" in page
        assert sorted(Effect.objects.values_list("event_id", flat=True)) == ["evt_1", "evt_2"]
        assert set(QuarantinedDelivery.objects.all()) == {rows[2], left}

    def test_a_second_click_does_nothing_more(self, staff_client: Login) -> None:
        row, client = keep(), staff_client(*PERMISSIONS)
        act(client, row, confirmed="yes")
        act(client, row, confirmed="yes")
        assert Effect.objects.count() == 1

    def test_whoever_may_only_read_gets_no_action(self, staff_client: Login) -> None:
        row, client = keep(), staff_client(PERMISSIONS[0])
        assert "verify_again" not in client.get(address(KEPT)).content.decode()
        act(client, row, confirmed="yes")
        assert (Effect.objects.count(), QuarantinedDelivery.objects.count()) == (0, 1)

    def test_nobody_changes_or_deletes_a_row(self, admin_client: Client) -> None:
        row = keep()
        page = address(KEPT, row.pk)
        assert admin_client.post(page, {"provider": "x"}).status_code == 403
        assert admin_client.post(page.replace("change", "delete"), {"post": "y"}).status_code == 403
        assert admin_client.get(f"{address(KEPT)}add/").status_code == 403

    def test_what_time_leaves_is_said(self, staff_client: Login, monkeypatch: Any) -> None:
        monkeypatch.setattr(quarantine_admin, "MAX_SECONDS", 0.0)
        page = act(staff_client(*PERMISSIONS), keep(), keep("slack"), confirmed="yes")
        assert "2 are left for the next time." in page.content.decode()
        assert QuarantinedDelivery.objects.count() == 2

    def test_a_transaction_around_the_admin_is_named(
        self, staff_client: Login, settings: Any
    ) -> None:
        client = staff_client(*PERMISSIONS)
        row = keep()
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            page = act(client, row, confirmed="yes").content.decode()
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
        assert "A transaction is open around" in page
        assert QuarantinedDelivery.objects.count() == 1


class TestSecretsAndSources:
    def test_each_secret_by_its_fingerprint_and_what_there_is_to_say(
        self, settings: Any, text_of: Callable[..., str]
    ) -> None:
        ending = {"SECRET": "of-last-year", "UNTIL": datetime.now(UTC) + timedelta(days=2)}
        secrets = ["the-new-one", "the-old-one", ending]
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": {"SECRETS": secrets}}}
        new, old, last = (
            entry.secret.fingerprint for entry in configured_provider("stripe").secret_entries()
        )
        now = timezone.now()
        for fingerprint, days in ((new, 0), (old, 8), ("0badcafe", 1)):
            SecretUse.objects.create(
                provider="stripe", fingerprint=fingerprint, last_used_at=now - timedelta(days=days)
            )
        page = text_of(address(USES))
        for text in (new, old, last, "0badcafe", "not in the settings", "ends by itself at"):
            assert text in page
        assert page.count("the old secret has not been used for 7 days: it can go") == 1
        assert not any(text in page for text in ("the-new-one", "the-old-one", "of-last-year"))

    def test_a_silent_source_is_marked(self, settings: Any, text_of: Callable[..., str]) -> None:
        secret = "whsec_1"
        own = {"SECRETS": [secret], "EXPECT_EVERY": timedelta(hours=1)}
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"stripe": own}}
        use = SecretUse.objects.create(
            provider="stripe", fingerprint=Secret.parse(secret).fingerprint
        )
        assert "webhook-bad" not in text_of(address(USES))
        use.last_used_at -= timedelta(hours=2)
        use.save()
        page = text_of(address(USES))
        assert 'webhook-bad">silent<' in page and "Expected every 1:00:00." in page

    def test_the_index_links_to_both_pages(self, admin_client: Client) -> None:
        page = admin_client.get("/admin/").content.decode()
        assert address(KEPT) in page and address(USES) in page
