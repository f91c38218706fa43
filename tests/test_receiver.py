"""The receiving path through the included URLs: one test for each answer of the design."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.test import Client

from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.app.models import Effect
from tests.deliveries import body_of, deliver, signed_headers

PROVIDERS = ["sangho", "github", "stripe", "slack", "standard_webhooks"]

pytestmark = pytest.mark.django_db


def effect(event: WebhookEvent) -> None:
    Effect.objects.create(event_id=event.event_id)


def outcomes() -> list[str]:
    return list(WebhookDelivery.objects.order_by("id").values_list("outcome", flat=True))


@pytest.fixture
def configure(settings: Any) -> Any:
    """Change settings of the package: `configure(WAIT=1)` or `configure(stripe={...})`."""

    def change(**values: Any) -> None:
        mine = dict(settings.WEBHOOK_IDEMPOTENCY)
        providers = dict(mine["PROVIDERS"])
        for name, value in values.items():
            if name.isupper():
                mine[name] = value
            else:
                providers[name] = {**providers.get(name, {}), **value}
        settings.WEBHOOK_IDEMPOTENCY = {**mine, "PROVIDERS": providers}

    return change


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_copy_has_no_effect(client: Client, handlers: Any, provider: str) -> None:
    handlers.add(effect)
    first = deliver(client, provider)
    copy = deliver(client, provider)
    assert (first.status_code, first.json()) == (200, {"status": "processed", "event": "evt_1"})
    assert (copy.status_code, copy.json()) == (200, {"status": "duplicate", "event": "evt_1"})
    assert Effect.objects.count() == 1
    assert WebhookEvent.objects.get().status == "processed"
    assert outcomes() == ["processed", "duplicate"]


def test_a_type_without_a_handler_is_ignored(client: Client, handlers: Any) -> None:
    """WB-076: an unknown type is no fault of the provider's."""
    handlers.add(effect, "stripe", "invoice.*")
    answer = deliver(client, "stripe", event_type="customer.created")
    assert (answer.status_code, answer.json()["status"]) == (200, "ignored")
    event = WebhookEvent.objects.get()
    assert (event.status, event.attempts, event.handled_by) == ("ignored", 0, "")
    assert deliver(client, "stripe", event_type="customer.created").json()["status"] == "duplicate"


def test_the_event_row_tells_the_first_run(client: Client, handlers: Any) -> None:
    handlers.add(effect, name="shop.webhooks.fulfil")
    deliver(client, "stripe", livemode=True, account="acct_1")
    event = WebhookEvent.objects.get()
    assert event.handled_by == "shop.webhooks.fulfil"
    assert event.body is not None
    assert json.loads(bytes(event.body))["id"] == "evt_1"
    assert not HandlerRun.objects.exists()


@pytest.mark.parametrize("slash", ["", "/"])
def test_both_forms_of_the_address_are_served(client: Client, slash: str) -> None:
    """WB-073: a redirect would lose the body."""
    assert deliver(client, "sangho", path=f"/webhooks/sangho{slash}").status_code == 200
    assert deliver(client, "sangho", path=f"/webhooks/sangho/shop-1{slash}").status_code == 200


def test_scopes_keep_equal_ids_apart(client: Client, handlers: Any) -> None:
    """WB-030, WB-031: endpoint, tenant, hook and live or test mode."""
    handlers.add(effect)
    for path in ("/webhooks/stripe/", "/webhooks/stripe/a/", "/webhooks/stripe/b/"):
        assert deliver(client, "stripe", path=path).json()["status"] == "processed"
    for more in ({"livemode": True}, {"livemode": False}, {"livemode": True, "account": "acct_1"}):
        assert deliver(client, "stripe", **more).json()["status"] == "processed"
    assert deliver(client, "sangho").json()["status"] == "processed"
    for hook in ("1", "2"):
        answer = deliver(client, "github", headers={"X-GitHub-Hook-ID": hook})
        assert answer.json()["status"] == "processed"
    assert Effect.objects.count() == WebhookEvent.objects.count() == 9


