"""What Stripe did not deliver: asked for with its official client, over HTTP."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.dispatch.intake import key_of
from django_webhook_idempotency.enums import Outcome
from django_webhook_idempotency.exceptions import MissingExtra
from django_webhook_idempotency.models import WebhookDelivery, WebhookEvent
from django_webhook_idempotency.providers import Incoming, configured_provider
from django_webhook_idempotency.recovery import (
    RateLimited,
    Sent,
    SourceError,
    SourceRefused,
    asking,
    running,
)
from django_webhook_idempotency.recovery.stripe import StripeSource
from tests.deliveries import deliver

from .http_api import Reply
from .stripe_api import (
    EXPIRED_KEY,
    KEY,
    KEY_WITHOUT_EVENTS,
    StripeApi,
    broken,
    rate_limited,
    webhook,
)

WHERE = "WEBHOOK_IDEMPOTENCY['PROVIDERS']['stripe']['RECOVERY']"


@pytest.fixture
def api(monkeypatch) -> Iterator[StripeApi]:
    monkeypatch.setattr(asking, "PAUSES", (0.01, 0.01))
    served = StripeApi()
    with served.served():
        yield served


def sources(api: StripeApi | None = None, **options) -> list[StripeSource]:
    given = {"API_KEY": KEY, **({"API_BASE": api.url} if api else {}), **options}
    return list(StripeSource.configured(configured_provider("stripe"), given))


def source(api: StripeApi, **options) -> StripeSource:
    (only,) = sources(api, **options)
    return only


def since(days: float = 30) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def ids(found) -> list[str]:
    return [sent.identity.event_id for sent in found]


def key_from_function() -> str:
    return KEY


def broken_function() -> str:
    raise RuntimeError(f"no key, but {KEY}")


class TestAsking:
    def test_finds_what_was_not_delivered_over_all_pages(self, api):
        for number in range(430):
            api.add(f"evt_{number}", age=86400 - number, delivered=number % 2 == 0)

        found = ids(source(api).sent(since()))

        assert sorted(found) == sorted(f"evt_{number}" for number in range(1, 430, 2))
        assert [asked.params["limit"] for asked in api.asked] == ["100"] * 3
        assert {asked.params["delivery_success"] for asked in api.asked} == {"false"}
        assert "starting_after" not in api.asked[0].params

    def test_an_empty_list_is_no_error(self, api):
        assert list(source(api).sent(since())) == []
        assert len(api.asked) == 1

    def test_asks_for_nothing_older_than_it_should(self, api):
        api.add("evt_old", age=7200)
        api.add("evt_new", age=1800)

        assert ids(source(api).sent(since(1 / 24))) == ["evt_new"]

    def test_asks_for_some_types_only(self, api):
        api.add("evt_1", "invoice.paid")
        api.add("evt_2", "customer.updated")
        api.add("evt_3", "charge.refunded")

        found = ids(source(api, TYPES=["invoice.paid", "charge.refunded"]).sent(since()))

        assert sorted(found) == ["evt_1", "evt_3"]

    def test_says_when_an_event_leaves_and_that_nobody_accepted_it(self, api):
        event = api.add("evt_1", age=3600)

        (sent,) = source(api, SCOPE="shop").sent(since())

        assert sent.sent_at == datetime.fromtimestamp(event["created"], UTC)
        assert sent.leaves_at == sent.sent_at + timedelta(days=30)
        assert sent.accepted is False
        assert sent.scope == "shop"

    def test_knows_the_time_by_stripes_clock(self, api):
        api.ahead = -5400
        api.add("evt_1", age=10)
        asked = source(api)

        (sent,) = asked.sent(since(1))

        assert abs(asked.now() - (datetime.now(UTC) - timedelta(seconds=5400))) < timedelta(
            seconds=5
        )
        assert asked.now() - sent.sent_at < timedelta(seconds=20)


class TestBody:
    def test_is_spelled_as_the_api_gave_it(self, api):
        text = (
            '{ "id":"evt_1", "object": "event","created": 1800000000, "livemode" :true,\n'
            '\t"type":"invoice.paid", "data": {"object": {"id": "in_1", "rate": 1.50, '
            '"name": "caf\\u00e9 \u2615 \\ud83d", "big": 12345678901234567890123, '
            '"odd": "]}, \\"data\\": [", "deep": [[{}], []]}} }'
        )
        api.add_text(text)
        api.add("evt_2", age=-(1800000000 - time.time()))

        found = list(source(api).sent(since()))

        assert text.encode() in [sent.body for sent in found]

    def test_names_the_connected_account_as_the_webhook_does(self, api):
        event = api.add("evt_1", account="acct_1")

        (sent,) = source(api, ACCOUNTS=["acct_1"], OWN_ACCOUNT=False).sent(since())

        assert json.loads(sent.body) == {**event, "account": "acct_1"}

    @pytest.mark.parametrize("named", [None, ""])
    def test_names_the_account_over_one_that_is_blank(self, api, named):
        api.add("evt_1", account="acct_1", account_=0)
        api.events["acct_1"] = [
            (text.replace('"account_": 0', f'"account": {json.dumps(named)}'), delivered)
            for text, delivered in api.events["acct_1"]
        ]

        (sent,) = source(api, ACCOUNTS=["acct_1"], OWN_ACCOUNT=False).sent(since())

        assert json.loads(sent.body)["account"] == "acct_1"

    def test_an_account_that_the_api_names_is_left_as_it_is(self, api):
        api.add_text(
            '{"id": "evt_1", "account": "acct_1", "type": "a.b", "created": 1800000000}',
            account="acct_1",
        )

        (sent,) = source(api, ACCOUNTS=["acct_1"], OWN_ACCOUNT=False).sent(since())

        assert sent.body.count(b"acct_1") == 1

    @pytest.mark.parametrize("account", ["", "acct_1"])
    def test_has_the_dedupe_key_of_the_webhook(self, api, account):
        event = api.add("evt_1", account=account)
        provider = configured_provider("stripe")
        incoming = Incoming.stored(webhook(event, account), "application/json")

        (sent,) = source(api, ACCOUNTS=[account] if account else [], OWN_ACCOUNT=not account).sent(
            since()
        )

        assert sent.identity == provider.identify(incoming)
        assert key_of(provider, "", sent.identity) == key_of(
            provider, "", provider.identify(incoming)
        )

    def test_stays_out_of_the_repr(self, api):
        api.add("evt_1")

        (sent,) = source(api).sent(since())

        assert "1250" not in repr(sent)

    @pytest.mark.parametrize(
        "text",
        [
            '{"type": "a.b", "created": 1800000000}',
            '{"id": "evt_1", "type": "a.b", "created": true}',
            '{"id": "evt_1", "type": "a.b", "created": 1e99}',
            '{"id": "evt_1", "type": "a.b", "created": 1' + "0" * 30 + "}",
            '{"id": "evt_1", "created": 1800000000, "data": ' + "[" * 101 + "]" * 101 + "}",
        ],
    )
    def test_that_makes_no_sense_is_told_after_the_rest(self, api, text):
        good = '{"id": "evt_2", "type": "a.b", "created": 1800000000}'
        body = f'{{"object": "list", "data": [{text}, {good}], "has_more": false}}'
        api.faults.append(Reply(body=body))
        found: list[Sent] = []

        with pytest.raises(SourceError, match=r"Stripe's list.*: 1\."):
            for sent in source(api).sent(since()):
                found.append(sent)

        assert ids(found) == ["evt_2"]


class TestConnect:
    def test_each_account_is_a_source_with_a_key_of_its_own(self, api):
        api.add("evt_own")
        api.add("evt_1", account="acct_1")
        api.add("evt_2", account="acct_2")

        found = sources(api, ACCOUNTS=["acct_1", "acct_2", "acct_1"])

        assert [each.key for each in found] == ["test/own", "test/acct_1", "test/acct_2"]
        assert [ids(each.sent(since())) for each in found] == [["evt_own"], ["evt_1"], ["evt_2"]]
        assert [asked.headers.get("stripe-account") for asked in api.asked] == [
            None,
            "acct_1",
            "acct_2",
        ]

    def test_the_own_account_can_be_left_out(self, api):
        assert source(api, ACCOUNTS=["acct_1"], OWN_ACCOUNT=False).account == "acct_1"

    def test_an_account_that_is_not_connected_is_refused(self, api):
        found = source(api, ACCOUNTS=["acct_9"], OWN_ACCOUNT=False)

        with pytest.raises(SourceRefused, match=r"acct_9 \(account_invalid\)"):
            list(found.sent(since()))

    def test_scope_and_mode_are_in_the_key_of_the_source(self, api):
        assert source(api, SCOPE="shop").key == "shop/test/own"
        assert source(api, API_KEY="rk_live_51OnlyForTheTests").key == "live/own"
        assert source(api, API_KEY=key_from_function).key == "own"


class TestLimits:
    @pytest.mark.parametrize("advice", ["true", "false"])
    def test_a_pause_is_passed_on_and_not_retried(self, api, advice):
        api.faults.append(rate_limited(**{"Retry-After": "7", "Stripe-Should-Retry": advice}))

        with pytest.raises(RateLimited) as error:
            list(source(api).sent(since()))

        assert error.value.retry_after == 7
        assert len(api.asked) == 1

    def test_a_pause_until_a_date(self, api):
        api.faults.append(
            rate_limited(**{"Retry-After": formatdate(time.time() + 90, usegmt=True)})
        )

        with pytest.raises(RateLimited) as error:
            list(source(api).sent(since()))

        assert 80 <= error.value.retry_after <= 91

    @pytest.mark.parametrize("header", [{}, {"Retry-After": "soon"}, {"Retry-After": "nan"}])
    def test_a_pause_without_a_length(self, api, header):
        api.faults.append(rate_limited(**header))

        with pytest.raises(RateLimited) as error:
            list(source(api).sent(since()))

        assert error.value.retry_after == asking.UNSAID_PAUSE

    def test_goes_on_after_a_pause_where_it_was(self, api):
        for number in range(250):
            api.add(f"evt_{number}", age=86400 - number)
        api.faults.extend([None, rate_limited(**{"Retry-After": "1"})])
        found: list[Sent] = []
        asked, start = source(api), since()

        with pytest.raises(RateLimited):
            for sent in asked.sent(start):
                found.append(sent)
        assert len(found) == 100
        found += asked.sent(start)

        assert len(set(ids(found))) == len(found) == 250
        assert len(api.asked) == 4

    def test_begins_anew_for_another_time(self, api):
        for number in range(150):
            api.add(f"evt_{number}", age=86400 - number)
        api.faults.extend([None, rate_limited()])
        asked = source(api)

        with pytest.raises(RateLimited):
            list(asked.sent(since(20)))

        assert len(list(asked.sent(since(10)))) == 150
        assert len(list(asked.sent(since(20)))) == 150


class TestFaults:
    def test_a_passing_fault_is_ridden_out(self, api):
        api.add("evt_1")
        api.faults.extend([broken(500), broken(502)])

        assert ids(source(api).sent(since())) == ["evt_1"]
        assert len(api.asked) == 3

    def test_a_lasting_one_is_told(self, api):
        api.faults.extend([broken(500)] * 9)

        with pytest.raises(SourceError, match="answers 500") as error:
            list(source(api).sent(since()))

        assert not isinstance(error.value, SourceRefused | RateLimited)
        assert len(api.asked) == 3

    def test_unavailable_with_a_pause_is_a_pause(self, api):
        api.faults.append(broken(503, **{"Retry-After": "120"}))

        with pytest.raises(RateLimited) as error:
            list(source(api).sent(since()))

        assert error.value.retry_after == 120

    @pytest.mark.parametrize(
        ("key", "sentence"),
        [
            (EXPIRED_KEY, r"does not accept the key \(api_key_expired\)"),
            ("sk_test_51WrongAndOnlyForTheTests", "does not accept the key"),
            (KEY_WITHOUT_EVENTS, "the right to read events"),
        ],
    )
    def test_a_key_that_is_not_let_in(self, api, caplog, key, sentence):
        with pytest.raises(SourceRefused, match=sentence) as error:
            list(source(api, API_KEY=key).sent(since()))

        assert f"{WHERE}['API_KEY']" in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__
        assert key[:12] not in str(error.value)
        assert len(api.asked) == 1

    def test_a_question_that_stripe_does_not_take(self, api):
        api.faults.append(
            Reply(400, {"error": {"type": "invalid_request_error", "code": "parameter_unknown"}})
        )

        with pytest.raises(SourceRefused, match="parameter_unknown"):
            list(source(api).sent(since()))

    @pytest.mark.parametrize(
        "body",
        [
            "<html>Welcome to the proxy</html>",
            '{"status": "ok"}',
            "[]",
            '{"object": "list", "data": {}, "has_more": false}',
            '{"object": "list", "data": [], "has_more": true}',
            '{"object": "list", "data": [], "has_more": "no"}',
        ],
    )
    def test_an_answer_that_is_no_list(self, api, body):
        api.faults.extend([Reply(body=body)] * 3)

        with pytest.raises(SourceError, match=r"^Stripe's answer"):
            list(source(api).sent(since()))

    def test_the_same_page_for_ever(self, api):
        page = '{"object": "list", "data": [{"id": "evt_1", "created": 1}], "has_more": true}'
        api.faults.extend([Reply(body=page)] * 5)

        with pytest.raises(SourceError, match="the same page again"):
            list(source(api).sent(since()))
        assert len(api.asked) == 2

    def test_pages_that_go_round(self, api):
        page = '{"object": "list", "data": [{"id": "evt_%d", "created": 1}], "has_more": true}'
        api.faults.extend([Reply(body=page % (number % 2)) for number in range(9)])

        with pytest.raises(SourceError, match="the same page again"):
            list(source(api).sent(since()))
        assert len(api.asked) == 3

    @pytest.mark.parametrize("status", [302, 307])
    def test_an_answer_from_elsewhere(self, api, status):
        elsewhere = StripeApi()
        elsewhere.add("evt_forged")
        with elsewhere.served():
            address = f"{elsewhere.url}/v1/events"
            api.faults.extend([Reply(status, headers={"Location": address})] * 3)

            with pytest.raises(SourceError, match="cannot be read"):
                list(source(api).sent(since()))
        assert elsewhere.asked == []

    def test_an_api_that_does_not_answer(self, api, monkeypatch):
        monkeypatch.setattr(StripeSource, "timeout", 0.1)
        api.answers.clear()
        started = time.monotonic()

        with pytest.raises(SourceError, match="does not answer"):
            list(source(api).sent(since()))

        assert time.monotonic() - started < 5

    def test_an_api_that_is_not_there(self, api):
        asked = source(api)
        # The port of a listener that is gone.
        asked._api_base = "http://127.0.0.1:1"

        with pytest.raises(SourceError, match="cannot be reached"):
            list(asked.sent(since()))


class TestSettings:
    @pytest.mark.parametrize("key", [key_from_function, f"{__name__}.key_from_function"])
    def test_the_key_may_come_from_a_function(self, api, key):
        api.add("evt_1")

        assert ids(source(api, API_KEY=key).sent(since())) == ["evt_1"]

    def test_a_function_that_fails_is_named_without_what_it_said(self, api):
        with pytest.raises(ImproperlyConfigured, match="RuntimeError") as error:
            list(source(api, API_KEY=broken_function).sent(since()))

        assert KEY not in str(error.value)

    @pytest.mark.parametrize(
        "key",
        ["", " ", None, 7, "pk_test_51Public", "sk_test_51 with blank", "sk_test_51\nHost: x"],
    )
    def test_a_key_that_cannot_be_one(self, key):
        with pytest.raises(ImproperlyConfigured, match="API_KEY") as error:
            sources(API_KEY=key)

        assert "51" not in str(error.value)

    def test_no_key_is_in_a_repr(self):
        (only,) = sources()

        assert KEY not in repr(vars(only))

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"TOKEN": "x"}, "'TOKEN'.*Its options: ACCOUNTS, API_BASE, API_KEY"),
            ({"ACCOUNTS": "acct_1"}, "'ACCOUNTS'.*list of ids"),
            ({"ACCOUNTS": ["acct 1"]}, "'ACCOUNTS'.*list of ids"),
            ({"OWN_ACCOUNT": 1}, "'OWN_ACCOUNT'.*True or False"),
            ({"OWN_ACCOUNT": False}, "names no account"),
            ({"SCOPE": "a/b"}, "'SCOPE'"),
            ({"SCOPE": 1}, "'SCOPE'"),
            ({"TYPES": "invoice.paid"}, "'TYPES'"),
            ({"TYPES": ["invoice.*"]}, "'TYPES'"),
            ({"TYPES": [f"a.{n}" for n in range(21)]}, "'TYPES'.*21 types"),
            ({"API_BASE": "http://api.stripe.com"}, "'API_BASE'.*https://"),
            ({"API_BASE": "https://user@api.stripe.com"}, "'API_BASE'"),
            ({"API_BASE": "https://:x"}, "'API_BASE'"),
            ({"API_BASE": 1}, "'API_BASE'"),
        ],
    )
    def test_a_wrong_option_is_named(self, options, sentence):
        with pytest.raises(ImproperlyConfigured, match=sentence) as error:
            sources(**options)

        assert WHERE in str(error.value)

    def test_a_scope_that_the_provider_does_not_have(self, settings):
        provider = configured_provider("stripe", {"SCOPES": ["shop"]})

        with pytest.raises(ImproperlyConfigured, match="not among the provider's SCOPES"):
            StripeSource.configured(provider, {"API_KEY": KEY, "SCOPE": "other"})

    def test_without_the_client(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "stripe", None)

        with pytest.raises(MissingExtra, match=r"django-webhook-idempotency\[stripe\]"):
            sources()

    def test_cannot_have_anything_sent_again(self, api):
        api.add("evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())

        with pytest.raises(SourceRefused):
            asked.redeliver(sent)


def ingest(sent) -> Outcome:
    """Take a recovered event in as the runner does."""
    result = running.ingest(sent, sent.body, configured_provider("stripe"), "")
    assert result is not None
    return result.outcome


@pytest.mark.django_db(transaction=True)
class TestWithItsWebhook:
    @pytest.mark.parametrize("account", ["", "acct_1"])
    def test_a_webhook_after_the_recovery_is_a_duplicate_and_no_conflict(
        self, api, client, handlers, account
    ):
        seen: list[str] = []
        handlers.add(lambda event: seen.append(event.data.get("account", "")), "stripe")
        event = api.add("evt_1", account=account)
        (sent,) = source(api, ACCOUNTS=[account] if account else [], OWN_ACCOUNT=not account).sent(
            since()
        )

        assert ingest(sent) == Outcome.PROCESSED
        response = deliver(client, "stripe", body=webhook(event, account))

        assert response.json()["status"] == "duplicate"
        assert seen == [account]
        assert WebhookEvent.objects.count() == 1
        assert not WebhookDelivery.objects.filter(conflict=True).exists()
        assert set(WebhookDelivery.objects.values_list("origin", "outcome")) == {
            ("recovered", "processed"),
            ("request", "duplicate"),
        }

    def test_a_recovery_after_the_webhook_is_a_duplicate_and_no_conflict(
        self, api, client, handlers
    ):
        seen: list[WebhookEvent] = []
        handlers.add(seen.append, "stripe")
        event = api.add("evt_1")
        deliver(client, "stripe", body=webhook(event))

        (sent,) = source(api).sent(since())

        assert ingest(sent) == Outcome.DUPLICATE
        assert len(seen) == 1
        assert not WebhookDelivery.objects.filter(conflict=True).exists()

    def test_two_webhooks_that_differ_are_still_a_conflict(self, api, client, handlers):
        event = api.add("evt_1")
        deliver(client, "stripe", body=webhook(event))

        deliver(client, "stripe", body=webhook({**event, "type": "invoice.voided"}))

        assert WebhookDelivery.objects.filter(conflict=True).count() == 1
