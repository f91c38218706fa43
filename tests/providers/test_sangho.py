"""Sangho's own facts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sangho import Sangho as Client

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.exceptions import MalformedWebhook

from .cases import NOW, SECRETS, incoming, make, vector

BODY = {"id": "evt_1", "type": "payment.succeeded", "data": {"object": {"id": "pay_1"}}}


def identify(body, header=None):
    headers = {} if header is None else {"Sangho-Event-ID": header}
    return make("sangho").identify(incoming(body, headers))


def test_windows():
    provider = make("sangho")

    assert provider.window == timedelta(hours=48)
    assert provider.minimum_retention == timedelta(hours=72)
    assert provider.retries
    assert provider.deadline is None
    assert provider.in_progress_status == 503


class TestId:
    def test_the_signed_body_is_enough(self):
        assert identify(BODY).event_id == "evt_1"

    def test_the_header_may_say_the_same(self):
        assert identify(BODY, " evt_1 ").event_id == "evt_1"
        assert identify({**BODY, "id": "evt_1 "}, "evt_1").event_id == "evt_1 "

    def test_a_header_that_contradicts_is_malformed(self):
        """WB-034: nobody signed the header."""
        with pytest.raises(MalformedWebhook, match="contradicts"):
            identify(BODY, "evt_2")

    @pytest.mark.parametrize("blank", [None, "", "  "])
    def test_the_header_counts_where_the_body_has_none(self, blank):
        assert identify({**BODY, "id": blank}, "evt_2").event_id == "evt_2"
        assert identify({"type": "payout.paid"}, "evt_2").event_id == "evt_2"

    @pytest.mark.parametrize("wrong", [1, ["evt_2"], {}, False])
    def test_the_header_does_not_stand_in_for_an_id_of_another_type(self, wrong):
        with pytest.raises(MalformedWebhook):
            identify({**BODY, "id": wrong}, "evt_2")
        with pytest.raises(MalformedWebhook):
            identify({**BODY, "id": wrong}, str(wrong))


class TestSignature:
    @pytest.mark.parametrize("name", ["sangho-ascii", "sangho-unicode"])
    def test_shared_vectors(self, name):
        found = vector(name)
        delivery = incoming(found["inputs"]["body"], found["output"])
        provider = make("sangho")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW + 10).valid
        assert provider.identify(delivery).event_id.startswith("evt_test_")

    def test_either_secret_of_a_rotation(self):
        found = vector("sangho-rotation-two-v1")
        delivery = incoming(found["inputs"]["body"], found["output"])

        for name in ("secret_new", "secret_old"):
            provider = make("sangho", SECRETS=[found["inputs"][name]])
            assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid

    def test_a_wrong_signature(self):
        found = vector("sangho-bad-mismatch")["inputs"]
        delivery = incoming(found["body"], {"Sangho-Signature": found["header"]})
        provider = make("sangho")
        verdict = provider.verify(delivery.message, provider.live_secrets(), found["clock"])

        assert verdict.reason is RejectReason.MISMATCH

    def test_the_official_client_signs(self):
        body = '{"id": "evt_é", "type": "refund.succeeded"}'
        header = Client.generate_test_header(body, SECRETS["sangho"], timestamp=NOW)
        delivery = incoming(body, {"Sangho-Signature": header})
        provider = make("sangho")

        assert provider.verify(delivery.message, provider.live_secrets(), NOW).valid
        assert provider.identify(delivery).event_id == "evt_é"