def test_a_scope_in_the_url_cannot_be_imitated(client: Client, handlers: Any) -> None:
    """A provider's own scope that contains a slash is not the scope of another URL."""
    handlers.add(effect)
    deliver(client, "github", path="/webhooks/github/a/", headers={"X-GitHub-Hook-ID": "b"})
    deliver(client, "github", headers={"X-GitHub-Hook-ID": "a/b"})
    assert sorted(WebhookEvent.objects.values_list("scope", flat=True)) == ["a%2Fb", "a/b"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("evt_AbC", "evt_aBc"),
        ("sp", "sp\u00a0"),
        ("\u00e9", "e"),
        ("x" * 300 + "1", "x" * 300 + "2"),
    ],
)
def test_ids_that_a_collation_takes_for_equal_are_not(
    client: Client, handlers: Any, first: str, second: str
) -> None:
    """WB-090, WB-091: the key is a digest, equal on every database."""
    handlers.add(effect)
    assert deliver(client, "sangho", first).json()["status"] == "processed"
    assert deliver(client, "sangho", second).json()["status"] == "processed"
    assert deliver(client, "sangho", second).json()["status"] == "duplicate"
    assert Effect.objects.count() == 2


@pytest.mark.parametrize("event_id", ["a\x00b", "\ud800", "x" * 10_000, "</script>", "\U0001f4b8"])
def test_any_text_is_an_id(client: Client, event_id: str) -> None:
    """WB-060, WB-090: no id ends in a database error."""
    body = json.dumps({"id": event_id, "type": "t" * 1000 + "\x00"}).encode()
    for status in ("ignored", "duplicate"):
        answer = deliver(client, "sangho", body=body)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    event = WebhookEvent.objects.get()
    assert bytes(event.body or b"") == body
    assert len(event.event_id) <= 255


@pytest.mark.parametrize(
    "document",
    ["{}", '{"id": null}', '{"id": ""}', '{"id": "  "}', '{"id": 7}', '{"id": ["a"]}', "[]", "7"],
)
def test_no_usable_id_is_refused(client: Client, document: str) -> None:
    """WB-022: a shared blank id would swallow every other event."""
    answer = deliver(client, "stripe", body=document.encode())
    assert (answer.status_code, answer.json()) == (400, {"status": "malformed"})
    assert not WebhookEvent.objects.exists()
    assert outcomes() == ["malformed"]


def test_a_digest_can_stand_in_for_an_id(client: Client, configure: Any, handlers: Any) -> None:
    """WB-033: only where it is asked for."""
    configure(stripe={"ID_FROM_BODY": True})
    handlers.add(effect)
    for body in (b'{"n": 1}', b'{"n": 2}', b'{"n": 1}'):
        assert deliver(client, "stripe", body=body).status_code == 200
    assert Effect.objects.count() == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\xff\xfe\x00",
        b"[" * 20_000 + b"]" * 20_000,
        b'{"id": ' + b"9" * 5_000 + b"}",
        b'{"id": "evt_1", "x": ' + b"[" * 101 + b"]" * 101 + b"}",
    ],
)
def test_a_body_that_cannot_be_read_is_refused(client: Client, body: bytes) -> None:
    """WB-059, WB-062: never a 500."""
    answer = deliver(client, "sangho", body=body)
    assert (answer.status_code, answer.json()) == (400, {"status": "malformed"})


@pytest.mark.parametrize(
    "body", [b'\xef\xbb\xbf{"id": "evt_1"}', b'{"id":"evt_1", "n": "\\u0000"}']
)
def test_odd_but_valid_bodies_are_taken(client: Client, body: bytes) -> None:
    assert deliver(client, "sangho", body=body).status_code == 200


def test_a_declared_charset_is_honoured(client: Client, handlers: Any) -> None:
    """WB-059."""
    seen = []
    handlers.add(lambda event: seen.append(event.data["name"]))
    body = '{"id": "evt_1", "name": "\u00e8"}'.encode("latin-1")
    kind = "application/json; charset=iso-8859-1"
    assert deliver(client, "sangho", body=body, content_type=kind).status_code == 200
    assert seen == ["\u00e8"]
    other = body.replace(b"evt_1", b"evt_2")
    kind = "application/json; charset=nonsense"
    assert deliver(client, "sangho", body=other, content_type=kind).status_code == 400


