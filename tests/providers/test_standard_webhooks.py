"""The facts of Standard Webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.exceptions import MalformedWebhook

from .cases import NOW, SECRETS, incoming, make, signed, vector

BODY = {"type": "contact.created", "timestamp": "2022-11-03T20:26:10.344522Z", "data": {"id": "1"}}
MESSAGE = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"


def as_svix(delivery):
    return {name.replace("webhook-", "svix-"): value for name, value in delivery.headers.items()}


def judge(delivery, now=NOW):
    provider = make("standard_webhooks")
    return provider.verify(delivery.message, provider.live_secrets(), now)


def test_windows_and_answers():
    provider = make("standard_webhooks")

    assert provider.window == timedelta(seconds=272_105)
    assert provider.deadline == 15
    assert provider.stop_retry_status == 200
    assert provider.in_progress_status == 503


class TestIdentity:
    def test_the_id_is_the_message_id(self):
        found = make("standard_webhooks").identify(incoming(BODY, {"webhook-id": MESSAGE}))

        assert (found.event_id, found.event_type, found.scope) == (MESSAGE, "contact.created", "")

    def test_svix_names_are_read_too(self):
        provider = make("standard_webhooks")
        delivery = incoming(BODY, as_svix(signed(provider, BODY, {"webhook-id": MESSAGE})))

        assert "webhook-id" not in delivery.headers
        assert judge(delivery).valid
        assert provider.identify(delivery).event_id == MESSAGE

    def test_no_type_is_allowed(self):
        found = make("standard_webhooks").identify(incoming({}, {"webhook-id": MESSAGE}))

        assert found.event_type == ""

    @pytest.mark.parametrize("mine", ["msg_other", "", " "])
    def test_a_second_id_that_nobody_signed_is_malformed(self, mine):
        """WB-034: what is read is what was signed."""
        provider = make("standard_webhooks")
        delivery = signed(provider, BODY, {"webhook-id": MESSAGE})
        doubled = incoming(BODY, {**as_svix(delivery), "webhook-id": mine})

        assert judge(doubled).reason is RejectReason.MALFORMED
        with pytest.raises(MalformedWebhook):
            provider.identify(doubled)

    def test_the_same_id_twice_is_one(self):
        provider = make("standard_webhooks")
        delivery = signed(provider, BODY, {"webhook-id": MESSAGE})
        doubled = incoming(BODY, {**as_svix(delivery), **delivery.headers})

        assert judge(doubled).valid
        assert provider.identify(doubled).event_id == MESSAGE

    def test_an_id_in_the_body_is_not_looked_at(self):
        with pytest.raises(MalformedWebhook):
            make("standard_webhooks").identify(incoming({**BODY, "id": "evt_1"}))

    def test_another_id_breaks_the_signature(self):
        delivery = signed(make("standard_webhooks"), BODY, {"webhook-id": MESSAGE})
        changed = incoming(BODY, {**delivery.headers, "webhook-id": "msg_other"})

        assert judge(changed).reason is RejectReason.MISMATCH

    def test_a_retry_has_a_new_time_and_the_same_id(self):
        """WB-029 the other way round: the id is stable, the signature is not."""
        provider = make("standard_webhooks")
        first = signed(provider, BODY, {"webhook-id": MESSAGE})
        retry = signed(provider, BODY, {"webhook-id": MESSAGE}, timestamp=NOW + 272_105)

        assert judge(retry, NOW + 272_105).valid
        assert judge(first, NOW + 272_105).reason is RejectReason.STALE
        assert provider.identify(first) == provider.identify(retry)


class TestSignature:
    @pytest.mark.parametrize(
        "name", ["standardwebhooks-ascii", "standardwebhooks-unicode", "standardwebhooks-rotation"]
    )
    def test_shared_vectors(self, name):
        found = vector(name)
        headers = {
            "webhook-id": found["inputs"]["msg_id"],
            "webhook-timestamp": str(found["inputs"]["timestamp"]),
            **found["output"],
        }
        delivery = incoming(found["inputs"]["body"], headers)

        assert judge(delivery).valid
        assert make("standard_webhooks").identify(delivery).event_id == MESSAGE

    def test_an_asymmetric_key(self):
        found = vector("standardwebhooks-v1a-ed25519")
        headers = {
            "webhook-id": found["inputs"]["msg_id"],
            "webhook-timestamp": str(found["inputs"]["timestamp"]),
            **found["output"],
        }
        provider = make("standard_webhooks", SECRETS=[found["inputs"]["public_key"]])
        delivery = incoming(found["inputs"]["body"], headers)
        now = found["inputs"]["timestamp"]

        assert provider.verify(delivery.message, provider.live_secrets(), now).valid
        assert not provider.verify(
            incoming('{"test": 2432232315}', headers).message, provider.live_secrets(), now
        ).valid

    def test_the_official_client_signs(self):
        body = '{"type": "user.created", "data": {"name": "ñ"}}'
        signature = Webhook(SECRETS["standard_webhooks"]).sign(
            MESSAGE, datetime.fromtimestamp(NOW, UTC), body
        )
        delivery = incoming(
            body,
            {
                "webhook-id": MESSAGE,
                "webhook-timestamp": str(NOW),
                "webhook-signature": signature,
            },
        )

        assert judge(delivery).valid
        assert make("standard_webhooks").identify(delivery).event_type == "user.created"
