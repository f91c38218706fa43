"""Values that options take, and what is said about the others."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_webhook_idempotency.providers import Provider, options

DAY = timedelta(days=1)
JUNK = [None, True, False, "5", b"5", [], {}, object(), Decimal(5), math.nan]


def accepts(check, values):
    for value in values:
        assert check(value) == value


def refuses(check, values):
    for value in values:
        with pytest.raises(ValueError):
            check(value)


class TestSeconds:
    def test_numbers_and_durations(self):
        accepts(options.seconds, [0, 0.5, 300, 10**9])
        assert options.seconds(timedelta(minutes=5)) == 300.0
        assert isinstance(options.seconds(5), float)

    def test_anything_else(self):
        refuses(options.seconds, [*JUNK, -1, -0.001, math.inf, -math.inf, 10**400, -DAY])

    def test_no_limit(self):
        assert options.optional_seconds(None) is None
        assert options.optional_seconds(3) == 3.0
        refuses(options.optional_seconds, [value for value in JUNK if value is not None])


class TestNumbers:
    def test_positive(self):
        accepts(options.positive, [1, 10**9])
        refuses(options.positive, [*JUNK, 0, -1, 1.0])

    def test_natural(self):
        accepts(options.natural, [0, 1, 10**9])
        refuses(options.natural, [*JUNK, -1, 1.0])

    def test_duration(self):
        accepts(options.duration, [DAY, timedelta.resolution])
        refuses(options.duration, [*JUNK, 5, timedelta(0), -DAY])

    def test_boolean(self):
        accepts(options.boolean, [True, False])
        refuses(options.boolean, [None, 0, 1, "True", "", []])


class TestStatuses:
    @pytest.mark.parametrize(
        ("check", "low", "high"),
        [(options.success, 200, 299), (options.refusal, 400, 599), (options.final, 200, 599)],
    )
    def test_bounds(self, check, low, high):
        accepts(check, [low, high])
        refuses(check, [*JUNK, low - 1, high + 1, float(low)])


class TestChoices:
    def test_one_of(self):
        check = options.one_of(True, "unfinished")

        accepts(check, [True, "unfinished"])
        refuses(check, [1, False, None, "True", "UNFINISHED", []])

    def test_function(self):
        accepts(options.function, [None, len])
        assert options.function("os.path.join").__name__ == "join"
        refuses(options.function, ["join", "os.nothing", "no.module", "", "os.sep", 5, []])

    def test_anything(self):
        accepts(options.anything, [None, 5, "x"])


class TestAssign:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("DEADLINE", 3),
            ("TOLERANCE", None),
            ("MAX_BODY", 1),
            ("RETENTION", DAY),
            ("STORE_BODY", "unfinished"),
            ("SECONDARY_KEY", len),
            ("ID_FROM_BODY", True),
            ("STOP_RETRY_STATUS", 410),
        ],
    )
    def test_an_option_is_set_on_the_instance_only(self, name, value):
        provider = Provider("acme", {name: value})

        assert getattr(provider, name.lower()) == value
        assert getattr(Provider(), name.lower()) != value

    def test_every_common_option_is_an_attribute(self):
        assert all(hasattr(Provider, name) for name in options.COMMON)

    @pytest.mark.parametrize("name", ["CLASS"])
    def test_what_chooses_a_provider_is_no_option(self, name):
        assert not hasattr(Provider("acme", {name: "x"}), name.lower())

    @pytest.mark.parametrize("name", ["SECRET", "deadline", "Deadline", "", "__CLASS__", 5, None])
    def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(self, name):
        with pytest.raises(ImproperlyConfigured) as caught:
            Provider("acme", {name: 5})

        assert "'acme'" in str(caught.value)
        assert repr(name) in str(caught.value)
        assert "DEADLINE" in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "value", "should"),
        [
            ("DEADLINE", "secret-value", "a number of seconds"),
            ("STORE_BODY", "secret-value", "one of True, 'unfinished'"),
            ("SECONDARY_KEY", "secret-value", "dotted path"),
            ("RETENTION", "secret-value", "timedelta"),
            ("WAIT", math.inf, "finite"),
        ],
    )
    def test_a_wrong_value_is_not_shown(self, name, value, should):
        with pytest.raises(ImproperlyConfigured) as caught:
            Provider("acme", {name: value})

        assert should in str(caught.value)
        assert name in str(caught.value)
        assert "secret-value" not in str(caught.value)
        assert caught.value.__suppress_context__