def test_signed_bytes_are_what_counts(client: Client, handlers: Any) -> None:
    """WB-053, WB-055: upper-case escapes, duplicate keys, odd numbers and white space survive."""
    body = rb'{ "id":"evt_1","a":"\u001B\/", "b" : 1.0, "b": 2 }' + b"\n"
    handlers.add(effect)
    assert deliver(client, "github", body=body).json()["status"] == "processed"
    assert bytes(WebhookEvent.objects.get().body or b"") == body


def test_a_body_over_the_limit(client: Client, configure: Any) -> None:
    configure(sangho={"MAX_BODY": 1000})
    body = body_of("sangho", "evt_1", filler="x" * 1000)
    answer = deliver(client, "sangho", body=body)
    assert (answer.status_code, answer.json()) == (413, {"status": "too_large"})
    assert outcomes() == ["too_large"]


def test_a_body_over_djangos_own_limit(client: Client, settings: Any) -> None:
    """WB-063: Django refuses it when it is read, and the sender still learns why."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    body = body_of("sangho", "evt_1", filler="x" * 1000)
    answer = deliver(client, "sangho", body=body)
    assert (answer.status_code, answer.json()) == (413, {"status": "too_large"})


@pytest.mark.parametrize("method", ["get", "put", "delete", "head", "options"])
def test_wrong_methods(client: Client, method: str) -> None:
    answer = getattr(client, method)("/webhooks/stripe/")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"


def test_wrong_content_type(client: Client) -> None:
    answer = deliver(client, "stripe", content_type="text/xml")
    expected = {"status": "unsupported_media_type", "expected": ["application/json"]}
    assert (answer.status_code, answer.json()) == (415, expected)
    assert not WebhookDelivery.objects.exists()


@pytest.mark.parametrize("provider", ["nobody", "stripes"])
def test_an_unknown_provider_is_not_found(client: Client, provider: str) -> None:
    assert client.post(f"/webhooks/{provider}/", b"", "application/json").status_code == 404


def test_a_github_form_is_understood(client: Client, handlers: Any) -> None:
    """WB-056."""
    seen = []
    handlers.add(lambda event: seen.append((event.type, event.data["action"])))
    body = b"payload=%7B%22action%22%3A%22opened%22%7D"
    answer = deliver(
        client,
        "github",
        event_type="issues",
        body=body,
        content_type="application/x-www-form-urlencoded",
    )
    assert answer.status_code == 200
    assert seen == [("issues.opened", "opened")]


def test_handshakes(client: Client, handlers: Any) -> None:
    """They reach no handler, and only the exact answer will do."""
    handlers.add(effect)
    body = b'{"type": "url_verification", "challenge": "abc"}'
    answer = deliver(client, "slack", body=body)
    assert (answer.status_code, answer.content) == (200, b"abc")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert deliver(client, "github", event_type="ping").status_code == 200
    assert client.get("/webhooks/slack/?ssl_check=1").status_code == 200
    assert not WebhookEvent.objects.exists()
    assert not Effect.objects.exists()
    assert outcomes() == ["handshake"] * 3


def test_a_challenge_without_a_signature_is_not_answered(client: Client) -> None:
    body = b'{"type": "url_verification", "challenge": "abc"}'
    answer = client.post("/webhooks/slack/", body, "application/json")
    assert (answer.status_code, answer.json()) == (401, {"status": "rejected"})


def test_slack_retries_are_recorded_and_never_dropped(
    client: Client, handlers: Any, caplog: Any
) -> None:
    """WB-024: the retry may be the only copy that got in."""
    handlers.add(effect)
    caplog.set_level(logging.INFO, "django_webhook_idempotency")
    retry = {"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}
    assert deliver(client, "slack", headers=retry).json()["status"] == "processed"
    delivery = WebhookDelivery.objects.get()
    assert (delivery.retry_number, delivery.retry_reason) == (1, "http_timeout")
    line = next(
        record.message for record in caplog.records if "outcome=processed" in record.message
    )
    assert "retry=1 retry_reason=http_timeout" in line


def test_slack_is_told_to_stop(client: Client, handlers: Any) -> None:
    from django_webhook_idempotency.exceptions import Reject

    def reject(event: WebhookEvent) -> None:
        raise Reject("not for us")

    handlers.add(reject)
    answer = deliver(client, "slack")
    assert answer.status_code >= 400
    assert answer.headers["x-slack-no-retry"] == "1"


def test_several_handlers_fail_apart(client: Client, handlers: Any) -> None:
    """DESIGN promise 11: one handler's failure repeats no other."""
    fails = [True]

    def second(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id, name="second")
        if fails:
            raise ValueError("broken")

    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id, name="first"))
    handlers.add(second)
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id, name="third"))
    assert deliver(client, "github").status_code == 500
    assert sorted(Effect.objects.values_list("name", flat=True)) == ["first", "third"]
    event = WebhookEvent.objects.get()
    assert (event.status, event.processed_at) == ("failed", None)
    assert event.runs.count() == 3
    fails.clear()
    assert deliver(client, "github").json()["status"] == "processed"
    assert sorted(Effect.objects.values_list("name", flat=True)) == ["first", "second", "third"]
    assert [run.handler for run in event.runs.filter(number=2)] == ["test.handler2"]
    assert deliver(client, "github").json()["status"] == "duplicate"


