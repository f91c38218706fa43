"""Stripe's own facts."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import stripe
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.providers.stripe import Stripe

from .cases import NOW, SECRETS, incoming, make, vector

SNAPSHOT = {
    "id": "evt_1NG8Du2eZvKYlo2CUI79vXWy",
    "object": "event",
    "api_version": "2019-02-19",
    "created": 1686089970,
    "data": {
        "object": {
            "id": "pi_1",
            "object": "payment_intent",
            "metadata": {"pending_webhooks": "7", "note": 'a "pending_webhooks": 3 b'},
        }
    },
    "livemode": True,
    "pending_webhooks": 2,
    "request": {"id": None, "idempotency_key": None},
    "type": "payment_intent.succeeded",
}
THIN = {
    "id": "evt_test_65R9Ijk8dKEYZcXeRWn16R9A7j1FSQ3w3TGDPLLGSM4CW0",
    "object": "v2.core.event",
    "type": "v1.billing.meter.error_report_triggered",
    "created": "2024-09-17T06:20:52.246Z",
    "livemode": False,
    "context": None,
    "reason": None,
}


def identify(*, without=(), options=None, **changes):
    document = {**SNAPSHOT, **changes}
    for name in without:
        del document[name]
    return make("stripe", **(options or {})).identify(incoming(document))


def test_windows():
    provider = make("stripe")

    assert provider.retry_window == timedelta(days=3)
    assert provider.resend_window == provider.window == timedelta(days=30)
    assert provider.stop_retry_status == 200
    assert provider.deadline is None


class TestScope:
    """WB-031: account and mode tell equal ids apart."""

    @pytest.mark.parametrize(
        ("changes", "scope"),
        [
            ({}, ":live"),
            ({"livemode": False}, ":test"),
            ({"account": "acct_1"}, "acct_1:live"),
            ({"account": "acct_1", "livemode": False}, "acct_1:test"),
            ({"context": "acct_2"}, "acct_2:live"),
            ({"account": "acct_1", "context": "acct_2"}, "acct_1:live"),
            ({"account": "", "context": "acct_2"}, "acct_2:live"),
            ({"account": None, "context": None}, ":live"),
            ({"livemode": None}, ":"),
            ({"livemode": 1}, ":"),
            ({"livemode": 0}, ":"),
            ({"livemode": "true"}, ":"),
        ],
    )
    def test_account_and_mode(self, changes, scope):
        assert identify(**changes).scope == scope

    def test_a_missing_mode_is_a_value_of_its_own(self):
        scopes = {
            identify(without=["livemode"]).scope,
            identify(livemode=True).scope,
            identify(livemode=False).scope,
        }

        assert scopes == {":", ":live", ":test"}

    def test_no_account_can_pose_as_another_mode(self):
        assert identify(account="acct_1:live", livemode=False).scope == r"acct_1\:live:test"
        assert identify(account="acct_1:live", livemode=None).scope != "acct_1:live"


class TestThin:
    def test_a_thin_event_is_identified(self):
        provider = make("stripe")
        found = provider.identify(incoming({**THIN, "context": "acct_1"}))

        assert found.event_id == THIN["id"]
        assert found.event_type == "v1.billing.meter.error_report_triggered"
        assert found.scope == "acct_1:test"
        assert provider.payload(incoming(THIN)) == THIN

    def test_a_thin_event_of_ones_own(self):
        assert make("stripe").identify(incoming(THIN)).scope == ":test"

    def test_it_has_no_object_for_a_secondary_key(self):
        provider = make("stripe", SECONDARY_KEY_TYPES=[THIN["type"]])

        assert provider.identify(incoming(THIN)).secondary == ""


class TestSecondaryKey:
    """WB-028: two events about one change, for the types that the project names."""

    NAMED = ("payment_intent.succeeded",)

    def secondary(self, **changes):
        return identify(options={"SECONDARY_KEY_TYPES": self.NAMED}, **changes).secondary

    def test_never_by_default(self):
        assert identify().secondary == ""

    def test_same_type_and_object_give_the_same_key(self):
        assert self.secondary() == self.secondary(id="evt_2") == "payment_intent.succeeded:pi_1"

    def test_another_type_has_none(self):
        assert self.secondary(type="customer.updated") == ""

    def test_another_object_gives_another_key(self):
        assert self.secondary(data={"object": {"id": "pi_2"}}) != self.secondary()

    @pytest.mark.parametrize("data", [None, {}, {"object": {}}, {"object": {"id": ""}}, [1]])
    def test_no_object_id_no_key(self, data):
        assert self.secondary(data=data) == ""

    def test_type_and_object_cannot_be_confused(self):
        options = {"SECONDARY_KEY_TYPES": ["a", "a:b"]}
        first = identify(type="a:b", data={"object": {"id": "c"}}, options=options)
        second = identify(type="a", data={"object": {"id": "b:c"}}, options=options)

        assert first.secondary
        assert first.secondary != second.secondary

    @pytest.mark.parametrize("value", [[], (), {"a.b"}, frozenset(["a.b"]), iter(["a.b"])])
    def test_any_list_of_types(self, value):
        assert Stripe("stripe", {"SECONDARY_KEY_TYPES": value}).secondary_key_types <= {"a.b"}

    @pytest.mark.parametrize(
        "value",
        ["payment_intent.succeeded", b"a", None, 5, {"a": 1}, [1], [["a"]], [""], [" "], ["a.*"]],
    )
    def test_anything_else_is_refused(self, value):
        with pytest.raises(ImproperlyConfigured, match="SECONDARY_KEY_TYPES"):
            make("stripe", SECONDARY_KEY_TYPES=value)


def digest(body):
    return make("stripe").body_digest(
        body if isinstance(body, bytes) else json.dumps(body).encode()
    )


class TestBodyDigest:
    """WB-033: a counter that changes between attempts makes no other body of it."""

    @pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",\n  ", " :\t\r\n ")])
    def test_the_counter_does_not_count(self, separators):
        first, second = (
            json.dumps({**SNAPSHOT, "pending_webhooks": count}, separators=separators).encode()
            for count in (0, 12)
        )

        assert first != second
        assert digest(first) == digest(second)

    @pytest.mark.parametrize("place", ["first", "last"])
    def test_wherever_it_stands(self, place):
        rest = {name: value for name, value in SNAPSHOT.items() if name != "pending_webhooks"}
        first, second = (
            {"pending_webhooks": n, **rest} if place == "first" else {**rest, "pending_webhooks": n}
            for n in (1, 2)
        )

        assert digest(first) == digest(second)

    @pytest.mark.parametrize(
        "changes",
        [
            {"id": "evt_2"},
            {"livemode": False},
            {"data": {"object": {"id": "pi_1", "pending_webhooks": 5}}},
            {"data": {"object": {"id": "pi_1", "pending_webhooks": 6}}},
            {"data": {"object": {"id": "pi_1", "list": [{"pending_webhooks": 5}]}}},
            {"data": {"object": {"id": "pi_1", "note": '"pending_webhooks": 5'}}},
            {"data": {"object": {"id": "pi_1", "note": '{"pending_webhooks": 5'}}},
            {"data": {"object": {"id": "pi_1", "note": '\\"pending_webhooks\\": 5'}}},
            {'x"pending_webhooks': 5},
            {'x"pending_webhooks': 6},
            {"pending_webhooks": None},
            {"pending_webhooks": "2"},
            {"pending_webhooks": [2]},
            {"pending_webhook": 2},
        ],
    )
    def test_everything_else_counts(self, changes):
        digests = [digest(SNAPSHOT), digest({**SNAPSHOT, **changes})]

        assert digests[0] != digests[1]

    def test_a_nested_counter_counts(self):
        first, second = (
            {**SNAPSHOT, "data": {"object": {"pending_webhooks": n, "b": "}"}}} for n in (5, 6)
        )

        assert digest(first) != digest(second)
        assert digest(first) == digest({**first, "pending_webhooks": 9})

    def test_a_nested_counter_and_brackets_in_strings_before_it(self):
        first, second = (
            {"a": '[{"\\', "data": [{"pending_webhooks": 1}], "b": "]", "pending_webhooks": n}
            for n in (5, 6)
        )

        assert digest(first) == digest(second)

    def test_bodies_that_are_no_json(self):
        assert digest(b"") != digest(b"\xff")
        assert digest(b'[{"pending_webhooks":1}]') != digest(b'[{"pending_webhooks":2}]')
        assert digest(b'"pending_webhooks":1') != digest(b'"pending_webhooks":2')


class TestSignature:
    @pytest.mark.parametrize(
        ("name", "valid"),
        [
            ("stripe-ascii", True),
            ("stripe-rotation-v1-v1-v0", True),
            ("stripe-only-v0-rejected", False),
        ],
    )
    def test_shared_vectors(self, name, valid):
        found = vector(name)
        header = found["inputs"].get("header") or found["output"]["Stripe-Signature"]
        delivery = incoming(found["inputs"]["body"], {"Stripe-Signature": header})
        provider = make("stripe")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid is valid

    @pytest.mark.parametrize("document", [SNAPSHOT, THIN], ids=["snapshot", "thin"])
    def test_the_official_client_signs(self, document):
        body = json.dumps(document, indent=2)
        header = stripe.WebhookSignature.generate_signature_header(
            body, SECRETS["stripe"], timestamp=NOW
        )
        delivery = incoming(body, {"Stripe-Signature": header})
        provider = make("stripe")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.identify(delivery).event_id == document["id"]
