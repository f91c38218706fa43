"""What holds for every provider."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.exceptions import MalformedWebhook
from django_webhook_idempotency.providers import BUILT_IN, Identity, Redelivery
from django_webhook_idempotency.signatures import Secret

from .cases import CASES, FORM, NOW, SECRETS, Case, incoming, make, signed

every_provider = pytest.mark.parametrize("case", CASES, ids=lambda case: case.slug)
WRONG = [Secret.parse("whsec_d3JvbmctYnV0LWxvbmctZW5vdWdoLXRvLWJlLWEta2V5")]


def verdict(case: Case, delivery, now: float = NOW):
    provider = make(case.slug)
    return provider.verify(delivery.message, provider.live_secrets(), now)


def test_a_case_stands_for_each_provider():
    assert {case.slug for case in CASES} == set(BUILT_IN)


@every_provider
class TestFacts:
    def test_slug_name_and_vendor_pages(self, case):
        provider = make(case.slug)

        assert provider.slug == provider.key == case.slug
        assert provider.name
        assert all(page.startswith(("https://", "pkg:")) for page in provider.docs)
        assert provider.docs

    def test_nothing_that_authenticates_is_kept(self, case):
        provider = make(case.slug)
        sent = signed(provider, case.document, case.headers).headers
        secret = {name for name in sent if "signature" in name} | {"authorization", "cookie"}

        assert not provider.kept_headers & secret
        assert all(name == name.lower() for name in provider.kept_headers)

    def test_keys_are_kept_longer_than_an_event_can_arrive(self, case):
        provider = make(case.slug)

        assert provider.retention == timedelta(days=90)
        assert provider.retention > provider.minimum_retention >= provider.window
        assert provider.window > timedelta(0)

    def test_an_unsigned_delivery_is_no_handshake(self, case):
        provider = make(case.slug)

        assert provider.unsigned_handshake(incoming(case.document, case.headers)) is None

    def test_only_an_unsigned_id_makes_bodies_matter(self, case):
        provider = make(case.slug)

        assert ("same_body" in provider.options) is (not provider.id_is_signed)
        assert (provider.same_body == "allow") is provider.id_is_signed


@every_provider
class TestVerification:
    def test_a_good_delivery_is_accepted(self, case):
        delivery = signed(make(case.slug), case.document, case.headers)

        assert verdict(case, delivery).secret == Secret.parse(SECRETS[case.slug])

    def test_a_changed_body_is_rejected(self, case):
        delivery = signed(make(case.slug), case.document, case.headers)
        tampered = incoming(delivery.body + b" ", delivery.headers)

        assert verdict(case, tampered).reason is RejectReason.MISMATCH

    def test_another_secret_is_rejected(self, case):
        provider = make(case.slug)
        delivery = signed(provider, case.document, case.headers)

        assert not provider.verify(delivery.message, WRONG, NOW).valid

    def test_no_signature_is_rejected(self, case):
        assert verdict(case, incoming(case.document, case.headers)).reason is RejectReason.MISSING

    @pytest.mark.parametrize("offset", [-301, 301])
    def test_a_signed_time_is_judged_in_both_directions(self, case, offset):
        delivery = signed(make(case.slug), case.document, case.headers)
        found = verdict(case, delivery, NOW + offset)

        if case.slug == "github":  # signs no time: the delivery id is the only guard
            assert found.valid
        else:
            assert found.reason is RejectReason.STALE

    def test_the_exact_bytes_are_judged(self, case):
        """WB-053: nothing is parsed and written again before the signature is checked."""
        text = json.dumps(case.document)[:-1]
        body = text + ', "n": "\\u001B[0m \\/ caf\\u00e9 é", "f": 1.0, "n":  "twice" }\n'
        provider = make(case.slug)
        delivery = signed(provider, body, case.headers)

        assert verdict(case, delivery).valid
        assert provider.payload(delivery)["n"] == "twice"


@every_provider
class TestIdentity:
    def test_a_good_delivery_is_identified(self, case):
        provider = make(case.slug)
        delivery = signed(provider, case.document, case.headers)

        assert provider.handshake(delivery) is None
        assert provider.identify(delivery) == Identity(
            case.event_id, case.event_type, case.scope, secondary=""
        )
        assert provider.payload(delivery) == case.document
        assert provider.redelivery(delivery) == Redelivery()

    @pytest.mark.parametrize("blank", [None, "", " ", "\t", "\u3000"])
    def test_a_blank_id_is_malformed(self, case, blank):
        """WB-022: a blank id would be claimed once and swallow every other event."""
        with pytest.raises(MalformedWebhook):
            make(case.slug).identify(incoming(*case.with_id(blank)))

    def test_a_digest_can_stand_in_for_a_missing_id(self, case):
        """WB-033: only where asked for, and over the raw bytes."""
        provider = make(case.slug, ID_FROM_BODY=True)
        document, headers = case.with_id(None)
        first = provider.identify(incoming(document, headers)).event_id
        second = provider.identify(incoming({**document, "n": 1}, headers)).event_id

        assert first.startswith("sha256:")
        assert first != second
        assert first == provider.identify(incoming(document, headers)).event_id

    def test_an_id_of_its_own_goes_before_the_digest(self, case):
        provider = make(case.slug, ID_FROM_BODY=True)

        assert provider.identify(incoming(case.document, case.headers)).event_id == case.event_id

    def test_a_type_that_is_no_text_counts_as_none(self, case):
        document = {**case.document, "type": 5, "action": 5}
        if case.slug == "slack":
            document["event"] = {"type": ["message"]}

        found = make(case.slug).identify(incoming(document, case.headers))

        assert found.event_type == ("pull_request" if case.slug == "github" else "")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.id_key], ids=lambda case: case.slug
)
class TestIdentityInTheBody:
    @pytest.mark.parametrize("wrong", [0, 7, 1.5, True, [], ["evt_1"], {"id": "evt_1"}])
    def test_an_id_that_is_no_text_is_malformed(self, case, wrong):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            make(case.slug).identify(incoming(*case.with_id(wrong)))

    def test_a_null_id_is_malformed(self, case):
        """WB-022."""
        with pytest.raises(MalformedWebhook):
            make(case.slug).identify(incoming({**case.document, case.id_key: None}))

    @pytest.mark.parametrize(
        "event_id",
        ["a\0b", "\ud800", "x" * 10_000, "ид-✓", "'; DROP TABLE", " evt 1 ", "%00", "a:b\\c"],
        ids=["nul", "surrogate", "long", "unicode", "sql", "spaces", "percent", "colon"],
    )
    def test_a_strange_id_passes_unchanged(self, case, event_id):
        """WB-060: the ledger digests it; nothing is lost or made equal on the way."""
        delivery = incoming(*case.with_id(event_id))

        assert make(case.slug).identify(delivery).event_id == event_id


UNREADABLE = {
    "empty": (b"", ""),
    "blank": (b"  ", ""),
    "cut off": (b'{"id": "evt_1"', ""),
    "deep array": (b"[" * 20_000 + b"]" * 20_000, ""),
    "deep object": (b'{"a":' * 101 + b"1" + b"}" * 101, ""),
    "unclosed": (b"[" * 100_000, ""),
    "huge integer": (b'{"id": "evt_1", "x": ' + b"9" * 5_000 + b"}", ""),
    "utf-16 undeclared": ('{"id": "evt_1"}'.encode("utf-16"), ""),
    "latin-1 undeclared": (b'{"id": "\xe8"}', ""),
    "unknown charset": (b'{"id": "\xe8"}', "nonsense"),
    "charset with a nul": (b'{"id": "\xe8"}', "a\0b"),
    "charset of no text": (b'{"id": "\xe8"}', "base64"),
    "wrong charset": (b'{"id": "\xe8"}', "ascii"),
    "encoded surrogate": (b'{"id": "\xed\xa0\x80"}', ""),
    "trailing garbage": (b'{"id": "evt_1"}{}', ""),
}


@every_provider
class TestHostileBodies:
    @pytest.mark.parametrize("name", UNREADABLE)
    def test_an_unreadable_body_is_malformed(self, case, name):
        """WB-059 and WB-062: never an exception of another kind, which would be a 500."""
        body, charset = UNREADABLE[name]
        provider = make(case.slug)
        delivery = signed(provider, body, case.headers, charset=charset)

        assert verdict(case, delivery).valid
        with pytest.raises(MalformedWebhook):
            provider.identify(delivery)
        with pytest.raises(MalformedWebhook):
            provider.payload(delivery)

    @pytest.mark.parametrize("body", ["[]", '[{"id": "evt_1"}]', "1", '"evt_1"', "null", "true"])
    def test_json_that_is_no_object(self, case, body):
        delivery = incoming(body, case.headers)

        if case.needs_object:
            with pytest.raises(MalformedWebhook):
                make(case.slug).identify(delivery)
        else:
            found = make(case.slug).identify(delivery)
            assert (found.event_id, found.event_type) == (case.event_id, "")

    @pytest.mark.parametrize(
        ("encoding", "charset"),
        [("utf-8-sig", ""), ("utf-8", "nonsense"), ("latin-1", "iso-8859-1"), ("utf-16", "utf-16")],
    )
    def test_a_body_in_another_encoding_is_read(self, case, encoding, charset):
        """WB-059: UTF-8 with or without its mark, else what the delivery declares."""
        document = {**case.document, "note": "è"}
        body = json.dumps(document, ensure_ascii=False).encode(encoding)
        provider = make(case.slug)
        delivery = signed(provider, body, case.headers, charset=charset)

        assert verdict(case, delivery).valid
        assert provider.identify(delivery).event_id == case.event_id
        assert provider.payload(delivery)["note"] == "è"

    def test_nul_and_surrogate_in_the_payload(self, case):
        """WB-060."""
        document = {**case.document, "note": "a\0b", "k\0": "\ud800"}
        provider = make(case.slug)
        delivery = incoming(document, case.headers)

        assert provider.identify(delivery).event_id == case.event_id
        assert provider.payload(delivery) == document

    def test_as_deep_as_is_let_in(self, case):
        """WB-062: one level less than what is refused."""
        nested = json.loads("[" * 99 + "]" * 99)
        provider = make(case.slug)

        delivery = incoming({**case.document, "nested": nested}, case.headers)
        assert provider.identify(delivery).event_id == case.event_id
        delivery = incoming({**case.document, "nested": [nested]}, case.headers)
        with pytest.raises(MalformedWebhook):
            provider.identify(delivery)


WORDS = """
    id type event_id event action actions action_ts trigger_id user team team_id api_app_id data
    object account context livemode minute_rate_limited challenge payload command