def test_atomic_and_leased_handlers_of_one_event(client: Client, handlers: Any) -> None:
    fails = [True]

    def leased(event: WebhookEvent) -> None:
        Effect.objects.create(event_id=event.event_id, name="leased")
        if fails:
            raise ValueError("broken")

    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id, name="atomic"))
    handlers.add(leased, atomic=False)
    assert deliver(client, "github").status_code == 500
    fails.clear()
    assert deliver(client, "github").json()["status"] == "processed"
    assert sorted(Effect.objects.values_list("name", flat=True)) == ["atomic", "leased", "leased"]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_signed_body_under_a_new_id_is_flagged(
    client: Client, handlers: Any, atomic: bool
) -> None:
    """WB-034: GitHub signs neither the GUID nor the hook's id."""
    handlers.add(effect, atomic=atomic)
    body = body_of("github", "same")
    deliver(client, "github", "guid-1", body=body)
    # Two hooks on one URL share the GUID and may share the body: nothing is wrong with that.
    deliver(client, "github", "guid-1", body=body, headers={"X-GitHub-Hook-ID": "2"})
    deliver(client, "github", "guid-2", body=body, headers={"X-GitHub-Hook-ID": "3"})
    deliver(client, "github", "guid-3", body=body, path="/webhooks/github/made-up/")
    assert Effect.objects.count() == 4
    rows = WebhookDelivery.objects.order_by("id")
    assert [row.conflict for row in rows] == [False, False, True, True]
    assert "under another id" in rows[2].note


@pytest.mark.parametrize("atomic", [True, False])
def test_a_signed_body_under_a_new_id_can_be_refused(
    client: Client, handlers: Any, configure: Any, atomic: bool
) -> None:
    """WB-034."""
    configure(github={"SAME_BODY": "refuse"})
    handlers.add(effect, atomic=atomic)
    body = body_of("github", "same")
    assert deliver(client, "github", "guid-1", body=body).status_code == 200
    answer = deliver(client, "github", "guid-2", body=body)
    assert (answer.status_code, answer.json()["status"]) == (401, "rejected")
    answer = deliver(client, "github", "guid-1", body=body, headers={"X-GitHub-Hook-ID": "2"})
    assert answer.status_code == 200
    assert deliver(client, "github", "guid-1", body=body).json()["status"] == "duplicate"
    assert Effect.objects.count() == WebhookEvent.objects.count() == 2


def test_two_stripe_events_of_one_change(client: Client, handlers: Any, configure: Any) -> None:
    """WB-028: by object and type, for the types that the project names."""
    configure(stripe={"SECONDARY_KEY_TYPES": ["payment_intent.succeeded"]})
    handlers.add(effect)
    data = {"object": {"id": "pi_1"}}
    kinds = ["payment_intent.succeeded", "payment_intent.succeeded", "customer.updated"]
    kinds.append("customer.updated")
    answers = [
        deliver(client, "stripe", f"evt_{number}", kind, data=data).json()["status"]
        for number, kind in enumerate(kinds)
    ]
    assert answers == ["processed", "duplicate", "processed", "processed"]


