"""What providers inherit."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from django_webhook_idempotency.enums import Outcome
from django_webhook_idempotency.exceptions import MalformedWebhook, Reject, Retry
from django_webhook_idempotency.providers import Answer, Identity, Incoming, Provider, Redelivery
from django_webhook_idempotency.providers.identity import compound, parts_of

from .cases import NOW, incoming


class TestCompound:
    def test_parts_are_joined_with_colons(self):
        assert compound("acct_1", "live") == "acct_1:live"
        assert compound("", "") == ":"
        assert compound("a:b", "c\\") == r"a\:b:c\\"

    @given(st.lists(st.text("a:\\\n", max_size=4), min_size=1, max_size=4))
    def test_they_are_taken_apart_again(self, parts):
        assert parts_of(compound(*parts)) == parts

    @given(
        st.lists(st.text("a:\\", max_size=4), min_size=1, max_size=4),
        st.lists(st.text("a:\\", max_size=4), min_size=1, max_size=4),
    )
    def test_different_parts_never_give_the_same_text(self, first, second):
        assert (compound(*first) == compound(*second)) is (first == second)


class TestRedelivery:
    @pytest.mark.parametrize(
        ("text", "number"),
        [("1", 1), ("3", 3), ("007", 7), ("32767", 32767)],
    )
    def test_a_number(self, text, number):
        assert Redelivery.parse(text).number == number

    @pytest.mark.parametrize(
        "text",
        [
            *[
                "",
                " ",
                "0",
                "-1",
                "+1",
                " 1",
                "1 ",
                "1\n",
                "1.5",
                "1,2",
                "1_0",
                "٣",
                "²",
                "x",
                "0x1",
            ],
            *["32768", "99999", "100000", "9" * 10_000],
        ],
    )
    def test_what_is_no_number_is_left_out(self, text):
        assert Redelivery.parse(text).number is None

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("http_timeout", "http_timeout"),
            ("too many redirects", "too many redirects"),
            ("a\r\nSet-Cookie: b\0\x1b[31m\x7f\x85", "aSet-Cookie: b[31m"),
            ("a\ud800\u202eb", "ab"),
            ("é✓", "é✓"),
            ("x" * 65, "x" * 64),
            ("\n" * 100 + "y", "y"),
        ],
    )
    def test_a_reason_is_short_and_printable(self, text, reason):
        assert Redelivery.parse("1", text) == Redelivery(1, reason)


class TestWindows:
    @pytest.mark.parametrize(
        ("retry", "resend", "floor", "window", "minimum"),
        [(0, 0, 0, 0, 0), (3, 1, 0, 3, 3), (1, 3, 0, 3, 3), (2, 1, 3, 2, 3), (4, 0, 3, 4, 4)],
    )
    def test_the_longest_counts(self, retry, resend, floor, window, minimum):
        class Acme(Provider):
            retry_window = timedelta(days=retry)
            resend_window = timedelta(days=resend)
            retention_floor = timedelta(days=floor)

        assert Acme().window == timedelta(days=window)
        assert Acme().minimum_retention == timedelta(days=minimum)
        assert Acme().retries is (retry > 0)


class TestDefaults:
    def test_the_key_is_the_slug_unless_named(self):
        class Acme(Provider):
            slug = "acme"

        assert Acme().key == "acme"
        assert Acme("acme-eu").key == "acme-eu"

    def test_bodies_do_not_matter_where_the_id_is_signed(self):
        assert Provider().same_body == "allow"
        with pytest.raises(ImproperlyConfigured, match="no option 'SAME_BODY'"):
            Provider("acme", {"SAME_BODY": "refuse"})

    def test_no_secret_is_an_error_that_says_where_it_belongs(self):
        with pytest.raises(ImproperlyConfigured, match=r"\['acme'\]\['SECRETS'\]"):
            Provider("acme").live_secrets()

    def test_the_scope_chooses_the_secret(self):
        provider = Provider("acme", {"SECRETS": lambda scope: [f"secret of {scope}"]})

        assert [secret.value for secret in provider.live_secrets("a")] == [b"secret of a"]

    def test_a_provider_must_say_how_to_verify_and_identify(self):
        with pytest.raises(TypeError, match="'acme' has no signature scheme"):
            Provider("acme").verify(incoming("{}").message, [], NOW)
        with pytest.raises(TypeError, match="Provider must say how"):
            Provider("acme").identify(incoming("{}"))

    def test_nothing_is_a_handshake_or_a_retry(self):
        assert Provider().handshake(incoming("{}")) is None
        assert Provider().unsigned_handshake(incoming("{}")) is None
        assert Provider().redelivery(incoming("{}", {"x-slack-retry-num": "1"})) == Redelivery()
        assert list(Provider().problems()) == []

    def test_the_body_is_json_and_digested_as_it_stands(self):
        assert Provider().payload(incoming("[1]")) == [1]
        assert Provider().body_digest(b"[1]") == hashlib.sha256(b"[1]").hexdigest()

    def test_media_types(self):
        assert Provider().accepts("application/json")
        assert Provider().accepts("application/cloudevents+json")
        assert not Provider().accepts("text/plain")
        assert not Provider().accepts("")


class TestUsableId:
    def test_text_passes_unchanged(self):
        assert Provider().usable_id(" a ", incoming("{}")) == " a "

    @pytest.mark.parametrize("blank", ["", " ", "\n", "\u2003"])
    def test_a_blank_one_is_malformed(self, blank):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            Provider().usable_id(blank, incoming("{}"))

    def test_a_digest_where_asked_for(self):
        """WB-033."""
        provider = Provider("acme", {"ID_FROM_BODY": True})
        expected = "sha256:" + hashlib.sha256(b"{}").hexdigest()

        assert provider.usable_id("", incoming("{}")) == expected


class TestDescribe:
    """For a delivery whose id is found elsewhere."""

    class Acme(Provider):
        def identify(self, incoming: Incoming) -> Identity:
            return Identity(self.usable_id(incoming.header("id"), incoming), "a.b", "scope")

    def test_type_and_scope_are_known_with_the_id(self):
        found = self.Acme().describe(incoming("{}", {"id": "x"}))

        assert (found.event_type, found.scope) == ("a.b", "scope")

    def test_a_missing_id_is_no_fault(self):
        assert self.Acme().describe(incoming("{}")) == Identity("")


class TestAnswerStatus:
    @pytest.mark.parametrize(
        ("outcome", "status"),
        [
            (Outcome.PROCESSED, 202),
            (Outcome.DUPLICATE, 202),
            (Outcome.IGNORED, 202),
            (Outcome.REJECTED, 403),
            (Outcome.IN_PROGRESS, 409),
            (Outcome.FAILED, 502),
            (Outcome.MALFORMED, 400),
            (Outcome.TOO_LARGE, 413),
        ],
    )
    def test_each_outcome_has_the_providers_own(self, outcome, status):
        provider = Provider(
            "acme",
            {
                "SUCCESS_STATUS": 202,
                "REJECTED_STATUS": 403,
                "IN_PROGRESS_STATUS": 409,
                "FAILED_STATUS": 502,
            },
        )

        assert provider.answer_status(outcome) == status

    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (ValueError(), 500),
            (Retry(), 503),
            (Reject(), 422),
            (Reject(status=410), 410),
        ],
    )
    def test_a_handler_may_say_more_of_its_failure(self, error, status):
        provider = Provider("acme", {"STOP_RETRY_STATUS": 422})

        assert provider.answer_status(Outcome.FAILED, error) == status


def test_an_answer_keeps_its_body_out_of_repr():
    assert "challenge" not in repr(Answer(body=b"challenge"))