"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["app_rate_limited", "event_callback", "url_verification", "evt_1", "1"]),
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, DOCUMENTS, max_size=8)
FIELDS = st.dictionaries(KEYS, st.text(max_size=5) | OBJECTS.map(json.dumps), max_size=4)
BODIES = st.one_of(
    st.binary(max_size=40),
    DOCUMENTS.map(json.dumps).map(str.encode),
    OBJECTS.map(json.dumps).map(str.encode),
    FIELDS.map(lambda fields: "&".join(f"{name}={value}" for name, value in fields.items())).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    ),
)
HEADERS = """
    webhook-id svix-id sangho-event-id x-github-event x-github-delivery x-github-hook-id
    x-slack-retry-num x-slack-retry-reason
"""
HEADER_NAMES = st.sampled_from(HEADERS.split())


@every_provider
@settings(deadline=None)
@given(
    body=BODIES,
    headers=st.dictionaries(HEADER_NAMES, st.text(max_size=8) | st.just("ping")),
    content_type=st.sampled_from(["application/json", FORM, ""]),
    charset=st.text(max_size=6) | st.sampled_from(["latin-1", "utf-16", "base64", "idna"]),
    id_from_body=st.booleans(),
)
def test_nothing_but_malformed_escapes(case, body, headers, content_type, charset, id_from_body):
    """WB-022, WB-059, WB-062: whatever comes, it is understood or malformed."""
    provider = make(case.slug, ID_FROM_BODY=id_from_body)
    delivery = incoming(body, headers, content_type, charset)

    provider.unsigned_handshake(delivery)
    redelivery = provider.redelivery(delivery)
    assert redelivery.number is None or 0 < redelivery.number <= 32767
    assert len(redelivery.reason) <= 64
    assert len(provider.body_digest(body)) == 64
    try:
        provider.handshake(delivery)
        found = provider.identify(delivery)
        provider.payload(delivery)
    except MalformedWebhook:
        return
    assert found.event_id.strip()
    assert all(isinstance(part, str) for part in (found.event_type, found.scope, found.secondary))