def test_a_secondary_key_of_ones_own(client: Client, handlers: Any, configure: Any) -> None:
    """WB-028, WB-029: for any provider, by a function of the delivery."""
    configure(sangho={"SECONDARY_KEY": lambda incoming: incoming.json.get("payment")})
    handlers.add(effect)
    for number, payment in enumerate(["p1", "p1", None, None]):
        deliver(client, "sangho", f"evt_{number}", payment=payment)
    assert Effect.objects.count() == 3


def test_sanghos_unsigned_header_cannot_contradict_the_body(client: Client) -> None:
    answer = deliver(client, "sangho", headers={"Sangho-Event-ID": "evt_other"})
    assert (answer.status_code, answer.json()) == (400, {"status": "malformed"})


@pytest.mark.parametrize("age", [-301, 302])
def test_a_timestamp_outside_the_tolerance(client: Client, age: int) -> None:
    """WB-068: told apart from a wrong signature."""
    import time

    body = body_of("sangho", "evt_1")
    headers = signed_headers("sangho", body, "evt_1", timestamp=int(time.time()) - age)
    answer = client.post("/webhooks/sangho/", body, "application/json", headers=headers)
    assert (answer.status_code, answer.json()) == (401, {"status": "rejected"})
    assert WebhookDelivery.objects.get().note == "stale_timestamp"


def test_any_live_secret_verifies(client: Client, configure: Any) -> None:
    """WB-067: rotation without downtime, and the row says which secret it was."""
    from datetime import timedelta

    from django.utils import timezone

    old = {"SECRET": "whsec_old", "UNTIL": timezone.now() + timedelta(hours=1)}
    gone = {"SECRET": "whsec_gone", "UNTIL": timezone.now() - timedelta(hours=1)}
    configure(stripe={"SECRETS": ["whsec_new\n", old, gone]})
    prints = []
    for secret, status in (("whsec_new", 200), ("whsec_old", 200), ("whsec_gone", 401)):
        body = body_of("stripe", secret)
        headers = signed_headers("stripe", body, secret, secret=secret)
        answer = client.post("/webhooks/stripe/", body, "application/json", headers=headers)
        assert answer.status_code == status
        prints.append(WebhookDelivery.objects.latest("id").secret_fingerprint)
    assert len(set(prints)) == 3
    assert prints[2] == ""


@pytest.mark.parametrize("secrets", [[], [""], ["  "], [None], None, "", "whsec_x", 7])
def test_without_a_secret_nobody_is_let_in(client: Client, configure: Any, secrets: Any) -> None:
    """WB-065: an empty key verifies anybody's signature."""
    import hashlib
    import hmac
    import time

    configure(sangho={"SECRETS": secrets})
    body, now = body_of("sangho", "evt_1"), int(time.time())
    forged = hmac.new(b"", f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"Sangho-Signature": f"t={now},v1={forged}"}
    answer = client.post("/webhooks/sangho/", body, "application/json", headers=headers)
    assert (answer.status_code, answer.json()) == (503, {"status": "misconfigured"})
    assert answer.headers["Retry-After"]
    assert not WebhookEvent.objects.exists()


def test_secrets_by_scope(client: Client, configure: Any) -> None:
    """Each tenant has its own."""
    configure(stripe={"SECRETS": lambda scope: [f"whsec_{scope}"]})
    body = body_of("stripe", "evt_1")
    headers = signed_headers("stripe", body, "evt_1", secret="whsec_a")
    for path, status in (("/webhooks/stripe/a/", 200), ("/webhooks/stripe/b/", 401)):
        assert client.post(path, body, "application/json", headers=headers).status_code == status


def test_a_tenant_without_secrets_is_not_found(client: Client, configure: Any, caplog: Any) -> None:
    """A scope that somebody made up is no mistake in the settings."""
    configure(stripe={"SECRETS": lambda scope: {"a": ["whsec_a"]}.get(scope)})
    answer = deliver_to(client, "/webhooks/stripe/b/", "whsec_a")
    assert (answer.status_code, answer.json()) == (404, {"status": "unknown_scope"})
    assert deliver_to(client, "/webhooks/stripe/a/", "whsec_a").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "CRITICAL"]


