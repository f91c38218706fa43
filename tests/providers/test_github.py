"""GitHub's own facts."""

from __future__ import annotations

import json
from datetime import timedelta
from urllib.parse import quote_plus

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.exceptions import MalformedWebhook
from django_webhook_idempotency.providers.github import GitHub
from django_webhook_idempotency.signatures import Secret

from .cases import FORM, NOW, SECRETS, incoming, make, signed, vector

GUID = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
PUSH = {
    "ref": "refs/heads/main",
    "before": "0000000000000000000000000000000000000000",
    "after": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
    "repository": {"id": 186853002, "full_name": "Codertocat/Hello-World"},
    "commits": [{"id": "6113728f", "message": "a=1&b=2 + \u001b[0m ñ"}],
}


def headers(event="push", guid=GUID, hook="292430182"):
    return {
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": guid,
        "X-GitHub-Hook-ID": hook,
        "User-Agent": "GitHub-Hookshot/044aadd",
    }


def form(document):
    return "payload=" + quote_plus(json.dumps(document))


def sha1(body):
    return GitHub.sha1_scheme.sign(
        incoming(body).body, Secret.parse(SECRETS["github"]), timestamp=NOW
    )


class TestFacts:
    def test_github_com(self):
        provider = make("github")

        assert provider.window == provider.minimum_retention == timedelta(days=3)
        assert provider.retry_window == timedelta(0)
        assert not provider.retries
        assert provider.deadline == 10
        assert provider.max_body == 25 * 1024 * 1024
        assert provider.in_progress_status == 409
        assert provider.tolerance is None

    def test_enterprise_server(self):
        provider = make("github", ENTERPRISE_SERVER=True)

        assert provider.window == timedelta(days=7)
        assert provider.deadline == 30
        assert make("github").window == timedelta(days=3)

    def test_a_deadline_of_its_own_stays(self):
        assert make("github", ENTERPRISE_SERVER=True, DEADLINE=8).deadline == 8
        assert make("github", DEADLINE=8).deadline == 8

    def test_a_subclass_may_be_an_enterprise_server(self):
        class Ours(GitHub):
            enterprise_server = True

        assert Ours().deadline == 30
        assert Ours("ours", {}).window == timedelta(days=7)

    @pytest.mark.parametrize("name", ["ENTERPRISE_SERVER", "ACCEPT_SHA1"])
    @pytest.mark.parametrize("value", ["yes", 1, None])
    def test_switches_are_true_or_false(self, name, value):
        with pytest.raises(ImproperlyConfigured, match=name):
            make("github", **{name: value})

    def test_same_body(self):
        """WB-034: what a captured body under a new GUID leads to can be chosen."""
        assert make("github").same_body == "flag"
        assert make("github", SAME_BODY="refuse").same_body == "refuse"
        assert make("github", SAME_BODY="allow").same_body == "allow"
        with pytest.raises(ImproperlyConfigured, match="'flag', 'refuse', 'allow'"):
            make("github", SAME_BODY="ignore")

    def test_the_delivery_headers_are_kept(self):
        assert {name.lower() for name in headers()} <= make("github").kept_headers
        assert "x-github-enterprise-version" in make("github").kept_headers


class TestIdentity:
    def test_push_has_no_action(self):
        found = make("github").identify(incoming(PUSH, headers()))

        assert (found.event_id, found.event_type) == (GUID, "push")
        assert found.scope == "292430182"

    @pytest.mark.parametrize("action", ["", "  ", None, 5, ["opened"], {}])
    def test_an_action_that_is_no_text_is_left_out(self, action):
        found = make("github").identify(incoming({"action": action}, headers("issues")))

        assert found.event_type == "issues"

    def test_an_action_without_an_event_says_nothing(self):
        found = make("github").identify(incoming({"action": "opened"}, headers("")))

        assert found.event_type == ""

    def test_two_hooks_share_a_guid(self):
        """WB-030: one event for each hook."""
        first = make("github").identify(incoming(PUSH, headers(hook="1")))
        second = make("github").identify(incoming(PUSH, headers(hook="2")))

        assert first.event_id == second.event_id
        assert first.scope != second.scope

    def test_a_long_guid_passes_unchanged(self):
        found = make("github").identify(incoming(PUSH, headers(guid="x" * 10_000 + "\xe9")))

        assert found.event_id == "x" * 10_000 + "\xe9"

    def test_a_redelivery_has_the_same_identity(self):
        provider = make("github")

        assert provider.identify(incoming(PUSH, headers())) == provider.identify(
            signed(provider, PUSH, headers())
        )


