"""Views that only have a key: nothing vouches for a delivery but the view itself."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.test import Client
from django.urls import path

from django_webhook_idempotency.decorators import idempotent_webhook
from django_webhook_idempotency.models import HandlerRun, WebhookEvent
from tests.app.models import Effect

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def turn_away(request: HttpRequest) -> HttpResponse | None:
    """Let in who knows the word; the header says how to turn the others away."""
    if request.headers.get("X-Word") == "open":
        return None
    how = request.headers.get("X-How", "403")
    if how == "raise":
        raise PermissionDenied
    if how == "lost":
        raise Http404
    return HttpResponseRedirect("/login/") if how == "redirect" else HttpResponse(status=403)


def booked(request: HttpRequest) -> HttpResponse:
    refusal = turn_away(request)
    if refusal is not None:
        return refusal
    if request.headers.get("X-Fail"):
        raise ValueError("broken")
    Effect.objects.create(event_id=request.body.decode())
    return HttpResponse("done")


@idempotent_webhook(key="X-Event", provider="partner")
def atomic(request):
    return booked(request)


@idempotent_webhook(key="X-Event", provider="partner", atomic=False)
def leased(request):
    return booked(request)


@idempotent_webhook(key="X-Event")
def nameless(request):
    return booked(request)


@idempotent_webhook(key="X-Event")
def nameless_too(request):
    return booked(request)


urlpatterns = [
    path("atomic/", atomic),
    path("leased/", leased),
    path("nameless/", nameless),
    path("nameless-too/", nameless_too),
]


def send(client: Client, name: str, body: bytes, **headers: str) -> Any:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"/{name}/", body, "text/plain", headers={"X-Event": "k1", **headers})


@pytest.mark.parametrize("name", ["atomic", "leased"])
@pytest.mark.parametrize("how", ["403", "raise", "lost", "redirect"])
def test_a_stranger_claims_no_id(client: Client, name: str, how: str) -> None:
    send(client, name, b"EVIL", X_How=how)
    assert not WebhookEvent.objects.exists()
    assert not HandlerRun.objects.exists()
    assert send(client, name, b"GOOD", X_Word="open").status_code == 200
    assert Effect.objects.get().event_id == "GOOD"


@pytest.mark.parametrize("name", ["atomic", "leased"])
def test_a_stranger_changes_nothing_about_an_event_that_failed(client: Client, name: str) -> None:
    send(client, name, b"GOOD", X_Word="open", X_Fail="1")
    for _ in range(3):
        assert send(client, name, b"EVIL").status_code == 403
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, bytes(event.body or b"")) == ("failed", 1, b"GOOD")
    assert HandlerRun.objects.count() == 1
    assert send(client, name, b"GOOD", X_Word="open").status_code == 200


@pytest.mark.parametrize("name", ["atomic", "leased"])
def test_the_body_that_was_let_in_is_the_one_that_counts(client: Client, name: str) -> None:
    """What was stored before may be a stranger's, whom the view failed to turn away."""
    send(client, name, b"EVIL", X_Word="open", X_Fail="1")
    assert send(client, name, b"GOOD", X_Word="open").status_code == 200
    assert Effect.objects.get().event_id == "GOOD"
    assert bytes(WebhookEvent.objects.get().body or b"") == b"GOOD"


def test_views_without_a_provider_share_no_event(client: Client) -> None:
    for name in ("nameless", "nameless-too"):
        assert send(client, name, b"GOOD", X_Word="open").content == b"done"
    assert WebhookEvent.objects.count() == 2