def test_scopes_can_be_closed(client: Client, configure: Any) -> None:
    configure(stripe={"SCOPES": ["a"]})
    assert deliver(client, "stripe").status_code == 200
    assert deliver(client, "stripe", path="/webhooks/stripe/a/").status_code == 200
    assert deliver(client, "stripe", path="/webhooks/stripe/b/").status_code == 404
    assert WebhookEvent.objects.count() == 2


def deliver_to(client: Client, path: str, secret: str) -> Any:
    body = body_of("stripe", "evt_1")
    headers = signed_headers("stripe", body, "evt_1", secret=secret)
    return client.post(path, body, "application/json", headers=headers)


def test_the_wait_that_is_asked_for_is_the_providers(client: Client, configure: Any) -> None:
    configure(stripe={"SECRETS": [], "RETRY_AFTER": 77})
    answer = client.post("/webhooks/stripe/", b"{}", "application/json")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "77")


@pytest.mark.parametrize("atomic", [True, False])
def test_several_handlers_answer_nothing_of_their_own(
    client: Client, handlers: Any, atomic: bool
) -> None:
    from django.http import HttpResponse

    handlers.add(lambda event: HttpResponse("A", status=203), atomic=atomic)
    handlers.add(lambda event: HttpResponse("B", status=203), atomic=atomic)
    answer = deliver(client, "slack")
    assert (answer.status_code, answer.json()["status"]) == (200, "processed")


@pytest.mark.parametrize("atomic", [True, False])
def test_a_rejection_does_not_hide_what_can_be_tried_again(
    client: Client, handlers: Any, atomic: bool
) -> None:
    """DESIGN promises 5 and 11: the provider has to come back for the handler that failed."""
    from django_webhook_idempotency.exceptions import Reject

    def fail(event: WebhookEvent) -> None:
        raise RuntimeError("broken")

    def reject(event: WebhookEvent) -> None:
        raise Reject

    handlers.add(fail, atomic=atomic)
    handlers.add(reject, atomic=atomic)
    assert deliver(client, "stripe").status_code == 500
    assert WebhookEvent.objects.get().status == "failed"


@pytest.mark.parametrize("atomic", [True, False])
def test_a_generator_is_no_handler_that_ran(client: Client, handlers: Any, atomic: bool) -> None:
    def stray(event: WebhookEvent) -> Any:
        Effect.objects.create(event_id=event.event_id)
        yield

    handlers.add(stray, atomic=atomic)
    assert deliver(client, "stripe").status_code == 500
    assert "did not run" in WebhookEvent.objects.get().last_error


@pytest.mark.parametrize(("scope", "status"), [("made-up/", 404), ("", 503)])
def test_a_secrets_function_that_fails(
    client: Client, configure: Any, scope: str, status: int
) -> None:
    configure(stripe={"SECRETS": lambda scope: {"a": ["whsec_a"]}[scope]})
    assert deliver_to(client, f"/webhooks/stripe/{scope}", "whsec_a").status_code == status
    configure(stripe={"SECRETS": lambda scope: 1 / 0})
    assert deliver_to(client, f"/webhooks/stripe/{scope}", "whsec_a").status_code == 503


def test_a_key_function_that_fails(client: Client, configure: Any) -> None:
    configure(sangho={"SECONDARY_KEY": lambda incoming: incoming.json["none"]})
    assert deliver(client, "sangho").status_code == 400
    configure(sangho={"SECONDARY_KEY": lambda incoming: 1 / 0})
    assert deliver(client, "sangho").status_code == 503


def test_settings_that_are_no_dictionary(client: Client, settings: Any) -> None:
    settings.WEBHOOK_IDEMPOTENCY = ["sangho"]
    answer = client.post("/webhooks/sangho/", b"{}", "application/json")
    assert (answer.status_code, answer.json()) == (503, {"status": "misconfigured"})


def test_too_many_parameters(client: Client) -> None:
    query = "&".join(f"a{number}=1" for number in range(2000))
    answer = deliver(client, "sangho", path=f"/webhooks/sangho/?{query}")
    assert (answer.status_code, answer.json()) == (400, {"status": "malformed"})