class TestForm:
    """WB-056: the raw form is signed, the event is in its field `payload`."""

    def test_the_form_is_verified_and_its_payload_read(self):
        provider = make("github")
        delivery = signed(provider, form({**PUSH, "action": "x"}), headers(), FORM)

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.payload(delivery) == {**PUSH, "action": "x"}
        assert provider.identify(delivery).event_type == "push.x"

    def test_the_signature_of_the_inner_json_does_not_hold(self):
        found = vector("github-form-encoded-ping")
        inner = {"X-Hub-Signature-256": found["output"]["digest_of_inner_json_for_contrast"]}
        provider = make("github")
        delivery = incoming(found["inputs"]["body"], inner, FORM)
        verdict = provider.verify(delivery.message, provider.live_secrets(), NOW)

        assert verdict.reason is RejectReason.MISMATCH

    @pytest.mark.parametrize(
        "body",
        ["", "payload=", "other=1", "payload=%7B", "payload=[]", "payload=1", "payload=%FF", "{}"],
    )
    def test_a_form_without_an_object_is_malformed(self, body):
        with pytest.raises(MalformedWebhook):
            make("github").identify(incoming(body, headers(), FORM))

    def test_a_form_is_not_read_as_json_nor_json_as_a_form(self):
        with pytest.raises(MalformedWebhook):
            make("github").payload(incoming(form(PUSH), headers()))
        with pytest.raises(MalformedWebhook):
            make("github").payload(incoming(PUSH, headers(), FORM))


class TestPing:
    def test_a_ping_is_answered_and_is_no_event(self):
        found = vector("github-form-encoded-ping")
        delivery = incoming(
            found["inputs"]["body"], {**found["inputs"]["headers"], **found["output"]}, FORM
        )
        provider = make("github")
        answer = provider.handshake(delivery)

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert answer is not None
        assert answer.status == 200
        assert answer.content_type == "application/json"
        assert json.loads(answer.body) == {"status": "handshake"}

    def test_nothing_else_is_a_handshake(self):
        assert make("github").handshake(incoming(PUSH, headers("pingpong"))) is None
        assert make("github").handshake(incoming(PUSH)) is None

    def test_an_unsigned_ping_is_not_answered(self):
        assert make("github").unsigned_handshake(incoming(PUSH, headers("ping"))) is None


class TestSignature:
    def judge(self, sent, **options):
        provider = make("github", **options)
        return provider.verify(incoming(PUSH, sent).message, provider.live_secrets(), NOW)

    def test_shared_vector(self):
        found = vector("github-octokit-hello-world")
        delivery = incoming(found["inputs"]["body"], found["output"])
        provider = make("github")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        with pytest.raises(MalformedWebhook):
            provider.identify(delivery)

    def test_sha1_alone_is_not_looked_at(self):
        assert self.judge(sha1(PUSH)).reason is RejectReason.MISSING

    def test_sha1_alone_where_asked_for(self):
        assert self.judge(sha1(PUSH), ACCEPT_SHA1=True).valid
        assert self.judge(sha1("{}"), ACCEPT_SHA1=True).reason is RejectReason.MISMATCH
        assert self.judge({}, ACCEPT_SHA1=True).reason is RejectReason.MISSING

    def test_sha256_still_holds_where_sha1_is_accepted(self):
        delivery = signed(make("github"), PUSH)

        assert self.judge(delivery.headers, ACCEPT_SHA1=True).valid

    @pytest.mark.parametrize(
        ("header", "reason"),
        [
            ("sha256=" + "0" * 64, RejectReason.MISMATCH),
            ("", RejectReason.MALFORMED),
            ("sha1=" + "0" * 40, RejectReason.MALFORMED),
        ],
    )
    def test_a_request_with_sha256_is_judged_by_it_alone(self, header, reason):
        sent = {**sha1(PUSH), "X-Hub-Signature-256": header}

        assert self.judge(sent, ACCEPT_SHA1=True).reason is reason

    def test_a_right_sha256_beside_a_wrong_sha1(self):
        delivery = signed(make("github"), PUSH, {"X-Hub-Signature": "sha1=" + "0" * 40})

        assert self.judge(delivery.headers, ACCEPT_SHA1=True).valid
