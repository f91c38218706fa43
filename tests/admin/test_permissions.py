"""Who may look, and that nobody may touch."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from django_webhook_idempotency.enums import Outcome
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.admin.conftest import DELIVERIES, EVENTS, address
from tests.admin.sample import Sample, raised

Login = Callable[..., Client]


@pytest.mark.parametrize("model", [EVENTS, DELIVERIES])
def test_staff_without_the_permission_is_kept_out(
    staff_client: Login, sample: Sample, model: str
) -> None:
    event = sample.event("sangho", "evt_1", "a", {})
    delivery = sample.delivery(event, Outcome.PROCESSED)
    pk = {EVENTS: event.pk, DELIVERIES: delivery.pk}[model]
    client = staff_client()
    assert client.get(address(model)).status_code == 403
    assert client.get(address(model, pk)).status_code == 403
    assert "Webhook" not in client.get("/admin/").content.decode()


@pytest.mark.parametrize("model", [EVENTS, DELIVERIES])
def test_strangers_are_asked_to_log_in(client: Client, db: None, model: str) -> None:
    response = client.get(address(model))
    assert (response.status_code, response["Location"]) == (
        302,
        f"/admin/login/?next={address(model)}",
    )


def test_the_view_permission_is_enough_to_read(staff_client: Login, sample: Sample) -> None:
    event = sample.event("sangho", "evt_1", "a", {"plain": "words"})
    sample.delivery(event, Outcome.PROCESSED, note="a remark")
    sample.run(event, 1, raised(ValueError("a mistake")))
    client = staff_client("view_webhookevent", "view_webhookdelivery", "view_handlerrun")
    assert client.get(address(EVENTS)).status_code == 200
    page = client.get(address(EVENTS, event.pk)).content.decode()
    for text in ("plain", "a remark", "a mistake"):
        assert text in page


def test_deliveries_and_runs_need_their_own_permission(staff_client: Login, sample: Sample) -> None:
    event = sample.event("sangho", "evt_1", "a", {"plain": "words"})
    sample.delivery(event, Outcome.PROCESSED, note="a remark")
    sample.run(event, 1, raised(ValueError("a mistake")))
    client = staff_client("view_webhookevent")
    page = client.get(address(EVENTS, event.pk)).content.decode()
    assert "plain" in page
    assert "a remark" not in page
    assert "a mistake" not in page
    assert client.get(address(DELIVERIES)).status_code == 403


@pytest.mark.parametrize("model", [WebhookEvent, WebhookDelivery])
def test_even_a_superuser_can_only_read(
    admin_client: Client, admin_user: User, sample: Sample, model: type[WebhookEvent]
) -> None:
    event = sample.event("sangho", "evt_1", "a", {})
    sample.delivery(event, Outcome.PROCESSED)
    row = model.objects.get()
    name = model._meta.model_name or ""
    page = address(name, row.pk)
    before = model.objects.values().get()
    assert admin_client.get(f"{address(name)}add/").status_code == 403
    assert admin_client.post(f"{address(name)}add/", {"provider": "x"}).status_code == 403
    assert admin_client.post(page, {"provider": "x", "status": "failed"}).status_code == 403
    delete = page.replace("change", "delete")
    assert admin_client.get(delete).status_code == 403
    assert admin_client.post(delete, {"post": "yes"}).status_code == 403
    admin_client.post(
        address(name),
        {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes", "index": "0"},
    )
    assert model.objects.values().get() == before


def test_no_action_and_no_button_is_offered(admin_client: Client, sample: Sample) -> None:
    """But one: to replay, for those who may."""
    event = sample.event("sangho", "evt_1", "a", {})
    for path in (address(EVENTS), address(EVENTS, event.pk)):
        page = admin_client.get(path).content.decode()
        assert re.findall(r'<option value="([^"]+)"', page) in ([], ["replay_selected"])
        assert "/delete/" not in page
        assert 'name="_save"' not in page
        assert "addlink" not in page.split('id="content"')[1]


def test_runs_have_no_page_of_their_own() -> None:
    assert not admin.site.is_registered(HandlerRun)