def test_strangers_cannot_fill_the_table(client: Client, configure: Any) -> None:
    """DESIGN promise 9: bounded rows, whatever they send."""
    configure(REJECTED_LIMIT=5, sangho={"MAX_BODY": 100})
    for number in range(30):
        client.post("/webhooks/sangho/", b"{}", "application/json")
        client.post("/webhooks/sangho/", b"x" * 200, "application/json")
        client.post("/webhooks/sangho/", b"x", "application/json", headers={"X": str(number)})
    assert WebhookDelivery.objects.filter(outcome="rejected").count() == 5
    assert WebhookDelivery.objects.filter(outcome="too_large").count() == 5
    assert not WebhookEvent.objects.exists()


def test_a_flood_is_not_even_written(client: Client) -> None:
    """One process writes a burst of rows and then one a second."""
    from django_webhook_idempotency.dispatch.deliveries import STRANGER_BURST

    for _ in range(STRANGER_BURST + 50):
        client.post("/webhooks/sangho/", b"{}", "application/json")
    assert STRANGER_BURST <= WebhookDelivery.objects.count() <= STRANGER_BURST + 20


def test_nothing_secret_is_logged_or_stored(client: Client, handlers: Any, caplog: Any) -> None:
    def fail(event: WebhookEvent) -> None:
        raise ValueError("broken")

    handlers.add(fail)
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Bearer token-1", "Cookie": "session=token-2"}
    deliver(client, "sangho", card="4242", headers=headers)
    deliver(client, "sangho", headers={"Sangho-Signature": "t=1,v1=" + "ab" * 32, **headers})
    kept = json.dumps(list(WebhookDelivery.objects.values_list("headers", flat=True)))
    log = "\n".join(record.getMessage() + str(record.exc_text) for record in caplog.records)
    for secret in ("token-1", "token-2", "v1=", "ab" * 32, "whsec_", "4242", "Traceback"):
        assert secret not in kept
        assert secret not in log
    assert "content-type" in kept


def test_a_log_line_cannot_be_forged(client: Client, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "django_webhook_idempotency")
    body = json.dumps({"id": "evt_1\nwebhook provider=stripe", "type": "a b\r\n"}).encode()
    deliver(client, "sangho", body=body)
    (line,) = [record.getMessage() for record in caplog.records if "evt_1" in record.getMessage()]
    assert "\n" not in line
    assert "event=evt_1?webhook?provider=stripe type=a?b??" in line


def test_a_response_that_a_handler_returns_is_sent(client: Client, handlers: Any) -> None:
    from django.http import HttpResponse

    handlers.add(lambda event: HttpResponse("thanks", status=202))
    answer = deliver(client, "slack")
    assert (answer.status_code, answer.content) == (202, b"thanks")
    assert WebhookDelivery.objects.get().status == 202


def test_a_coroutine_is_never_left_unawaited(client: Client, handlers: Any) -> None:
    async def effect_later(event: WebhookEvent) -> None:
        await Effect.objects.acreate(event_id=event.event_id)

    handlers.add(lambda event: effect_later(event))
    assert deliver(client, "sangho").status_code == 200
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("status", [299, 199, 600, True, "200", None])
def test_a_wrong_option_is_named_and_nothing_is_lost(
    client: Client, configure: Any, caplog: Any, status: Any
) -> None:
    configure(sangho={"FAILED_STATUS": status})
    answer = deliver(client, "stripe")
    assert answer.status_code == 200
    body = body_of("sangho", "evt_1")
    answer = client.post("/webhooks/sangho/", body, "application/json")
    assert (answer.status_code, answer.json()) == (503, {"status": "misconfigured"})
    assert "FAILED_STATUS" in caplog.text


@pytest.mark.parametrize("entry", [["whsec_x"], "whsec_x", None])
def test_an_entry_that_is_no_dictionary_is_named(
    client: Client, settings: Any, caplog: Any, entry: Any
) -> None:
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"sangho": entry}}
    answer = client.post("/webhooks/sangho/", b"{}", "application/json")
    assert (answer.status_code, answer.json()) == (503, {"status": "misconfigured"})
    assert "Make it a dictionary of options" in caplog.text
