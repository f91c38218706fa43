"""The SECRETS option."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.providers.secrets import configured_secrets

WHERE = "SETTINGS['SECRETS']"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def values(option, scope=""):
    return [secret.value for secret in configured_secrets(option, scope, WHERE)]


def problem(option):
    with pytest.raises(ImproperlyConfigured) as caught:
        configured_secrets(option, "", WHERE)
    assert WHERE in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def secrets_of(scope):
    return [f"secret of {scope}"]


def one_secret(scope):
    return "hunter2"


NO_FUNCTION = 5


class TestLists:
    @pytest.mark.parametrize("option", [["a", b"b"], ("a", "b"), iter(["a", "b"])])
    def test_text_and_bytes_in_order(self, option):
        assert values(option) == [b"a", b"b"]

    def test_white_space_around_a_pasted_secret_is_dropped(self):
        assert values([" a\n"]) == [b"a"]

    @pytest.mark.parametrize("option", [None, [], (), {}.keys()])
    def test_no_secret_at_all(self, option):
        assert "no live secret" in problem(option)

    @pytest.mark.parametrize("option", [b"hunter2", {"SECRET": "hunter2"}, 5, True])
    def test_what_is_no_list(self, option):
        assert "list" in problem(option)

    @pytest.mark.parametrize("entry", [None, 5, ["hunter2"], {}, {"UNTIL": NOW}, object()])
    def test_an_entry_that_is_no_secret(self, entry):
        assert "neither text nor bytes" in problem(["good", entry])

    @pytest.mark.parametrize("entry", ["", " ", b"", "\n", "whsec_", {"SECRET": ""}])
    def test_an_empty_secret_is_refused_even_beside_a_good_one(self, entry):
        """DESIGN promise 1: an empty secret never accepts."""
        assert "empty" in problem(["good", entry])

    def test_a_secret_that_is_no_text(self):
        assert "not text" in problem(["hunter2\ud800"])


class TestText:
    @pytest.mark.parametrize("option", ["hunter2", "whsec_hunter2", "a b", "", "a.", ".a", "a.b c"])
    def test_a_secret_outside_of_a_list(self, option):
        assert "Put the secret into a list" in problem(option)

    @pytest.mark.parametrize("option", ["hunter2.hunter2", "tests.hunter2", "tests.providers.x.y"])
    def test_a_path_that_leads_nowhere(self, option):
        assert "not the path of a function" in problem(option)

    def test_a_path_to_a_function_that_takes_the_scope(self):
        assert values(f"{__name__}.secrets_of", "tenant") == [b"secret of tenant"]

    def test_a_path_to_something_else(self):
        assert "not a list" in problem(f"{__name__}.NO_FUNCTION")


class TestFunctions:
    def test_the_scope_is_handed_over(self):
        assert values(secrets_of, "tenant") == [b"secret of tenant"]

    def test_one_secret_is_no_list(self):
        assert "list" in problem(one_secret)

    @pytest.mark.parametrize("returned", [None, []])
    def test_an_unknown_scope_lets_nobody_in(self, returned):
        assert "no live secret" in problem(lambda scope: returned)


class TestRotation:
    @pytest.mark.parametrize("use_tz", [True, False])
    def test_an_old_secret_lives_until_its_time(self, settings, use_tz):
        settings.USE_TZ = use_tz
        option = ["new", {"SECRET": "old", "UNTIL": NOW}]

        with time_machine.travel(NOW - timedelta(seconds=1), tick=False):
            assert values(option) == [b"new", b"old"]
        with time_machine.travel(NOW, tick=False):
            assert values(option) == [b"new"]

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_a_naive_time_is_in_the_projects_zone(self, settings, use_tz):
        settings.USE_TZ = use_tz
        settings.TIME_ZONE = "Africa/Libreville"  # an hour ahead of UTC
        option = ["new", {"SECRET": "old", "UNTIL": datetime(2026, 11, 30, 13)}]

        with time_machine.travel(NOW - timedelta(seconds=1), tick=False):
            assert values(option) == [b"new", b"old"]
        with time_machine.travel(NOW, tick=False):
            assert values(option) == [b"new"]

    def test_no_end(self):
        assert values([{"SECRET": "a"}, {"SECRET": b"b", "UNTIL": None}]) == [b"a", b"b"]

    def test_only_expired_ones(self):
        assert "no live secret" in problem(
            [{"SECRET": "hunter2", "UNTIL": datetime(2020, 1, 1, tzinfo=UTC)}]
        )

    @pytest.mark.parametrize("until", ["2026-11-30", 1_700_000_000, NOW.date()])
    def test_an_end_that_is_no_datetime(self, until):
        assert "UNTIL" in problem([{"SECRET": "hunter2", "UNTIL": until}])

    def test_a_misspelt_key_does_not_let_the_old_one_live_for_ever(self):
        assert "other keys" in problem([{"SECRET": "hunter2", "UNTILL": NOW}])
