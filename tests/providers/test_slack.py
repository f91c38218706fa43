"""Slack's own facts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import quote_plus, urlencode

import pytest
from slack_sdk.signature import SignatureVerifier

from django_webhook_idempotency.exceptions import MalformedWebhook
from django_webhook_idempotency.providers import Answer, Identity, Redelivery

from .cases import FORM, NOW, SECRETS, incoming, make, signed, vector

EVENT = {
    "token": "z26uFbvR1xHJEdHE1OQiO6t8",
    "team_id": "T123ABC456",
    "api_app_id": "A123ABC456",
    "event": {"type": "reaction_added", "user": "U123ABC456", "event_ts": "1465244570.336841"},
    "type": "event_callback",
    "event_id": "Ev123ABC456",
    "event_time": NOW,
}
COMMAND = {
    "token": "gIkuvaNzQIHg97ATvDxqgjtO",
    "team_id": "T0001",
    "enterprise_id": "E0001",
    "channel_id": "C2147483705",
    "user_id": "U2147483697",
    "command": "/weather",
    "text": "94070 & ñ",
    "response_url": "https://hooks.slack.com/commands/1234/5678",
    "trigger_id": "13345224609.738474920.8088930838d88f008e0",
    "api_app_id": "A123456",
}
ACTION: dict[str, Any] = {
    "type": "block_actions",
    "team": {"id": "T1", "domain": "example"},
    "user": {"id": "U1"},
    "api_app_id": "A1",
    "trigger_id": "13345224609.738474920.8088930838d88f008e0",
    "actions": [{"action_id": "ok", "action_ts": "1700000000.000100"}],
}
RATE_LIMITED = {
    "token": "Jhj5dZrVaK7ZwHHjRyZWjbDl",
    "type": "app_rate_limited",
    "team_id": "T123456",
    "minute_rate_limited": 1518467820,
    "api_app_id": "A123456",
}


def interaction(document):
    return incoming("payload=" + quote_plus(json.dumps(document)), {}, FORM)


def command(**changes):
    return incoming(urlencode({**COMMAND, **changes}), {}, FORM)


def identify(delivery, **options):
    return make("slack", **options).identify(delivery)


class TestFacts:
    def test_windows(self):
        provider = make("slack")

        assert provider.window == provider.minimum_retention == timedelta(minutes=6)
        assert provider.deadline == 3
        assert provider.retries

    def test_delayed_events(self):
        provider = make("slack", DELAYED_EVENTS=True)

        assert provider.window == timedelta(hours=24, minutes=6)
        assert provider.retention == timedelta(days=90)
        assert make("slack").window == timedelta(minutes=6)

    def test_a_handler_can_stop_the_retries(self):
        provider = make("slack")

        assert provider.stop_retry_headers == {"x-slack-no-retry": "1"}
        assert 400 <= provider.stop_retry_status < 500

    def test_a_copy_in_progress_is_waited_for_within_the_deadline(self):
        provider = make("slack")

        assert provider.deadline is not None
        assert provider.wait < provider.deadline


class TestEvents:
    def test_an_event(self):
        assert identify(incoming(EVENT)) == Identity("Ev123ABC456", "reaction_added", "A123ABC456")

    def test_the_outer_type_stands_in_for_a_missing_inner_one(self):
        document = {name: value for name, value in EVENT.items() if name != "event"}

        assert identify(incoming(document)).event_type == "event_callback"

    def test_two_apps_with_one_event_id(self):
        """WB-030."""
        other = identify(incoming({**EVENT, "api_app_id": "A2"}))

        assert other.event_id == "Ev123ABC456"
        assert other.scope == "A2"

    def test_shared_vector(self):
        found = vector("slack-event-callback")
        delivery = incoming(found["inputs"]["body"], found["output"])
        provider = make("slack")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.identify(delivery).event_id == "Ev123ABC456"

    def test_the_official_client_signs(self):
        body = json.dumps(EVENT, indent=1)
        signature = SignatureVerifier(SECRETS["slack"]).generate_signature(
            timestamp=str(NOW), body=body
        )
        assert signature is not None
        delivery = incoming(
            body, {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": str(NOW)}
        )
        provider = make("slack")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid


class TestRateLimited:
    def test_team_and_minute_make_the_id(self):
        found = identify(incoming(RATE_LIMITED))

        assert found.event_id == "app_rate_limited:T123456:1518467820"
        assert found.event_type == "app_rate_limited"
        assert found.scope == "A123456"

    @pytest.mark.parametrize("changes", [{"team_id": "T2"}, {"minute_rate_limited": 1518467880}])
    def test_another_team_or_minute_is_another_event(self, changes):
        assert (
            identify(incoming({**RATE_LIMITED, **changes})).event_id
            != identify(incoming(RATE_LIMITED)).event_id
        )

    @pytest.mark.parametrize(
        "changes",
        [
            {"team_id": ""},
            {"team_id": None},
            {"minute_rate_limited": None},
            {"minute_rate_limited": True},
            {"minute_rate_limited": []},
        ],
    )
    def test_an_incomplete_one_is_malformed(self, changes):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            identify(incoming({**RATE_LIMITED, **changes}))

    def test_an_id_of_its_own_goes_first(self):
        assert identify(incoming({**RATE_LIMITED, "event_id": "Ev1"})).event_id == "Ev1"

    def test_an_inner_type_of_that_name_is_no_rate_limit(self):
        document = {**RATE_LIMITED, "type": "event_callback", "event": {"type": "app_rate_limited"}}

        with pytest.raises(MalformedWebhook):
            identify(incoming(document))


class TestCommands:
    def test_a_slash_command(self):
        provider = make("slack")
        delivery = signed(provider, urlencode(COMMAND), {}, FORM)

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.identify(delivery) == Identity(
            COMMAND["trigger_id"], "/weather", "A123456:T0001"
        )
        assert provider.payload(delivery) == COMMAND
        assert provider.handshake(delivery) is None

    def test_another_team_is_another_scope(self):
        assert identify(command(team_id="T2")).scope == "A123456:T2"
        assert identify(command(team_id="")).scope == "A123456:"

    def test_app_and_team_cannot_be_confused(self):
        first = identify(command(api_app_id="A:B", team_id="C"))
        second = identify(command(api_app_id="A", team_id="B:C"))

        assert first.scope != second.scope

    @pytest.mark.parametrize("trigger", ["", " ", "\t"])
    def test_no_trigger_id_is_malformed(self, trigger):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            identify(command(trigger_id=trigger))

    def test_a_form_of_something_else_is_malformed(self):
        for body in ("", "a=b", "command=%2Fweather", "trigger_id=%FF&command=%2Fa"):
            with pytest.raises(MalformedWebhook):
                identify(incoming(body, {}, FORM))

    def test_shared_vector_of_the_documentation(self):
        found = vector("slack-docs-slash-command")
        stamp = int(found["inputs"]["timestamp"])
        delivery = incoming(found["inputs"]["body"], found["output"], FORM)
        provider = make("slack", SECRETS=[found["inputs"]["secret"]])

        assert provider.verify(delivery.message, provider.live_secrets(), stamp).valid
        assert provider.identify(delivery) == Identity(
            "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
            "/webhook-collect",
            ":T1DC2JH3J",
        )


class TestInteractivity:
    def test_a_button(self):
        assert identify(interaction(ACTION)) == Identity(
            ACTION["trigger_id"], "block_actions", "A1:T1"
        )
        assert make("slack").payload(interaction(ACTION)) == ACTION

    def test_who_acted_when_stands_in_for_the_trigger_id(self):
        document = {**ACTION, "trigger_id": None}
        found = identify(interaction(document))
        other_user = identify(interaction({**document, "user": {"id": "U2"}}))
        later = identify(interaction({**document, "actions": [{"action_ts": "1700000001.0"}]}))

        assert found.event_id == "U1:1700000000.000100"
        assert len({found.event_id, other_user.event_id, later.event_id}) == 3

    def test_actions_without_a_time_are_passed_over(self):
        document = {**ACTION, "trigger_id": "", "actions": [5, {}, {"action_ts": "1"}, None]}

        assert identify(interaction(document)).event_id == "U1:1"

    @pytest.mark.parametrize(
        "changes",
        [
            {"actions": None},
            {"actions": {}},
            {"actions": 5},
            {"actions": {"action_ts": "1"}},
            {"actions": []},
            {"actions": [{"action_ts": 5}]},
            {"user": None},
            {"user": {"id": ""}},
        ],
    )
    def test_neither_is_malformed(self, changes):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            identify(interaction({**ACTION, "trigger_id": None, **changes}))

    def test_a_digest_where_asked_for(self):
        document = {"type": "view_closed", "view": {"id": "V1"}, "team": {"id": "T1"}}
        found = identify(interaction(document), ID_FROM_BODY=True)

        assert found.event_id.startswith("sha256:")
        assert found.event_type == "view_closed"

    @pytest.mark.parametrize("payload", ["", "%7B", "[]", "5", "null"])
    def test_a_payload_that_is_no_object_is_malformed(self, payload):
        with pytest.raises(MalformedWebhook):
            identify(incoming(f"payload={payload}&trigger_id=1", {}, FORM))

    def test_shared_vector(self):
        found = vector("slack-interactivity-form")
        delivery = incoming(found["inputs"]["body"], found["output"], FORM)
        provider = make("slack")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.identify(delivery).event_id == ACTION["trigger_id"]


class TestUrlVerification:
    def test_the_challenge_is_given_back(self):
        found = vector("slack-url-verification")
        delivery = incoming(found["inputs"]["body"], found["output"])
        provider = make("slack")
        answer = provider.handshake(delivery)

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert answer == Answer(
            200,
            b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
            "text/plain; charset=utf-8",
        )
        assert "3eZbrw1" not in repr(answer)

    def test_it_needs_a_signature(self):
        delivery = incoming(vector("slack-url-verification")["inputs"]["body"])

        assert make("slack").unsigned_handshake(delivery) is None

    @pytest.mark.parametrize("challenge", [None, "", " ", 5, ["a"]])
    def test_no_challenge_is_malformed(self, challenge):
        document = {"type": "url_verification", "challenge": challenge}

        with pytest.raises(MalformedWebhook, match="challenge"):
            make("slack").handshake(incoming(document))

    def test_a_strange_challenge_does_no_harm(self):
        document = {"type": "url_verification", "challenge": "é\ud800\0"}
        answer = make("slack").handshake(incoming(document))

        assert answer is not None
        assert answer.body == "é?\0".encode()

    @pytest.mark.parametrize("body", ["", "[]", "{"])
    def test_a_handshake_of_no_object_is_malformed(self, body):
        with pytest.raises(MalformedWebhook):
            make("slack").handshake(incoming(body))

    def test_an_event_is_none(self):
        inner = {**EVENT, "event": {"type": "url_verification", "challenge": "x"}}

        assert make("slack").handshake(incoming(EVENT)) is None
        assert make("slack").handshake(incoming(inner)) is None
        assert make("slack").handshake(incoming("type=url_verification", {}, FORM)) is None


class TestSslCheck:
    @pytest.mark.parametrize(
        "body", ["ssl_check=1", "ssl_check=1&token=x", "token=x&ssl_check=1", "a&ssl_check=1&b"]
    )
    def test_post(self, body):
        assert make("slack").unsigned_handshake(incoming(body, {}, FORM)) == Answer(200)

    def test_get(self):
        assert "GET" in make("slack").methods
        asked = incoming("", method="GET", query={"ssl_check": "1", "token": "x"})

        assert make("slack").unsigned_handshake(asked) == Answer(200)

    @pytest.mark.parametrize(
        "delivery",
        [
            incoming("", {}, FORM),
            incoming("ssl_check=0", {}, FORM),
            incoming("ssl_check=11", {}, FORM),
            incoming("ssl_check=1\n", {}, FORM),
            incoming("xssl_check=1", {}, FORM),
            incoming("text=ssl_check%3D1", {}, FORM),
            incoming("text=a ssl_check=1", {}, FORM),
            incoming("ssl_check=1"),
            incoming("{}", query={"ssl_check": "1"}),
            incoming("ssl_check=1", {}, FORM, method="GET"),
            incoming("", method="GET", query={"ssl_check": "0"}),
            incoming("", method="GET"),
        ],
    )
    def test_nothing_else(self, delivery):
        assert make("slack").unsigned_handshake(delivery) is None

    def test_a_strangers_body_is_not_decoded(self):
        body = b"\xff&" * 100_000 + b"ssl_check=1"

        assert make("slack").unsigned_handshake(incoming(body, {}, FORM, "punycode")) == Answer()


class TestRedelivery:
    @pytest.mark.parametrize("number", ["1", "2", "3"])
    def test_a_retry_is_recorded_and_read_like_the_first(self, number):
        """WB-024: a copy with retry headers may be the only one that gets through."""
        headers = {"X-Slack-Retry-Num": number, "X-Slack-Retry-Reason": "http_timeout"}
        delivery = incoming(EVENT, headers)

        assert make("slack").redelivery(delivery) == Redelivery(int(number), "http_timeout")
        assert identify(delivery) == identify(incoming(EVENT))
        assert make("slack").handshake(delivery) is None

    def test_a_first_delivery_has_none(self):
        assert make("slack").redelivery(incoming(EVENT)) == Redelivery(None, "")

    def test_the_reason_alone_is_kept(self):
        headers = {"X-Slack-Retry-Num": "x", "X-Slack-Retry-Reason": "ssl_error"}

        assert make("slack").redelivery(incoming(EVENT, headers)) == Redelivery(None, "ssl_error")

    def test_both_are_kept_on_the_delivery(self):
        assert {"x-slack-retry-num", "x-slack-retry-reason"} <= make("slack").kept_headers
