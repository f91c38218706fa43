"""The options that every provider has: their types, and how a value is put in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

#: Returns the value to use, or raises ValueError with what the value should be.
Validator = Callable[[Any], Any]

SHORTEST_LEASE = timedelta(seconds=0.5)
SHORTEST_INTERVAL = timedelta(minutes=2)

#: Entries of a provider's dictionary that choose or feed it and are no attributes.
STRUCTURAL = frozenset({"CLASS"})


def seconds(value: Any) -> float:
    """A number of seconds from zero up, at most what a timedelta holds, or a timedelta."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number of seconds, zero or more")
    if not 0 <= value <= timedelta.max.total_seconds():
        raise ValueError("a finite number of seconds, zero or more")
    return float(value)


def optional_seconds(value: Any) -> float | None:
    """As `seconds`, with None for no limit."""
    return None if value is None else seconds(value)


def duration(value: Any) -> timedelta:
    """A timedelta longer than nothing."""
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ValueError("a positive datetime.timedelta")
    return value


def lease(value: Any) -> timedelta:
    """A timedelta that a renewal in a third of it can keep up with."""
    if not isinstance(value, timedelta) or value < SHORTEST_LEASE:
        raise ValueError("a datetime.timedelta of half a second or more")
    return value


def positive(value: Any) -> int:
    """A whole number from one up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number, one or more")
    return value


def natural(value: Any) -> int:
    """A whole number from zero up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number, zero or more")
    return value


def boolean(value: Any) -> bool:
    """True or False, nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def success(value: Any) -> int:
    """A status that every provider takes for received."""
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 299:
        raise ValueError("a 2xx HTTP status")
    return value


def refusal(value: Any) -> int:
    """A status that asks the provider to try again or tells it that it was refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not 400 <= value <= 599:
        raise ValueError("a 4xx or 5xx HTTP status")
    return value


def final(value: Any) -> int:
    """A status that makes the provider stop: a success or a refusal."""
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise ValueError("an HTTP status from 200 to 599")
    return value


def one_of(*choices: Any) -> Validator:
    """One of the given values."""

    def check(value: Any) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise ValueError("one of " + ", ".join(map(repr, choices)))
        return value

    return check


def optional_positive(value: Any) -> int | None:
    """As `positive`, with None for no limit."""
    if value is None:
        return None
    try:
        return positive(value)
    except ValueError:
        raise ValueError("None or a whole number, one or more") from None


def names(value: Any) -> frozenset[str] | None:
    """None for any, or a list of names."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError("None or a list of texts")
    chosen = list(value)
    if not all(isinstance(name, str) and name for name in chosen):
        raise ValueError("None or a list of texts")
    return frozenset(chosen)


def function(value: Any) -> Any:
    """None, a callable, or the dotted path of one."""
    if isinstance(value, str):
        try:
            value = import_string(value)
        except ImportError:
            raise ValueError("a function or the dotted path of one that can be imported") from None
    if value is not None and not callable(value):
        raise ValueError("a function or the dotted path of one")
    return value


def interval(value: Any) -> timedelta | None:
    """None, or a timedelta that what is noted once a minute can tell of."""
    if value is None:
        return None
    if not isinstance(value, timedelta) or value < SHORTEST_INTERVAL:
        raise ValueError("None or a datetime.timedelta of two minutes or more")
    return value


def table(value: Any) -> Mapping[str, Any] | None:
    """None, or a dictionary with names as keys. Its values are checked by whoever reads them."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError("None or a dictionary of names to values")
    return value


def anything(value: Any) -> Any:
    """A value whose check needs more than the value."""
    return value


COMMON: Mapping[str, Validator] = {
    "secrets": anything,
    "scopes": names,
    "tolerance": optional_seconds,
    "deadline": optional_seconds,
    "max_body": positive,
    "processing": one_of("inline", "queued"),
    "success_status": success,
    "accepted_status": success,
    "rejected_status": refusal,
    "failed_status": refusal,
    "in_progress_status": refusal,
    "stop_retry_status": final,
    "wait": seconds,
    "retry_after": natural,
    "lease": lease,
    "max_attempts": positive,
    "backoff": duration,
    "backoff_max": duration,
    "max_pending": optional_positive,
    "retention": duration,
    "body_retention": duration,
    "delivery_retention": duration,
    "store_body": one_of(True, "unfinished"),
    "store_deliveries": boolean,
    "rejected_limit": natural,
    "quarantine_limit": natural,
    "quarantine_max_body": positive,
    "quarantine_retention": duration,
    "expect_every": interval,
    "id_from_body": boolean,
    "secondary_key": function,
    "recovery": table,
}


def assign(provider: Any, name: Any, value: Any) -> None:
    """Set one option on a provider instance. Raises ImproperlyConfigured, never showing `value`."""
    if name in STRUCTURAL:
        return
    known = isinstance(name, str) and name.isupper()
    validator = provider.options.get(name.lower()) if known else None
    if validator is None:
        raise ImproperlyConfigured(
            f"Provider {provider.key!r} has no option {name!r}. "
            f"Its options: {', '.join(sorted(map(str.upper, provider.options)))}."
        )
    try:
        setattr(provider, name.lower(), validator(value))
    except ValueError as error:
        raise ImproperlyConfigured(
            f"Option {name!r} of provider {provider.key!r} should be {error}."
        ) from None
