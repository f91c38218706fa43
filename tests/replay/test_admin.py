"""The admin's action: who may, what is asked, what is done once, and what is told and kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_webhook_idempotency.admin import replays
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import Replay, WebhookEvent
from tests.admin.conftest import EVENTS, address
from tests.deliveries import deliver
from tests.replay.conftest import Recorder, stored

pytestmark = pytest.mark.django_db(transaction=True)

REPLAY = f"{address(EVENTS)}replay/"


@pytest.fixture
def log_in() -> Callable[..., Client]:
    """Give a function that logs in a member of staff with the permissions named."""

    def make(*codenames: str) -> Client:
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def handler(client: Client, handlers: Any, configure: Callable[..., None]) -> Recorder:
    """Give a handler on which an event has died; a second one was processed."""
    configure(PROCESSING="inline")
    handler = Recorder(Reject())
    handlers.add(handler, name="h")
    deliver(client, "stripe", "evt_1")
    deliver(client, "stripe", "evt_2")
    return handler


def choose(client: Client, *pks: int, **more: Any) -> Any:
    data = {"action": "replay_selected", "_selected_action": pks, "index": 0, **more}
    return client.post(address(EVENTS), data)


def seen_on(page: Any) -> list[str]:
    return re.findall(r'name="seen" value="([^"]+)"', page.content.decode())


def test_chosen_confirmed_and_told_of(log_in: Any, handler: Recorder) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent", "view_replay")
    first, second = WebhookEvent.objects.order_by("pk")
    assert 'value="replay_selected"' in client.get(address(EVENTS)).content.decode()
    page = choose(client, first.pk, second.pk)
    text = unescape(page.content.decode())
    assert "The handlers of 2 events are run again." in text
    assert "1 of them is finished" in text
    assert handler.calls == 2
    data = {"seen": seen_on(page), "reason": "the <b>bug</b> is fixed"}
    done = client.post(REPLAY, data, follow=True)
    assert done.redirect_chain == [(address(EVENTS), 302)]
    assert "2 events. processed: 2" in unescape(done.content.decode())
    assert handler.calls == 4
    assert set(Replay.objects.values_list("requested_by", "reason")) == {("ann", data["reason"])}
    entries: Any = LogEntry.objects.order_by("pk")
    assert [entry.object_id for entry in entries] == [str(first.pk), str(second.pk)]
    assert data["reason"] in entries[0].change_message
    shown = client.get(address(EVENTS, first.pk)).content.decode()
    for part in ("Replays", "ann", "the &lt;b&gt;bug&lt;/b&gt; is fixed", "dead letter"):
        assert part in shown
    history = client.get(f"{address(EVENTS)}{first.pk}/history/").content.decode()
    assert "the &lt;b&gt;bug&lt;/b&gt; is fixed" in history


def test_a_form_that_is_sent_twice_replays_once(log_in: Any, handler: Recorder) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    second = WebhookEvent.objects.get(event_id="evt_2")
    data = {"seen": seen_on(choose(client, second.pk)), "reason": "x"}
    client.post(REPLAY, data)
    told = unescape(client.post(REPLAY, data, follow=True).content.decode())
    assert "it has changed since it was chosen" in told
    assert (handler.calls, Replay.objects.count(), LogEntry.objects.count()) == (3, 1, 1)


@pytest.mark.parametrize("reason", ["", "   ", "x" * 256])
def test_without_a_reason_it_asks_again(log_in: Any, handler: Recorder, reason: str) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    page = choose(client, stored_pk())
    again = client.post(REPLAY, {"seen": seen_on(page), "reason": reason})
    assert seen_on(again) == seen_on(page)
    assert "errorlist" in again.content.decode()
    assert not Replay.objects.exists()


def test_only_with_the_permission(log_in: Any, handler: Recorder) -> None:
    client = log_in("view_webhookevent")
    page = client.get(address(EVENTS)).content.decode()
    assert 'name="action"' not in page
    assert "The handlers of" not in choose(client, stored_pk()).content.decode()
    data = {"seen": f"{stored_pk()}:dead:1", "reason": "x"}
    assert client.post(REPLAY, data).status_code == 403
    assert client.get(REPLAY).status_code == 403
    assert Client().post(REPLAY, data).status_code == 302
    assert Client(enforce_csrf_checks=True).post(REPLAY, data).status_code in (302, 403)
    assert not Replay.objects.exists()


def test_only_rows_that_the_project_shows(
    log_in: Any, handler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    model_admin = type(site._registry[WebhookEvent])
    plain = model_admin.get_queryset
    monkeypatch.setattr(
        model_admin, "get_queryset", lambda *args: plain(*args).exclude(event_id="evt_1")
    )
    data = {"seen": [f"{pk}:{status}:1" for pk, status in states()], "reason": "x"}
    client.post(REPLAY, data)
    assert Replay.objects.get().event.event_id == "evt_2"


def test_replays_are_seen_only_with_their_permission(log_in: Any, handler: Recorder) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    pk = stored_pk()
    client.post(REPLAY, {"seen": f"{pk}:dead:1", "reason": "whatever for"})
    assert Replay.objects.count() == 1
    assert "whatever for" not in client.get(address(EVENTS, pk)).content.decode()


def test_a_token_is_asked_for(log_in: Any, handler: Recorder) -> None:
    user = log_in("view_webhookevent", "replay_webhookevent").session["_auth_user_id"]
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(pk=user))
    data = {"seen": f"{stored_pk()}:dead:1", "reason": "x"}
    assert client.post(REPLAY, data).status_code == 403
    assert not Replay.objects.exists()


@pytest.mark.parametrize("seen", ["", "x", "1:dead", "1:dead:1:1", "9" * 30 + ":dead:1"])
def test_nonsense_goes_back_to_the_list(log_in: Any, handler: Recorder, seen: str) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    answer = client.post(REPLAY, {"seen": seen, "reason": "x"})
    assert (answer.status_code, answer["Location"]) == (302, address(EVENTS))


def test_no_more_than_a_page_can_bear(
    log_in: Any, handler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MOST", 1)
    client = log_in("view_webhookevent", "replay_webhookevent")
    pks = list(WebhookEvent.objects.values_list("pk", flat=True))
    choose(client, *pks, select_across=1)
    told = unescape(client.get(address(EVENTS)).content.decode())
    assert "Choose 1 events at the most" in told


def test_refusals_are_told(log_in: Any, handler: Recorder) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    WebhookEvent.objects.update(body=None)
    data = {"seen": f"{stored_pk()}:dead:1", "reason": "x"}
    told = unescape(client.post(REPLAY, data, follow=True).content.decode())
    assert "evt_1: its body is not kept any more" in told
    assert not LogEntry.objects.exists()


def test_in_a_project_with_a_transaction_around_each_request(
    log_in: Any, handler: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = log_in("view_webhookevent", "replay_webhookevent")
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    client.post(REPLAY, {"seen": f"{stored_pk()}:dead:1", "reason": "x"})
    assert WebhookEvent.objects.get(event_id="evt_1").status == EventStatus.PROCESSED


def test_queued_events_are_left_to_the_workers(
    log_in: Any, handler: Recorder, configure: Any, drain: Callable[[], int]
) -> None:
    configure(PROCESSING="queued")
    client = log_in("view_webhookevent", "replay_webhookevent")
    WebhookEvent.objects.filter(event_id="evt_2").delete()
    data = {"seen": f"{stored_pk()}:dead:1", "reason": "x"}
    told = unescape(client.post(REPLAY, data, follow=True).content.decode())
    assert "1 event. left to the workers: 1" in told
    assert stored().status == EventStatus.PENDING
    assert drain() == 1
    assert stored().status == EventStatus.PROCESSED


def states() -> list[tuple[int, str]]:
    return list(WebhookEvent.objects.values_list("pk", "status"))


def stored_pk() -> int:
    return WebhookEvent.objects.get(event_id="evt_1").pk
