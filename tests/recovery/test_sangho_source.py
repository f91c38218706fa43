"""What Sangho did not deliver: asked for with its official client, over HTTP."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.dispatch.intake import key_of
from django_webhook_idempotency.exceptions import MissingExtra
from django_webhook_idempotency.providers import Incoming, configured_provider
from django_webhook_idempotency.recovery import RateLimited, SourceError, SourceRefused, asking
from django_webhook_idempotency.recovery.base import NotSentAgain
from django_webhook_idempotency.recovery.sangho import SanghoSource
from django_webhook_idempotency.recovery.sangho_deliveries import Attempt

from .http_api import Reply
from .sangho_api import EXPIRED_KEY, KEY, OTHER_KEY, SanghoApi, error

WHERE = "WEBHOOK_IDEMPOTENCY['PROVIDERS']['sangho']['RECOVERY']"
MOMENT = datetime(2026, 7, 1, 12, 30, tzinfo=UTC)


@pytest.fixture
def api(monkeypatch) -> Iterator[SanghoApi]:
    monkeypatch.setattr(asking, "PAUSES", (0.01, 0.01))
    served = SanghoApi()
    with served.served():
        yield served


def sources(api: SanghoApi | None = None, **options) -> list[SanghoSource]:
    given = {
        "API_KEY": KEY,
        "ENDPOINTS": ["we_1"],
        **({"BASE_URL": f"{api.url}/v1"} if api else {}),
        **options,
    }
    return list(SanghoSource.configured(configured_provider("sangho"), given))


def source(api: SanghoApi, **options) -> SanghoSource:
    (only,) = sources(api, **options)
    return only


def since(hours: float = 48) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


def ids(found) -> list[str]:
    return [sent.identity.event_id for sent in found]


def key_from_function() -> str:
    return KEY


class TestAsking:
    def test_finds_each_event_once_over_all_pages(self, api):
        for number in range(50):
            api.add(f"del_{number}", f"evt_{number}", age=7200 - number)
            api.add(f"del_{number}_again", f"evt_{number}", age=3600 - number)

        found = ids(source(api).sent(since()))

        assert sorted(found) == sorted(f"evt_{number}" for number in range(50))
        assert [asked.params for asked in api.asked] == [
            {},
            *({"page": str(page)} for page in range(2, 6)),
        ]

    def test_the_key_goes_nowhere_but_to_the_base_url(self, api):
        for number in range(21):
            api.add(f"del_{number}", f"evt_{number}")

        list(source(api).sent(since()))

        assert {asked.path for asked in api.asked} == {"/v1/webhooks/we_1/deliveries/"}
        assert len(api.asked) == 2

    def test_an_empty_list_is_no_error(self, api):
        assert list(source(api).sent(since())) == []

    def test_an_event_is_accepted_if_any_delivery_was(self, api):
        api.add("del_1", "evt_1", age=7200)
        api.add("del_2", "evt_1", age=3600, delivered=True)
        api.add("del_3", "evt_1", age=1800)
        api.add("del_4", "evt_2", age=900)

        found = {sent.identity.event_id: sent for sent in source(api).sent(since())}

        assert found["evt_1"].accepted
        assert not found["evt_2"].accepted
        assert found["evt_1"].handle == "del_3"

    def test_says_when_an_event_was_first_sent_and_when_it_leaves(self, api):
        api.add("del_1", "evt_1", age=7200)
        api.add("del_2", "evt_1", age=3600)

        (sent,) = source(api, SCOPE="shop").sent(since())

        assert abs(sent.sent_at - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(seconds=5)
        assert sent.leaves_at == sent.sent_at + timedelta(hours=48)
        assert sent.scope == "shop"
        assert sent.body is None

    def test_has_the_dedupe_key_of_the_webhook(self, api):
        api.add("del_1", "evt_1")
        provider = configured_provider("sangho")
        body = b'{"id": "evt_1", "type": "payment.succeeded", "data": {}}'

        (sent,) = source(api).sent(since())

        assert sent.identity == provider.identify(Incoming.stored(body, "application/json"))
        assert key_of(provider, "", sent.identity)

    def test_does_not_read_on_in_what_is_older(self, api):
        for number in range(100):
            api.add(f"del_{number}", f"evt_{number}", age=(99.5 - number) * 3600)

        found = ids(source(api).sent(since(30)))

        assert len(found) == 31  # an hour more, for clocks that differ
        assert len(api.asked) == 2

    def test_reads_on_where_the_oldest_come_first(self, api):
        for number in range(100):
            api.add(f"del_{number}", f"evt_{number}", age=(number + 0.5) * 3600)

        assert len(ids(source(api).sent(since(30)))) == 31
        assert len(api.asked) == 5

    def test_reads_on_where_the_first_page_is_of_one_moment(self, api):
        api.add("del_new", "evt_new", age=60)
        for number in range(20):
            made = "2026-07-01T12:30:00Z"
            api.add_raw({"id": f"del_{number}", "event_id": f"evt_{number}", "created_at": made})

        assert ids(source(api).sent(since(30))) == ["evt_new"]

    def test_a_clock_that_is_behind_hides_nothing(self, api):
        api.ahead = -1800
        api.add("del_1", "evt_1", age=0)

        assert ids(source(api).sent(since(1 / 60))) == ["evt_1"]


class TestRedeliver:
    def test_has_the_latest_delivery_retried(self, api):
        api.add("del_1", "evt_1", age=7200)
        api.add("del_2", "evt_1", age=3600)
        asked = source(api)
        (sent,) = asked.sent(since())

        asked.redeliver(sent)

        assert api.retried == ["del_2"]

    def test_is_asked_once_even_if_it_fails(self, api):
        api.add("del_1", "evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())
        api.asked.clear()
        api.faults.append(error(500, "api_error", "Broken."))

        with pytest.raises(SourceError, match="answers 500"):
            asked.redeliver(sent)

        assert [each.method for each in api.asked] == ["POST"]

    def test_a_pause_is_passed_on(self, api):
        api.add("del_1", "evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())
        api.faults.append(error(429, "rate_limit_exceeded", "Slower.", **{"Retry-After": "9"}))

        with pytest.raises(RateLimited) as caught:
            asked.redeliver(sent)

        assert caught.value.retry_after == 9

    @pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
    def test_a_delivery_that_cannot_be_retried(self, api, status):
        api.add("del_1", "evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())
        api.faults.append(error(status, "delivery_too_old", "Too old."))

        with pytest.raises(NotSentAgain, match=f"status {status}"):
            asked.redeliver(sent)

    @pytest.mark.parametrize("status", [401, 403])
    def test_a_key_that_is_no_longer_let_in(self, api, status):
        api.add("del_1", "evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())
        api.faults.append(error(status, "no", "No."))

        with pytest.raises(SourceRefused):
            asked.redeliver(sent)


class TestReading:
    """Spellings that a delivery may have; none is published."""

    @pytest.mark.parametrize(
        ("row", "event_id", "event_type"),
        [
            ({"event_id": "evt_1", "event_type": "a.b"}, "evt_1", "a.b"),
            ({"event": {"id": "evt_1", "type": "a.b"}}, "evt_1", "a.b"),
            ({"payload": {"id": "evt_1", "type": "a.b"}}, "evt_1", "a.b"),
            ({"request": {"body": {"id": "evt_1", "type": "a.b"}}}, "evt_1", "a.b"),
            ({"event": "evt_1", "event_type": "a.b"}, "evt_1", "a.b"),
            ({"event": "a.b", "event_id": "evt_1"}, "evt_1", "a.b"),
            ({"event": "a.b"}, "", "a.b"),
            ({"event_id": 7, "type": "webhook_delivery"}, "", ""),
            ("nonsense", "", ""),
        ],
    )
    def test_the_event(self, row, event_id, event_type):
        attempt = Attempt.read(row)

        assert (attempt.event_id, attempt.event_type) == (event_id, event_type)

    @pytest.mark.parametrize(
        ("row", "accepted"),
        [
            ({"status": "succeeded"}, True),
            ({"status": "Delivered"}, True),
            ({"status": 204}, True),
            ({"success": True}, True),
            ({"response_status": 200}, True),
            ({"status": "succeeded", "response_status": 500}, False),
            ({"success": False, "status_code": 200}, False),
            ({"status": "pending"}, False),
            ({"status": "failed"}, False),
            ({"status_code": 302}, False),
            ({"status_code": None, "success": None}, False),
            ({"status_code": True}, False),
            ({}, False),
        ],
    )
    def test_whether_it_was_accepted(self, row, accepted):
        assert Attempt.read(row).accepted is accepted

    @pytest.mark.parametrize(
        ("row", "at"),
        [
            ({"created_at": "2026-07-01T12:30:00Z"}, MOMENT),
            ({"created_at": "2026-07-01T14:30:00+02:00"}, MOMENT),
            ({"created_at": "2026-07-01 12:30:00"}, MOMENT),
            ({"created": int(MOMENT.timestamp())}, MOMENT),
            ({"created": int(MOMENT.timestamp()) * 1000}, MOMENT),
            ({"created_at": None, "sent_at": "2026-07-01T12:30:00Z"}, MOMENT),
            ({"created_at": "2026-13-01T12:30:00Z"}, None),
            ({"created_at": "yesterday"}, None),
            ({"created": True}, None),
            ({"created": 1e300}, None),
            ({}, None),
        ],
    )
    def test_when_it_was(self, row, at):
        assert Attempt.read(row).at == at

    @pytest.mark.parametrize("delivery_id", ["../../x", "a b", "", None, 1.5, True, -1])
    def test_an_id_that_may_not_stand_in_a_path(self, delivery_id):
        assert Attempt.read({"id": delivery_id}).delivery_id == ""

    def test_a_number_is_an_id(self, api):
        api.add(7, "evt_1")
        asked = source(api)
        (sent,) = asked.sent(since())

        asked.redeliver(sent)

        assert api.retried == ["7"]

    def test_what_the_list_leaves_out_is_asked_for(self, api):
        api.left_out = {"event_id", "event_type"}
        api.add("del_1", "evt_1")
        api.add("del_2", "evt_1", delivered=True)

        (sent,) = source(api).sent(since())

        assert sent.accepted
        assert sent.identity.event_type == "payment.succeeded"
        assert [each.path.rsplit("/", 2)[1] for each in api.asked] == [
            "deliveries",
            "del_2",
            "del_1",
        ]

    def test_what_was_asked_for_one_by_one_is_kept_over_a_pause(self, api):
        api.left_out = {"event_id"}
        for number in range(4):
            api.add(f"del_{number}", f"evt_{number}")
        api.faults.extend([None, None, None, error(429, "x", "Slower.", **{"Retry-After": "1"})])
        asked, start = source(api), since()

        with pytest.raises(RateLimited):
            list(asked.sent(start))

        assert len(ids(asked.sent(start))) == 4
        # The list and two, the pause, the list and the other two.
        assert len(api.asked) == 3 + 1 + 3

    @pytest.mark.parametrize(
        "row",
        [
            {"id": "del_9", "created_at": "yesterday", "event_id": "evt_9"},
            {"id": "../x", "created": 1, "event_id": "evt_9"},
            "nonsense",
        ],
    )
    def test_what_makes_no_sense_is_told_after_the_rest(self, api, row):
        api.add("del_1", "evt_1")
        api.deliveries["we_1"].append(row)
        found = []

        if row == "nonsense":
            rows = api.deliveries["we_1"]
            api.faults.append(Reply(body={"count": 2, "next": None, "data": rows}))
        with pytest.raises(SourceError, match=r"Sangho's list.*: 1\."):
            for sent in source(api).sent(since()):
                found.append(sent)

        assert ids(found) == ["evt_1"]

    def test_an_event_that_nothing_names_is_told_after_the_rest(self, api):
        api.add("del_1", "evt_1")
        api.add("del_2", "")
        found = []

        with pytest.raises(SourceError, match=r"Sangho's list.*: 1\."):
            for sent in source(api).sent(since()):
                found.append(sent)

        assert ids(found) == ["evt_1"]

    @pytest.mark.parametrize("wrapped", [lambda rows: rows, lambda rows: {"results": rows}])
    def test_lists_of_another_shape(self, api, wrapped):
        api.add("del_1", "evt_1")
        api.faults.append(Reply(body=wrapped(api.deliveries["we_1"])))

        assert ids(source(api).sent(since())) == ["evt_1"]

    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ("<html>Welcome to the proxy</html>", "no list"),
            ({"status": "ok"}, "no list"),
            ({"data": {}}, "no list"),
            ({"data": [], "next": 2}, "no list"),
            ({"data": [], "next": "abc"}, "next page that cannot be read"),
            ({"data": [], "next": "https://x.example/?id=we_2"}, "next page that cannot be read"),
            ({"data": [], "has_more": True}, "next page that cannot be read"),
        ],
    )
    def test_an_answer_that_is_no_list(self, api, body, sentence):
        api.faults.extend([Reply(body=body)] * 3)

        with pytest.raises(SourceError, match=sentence):
            list(source(api).sent(since()))

    def test_pages_in_a_circle(self, api):
        api.faults.extend([Reply(body={"data": [], "next": "?page=2"})] * 9)

        with pytest.raises(SourceError, match="leads back"):
            list(source(api).sent(since()))
        assert len(api.asked) == 2


class TestLimits:
    def test_a_pause_is_passed_on_and_not_slept(self, api):
        api.faults.append(error(429, "rate_limit_exceeded", "Slower.", **{"Retry-After": "3600"}))
        started = time.monotonic()

        with pytest.raises(RateLimited) as caught:
            list(source(api).sent(since()))

        assert caught.value.retry_after == 3600
        assert len(api.asked) == 1
        assert time.monotonic() - started < 5

    def test_a_pause_in_the_body(self, api):
        api.faults.append(Reply(429, {"message": "Slower.", "retry_after": 12}))

        with pytest.raises(RateLimited) as caught:
            list(source(api).sent(since()))

        assert caught.value.retry_after == 12

    def test_a_pause_until_a_date_trips_the_client_and_not_us(self, api):
        headers = {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}
        api.faults.append(error(429, "rate_limit_exceeded", "Slower.", **headers))

        with pytest.raises(RateLimited) as caught:
            list(source(api).sent(since()))

        assert caught.value.retry_after == asking.UNSAID_PAUSE


class TestFaults:
    def test_a_passing_fault_is_ridden_out(self, api):
        api.add("del_1", "evt_1")
        api.faults.extend([error(500, "api_error", "Broken."), Reply(502, "<html>Bad gateway")])

        assert ids(source(api).sent(since())) == ["evt_1"]
        assert len(api.asked) == 3

    def test_a_lasting_one_is_told(self, api):
        api.faults.extend([error(503, "api_error", "Broken.")] * 9)

        with pytest.raises(SourceError, match="answers 503"):
            list(source(api).sent(since()))
        assert len(api.asked) == 3

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"API_KEY": EXPIRED_KEY}, "does not accept the key"),
            ({"API_KEY": OTHER_KEY}, "use the endpoint we_1"),
            ({"ENDPOINTS": ["we_9"]}, "knows no endpoint we_9"),
        ],
    )
    def test_a_key_that_is_not_let_in(self, api, options, sentence):
        with pytest.raises(SourceRefused, match=sentence) as caught:
            list(source(api, **options).sent(since()))

        assert f"{WHERE}['API_KEY']" in str(caught.value)
        assert "sk_test" not in str(caught.value)
        assert caught.value.__suppress_context__
        assert len(api.asked) == 1

    def test_an_error_that_the_client_cannot_read(self, api):
        api.faults.extend([Reply(400, ["nonsense"])] * 3)

        with pytest.raises(SourceError, match="cannot be read"):
            list(source(api).sent(since()))

    def test_an_api_that_does_not_answer(self, api, monkeypatch):
        monkeypatch.setattr(SanghoSource, "timeout", 0.1)
        api.answers.clear()
        started = time.monotonic()

        with pytest.raises(SourceError, match="does not answer"):
            list(source(api).sent(since()))

        assert time.monotonic() - started < 5

    def test_an_api_that_is_not_there(self, api):
        asked = source(api, BASE_URL="http://127.0.0.1:1/v1")

        with pytest.raises(SourceError, match="cannot be reached"):
            list(asked.sent(since()))


class TestSettings:
    def test_each_endpoint_is_a_source_with_a_key_of_its_own(self, api):
        api.add("del_1", "evt_1")
        api.add("del_2", "evt_2", endpoint="we_2")

        found = sources(api, ENDPOINTS=["we_1", "we_2", "we_1"], SCOPE="shop")

        assert [each.key for each in found] == ["shop/we_1", "shop/we_2"]
        assert [ids(each.sent(since())) for each in found] == [["evt_1"], ["evt_2"]]

    @pytest.mark.parametrize("key", [key_from_function, f"{__name__}.key_from_function"])
    def test_the_key_may_come_from_a_function(self, api, key):
        assert list(source(api, API_KEY=key).sent(since())) == []
        assert api.asked[0].headers["authorization"] == f"Bearer {KEY}"

    @pytest.mark.parametrize("key", ["", None, "pk_test_public_key_of_the_tests", "whsec_0123"])
    def test_a_key_that_cannot_be_one(self, key):
        with pytest.raises(ImproperlyConfigured, match="'API_KEY'") as caught:
            sources(API_KEY=key)

        assert not key or key not in str(caught.value)

    def test_a_key_that_the_client_does_not_take(self, api):
        with pytest.raises(ImproperlyConfigured, match="'API_KEY'") as caught:
            list(source(api, API_KEY="sk_test_short").sent(since()))

        assert "sk_test" not in str(caught.value)
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"TOKEN": "x"}, "'TOKEN'.*Its options: API_KEY, BASE_URL, ENDPOINTS, SCOPE"),
            ({"ENDPOINTS": []}, "'ENDPOINTS'.*is empty"),
            ({"ENDPOINTS": "we_1"}, "'ENDPOINTS'.*list of ids"),
            ({"ENDPOINTS": ["../we_1"]}, "'ENDPOINTS'.*list of ids"),
            ({"BASE_URL": "http://api.sangho.ga/v1"}, "'BASE_URL'.*https://"),
            ({"SCOPE": "a/b"}, "'SCOPE'"),
        ],
    )
    def test_a_wrong_option_is_named(self, options, sentence):
        with pytest.raises(ImproperlyConfigured, match=sentence) as caught:
            sources(**options)

        assert WHERE in str(caught.value)

    def test_without_the_client(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sangho", None)

        with pytest.raises(MissingExtra, match=r"django-webhook-idempotency\[sangho\]"):
            sources()
