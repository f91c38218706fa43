"""What Stripe's errors mean for recovery; its own words are left out, some show part of the key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import stripe

from ..providers.incoming import text_at
from . import asking
from .base import RateLimited, SourceError, SourceRefused

FIRST_REFUSAL, UNAVAILABLE = 400, 503


@contextmanager
def understood(where: str, account: str) -> Iterator[None]:
    """Say what stands in the way of a question; `where` names the setting that holds the key."""
    about = f"account {account}" if account else "the account"
    try:
        yield
    except stripe.RateLimitError as error:
        raise RateLimited(_pause(error)) from None
    except stripe.AuthenticationError as error:
        raise SourceRefused(
            f"Stripe does not accept the key{_reason(error)}. Put a live one into {where}."
        ) from None
    except stripe.PermissionError as error:
        raise SourceRefused(
            f"Stripe does not let the key in {where} read the events of {about}{_reason(error)}. "
            "Give it the right to read events, and connect the account."
        ) from None
    except stripe.InvalidRequestError as error:
        raise SourceRefused(
            f"Stripe does not take the question about {about}{_reason(error)}."
        ) from None
    except stripe.StripeError as error:
        status = error.http_status
        if status == UNAVAILABLE and _header(error, "Retry-After"):
            raise RateLimited(_pause(error)) from None
        if status is None:
            raise SourceError("Stripe's API cannot be reached, or does not answer.") from None
        if status < FIRST_REFUSAL:
            raise SourceError("Stripe's answer cannot be read. Is API_BASE Stripe's API?") from None
        raise SourceError(f"Stripe's API answers {status}{_reason(error)}.") from None


def _pause(error: stripe.StripeError) -> float:
    return asking.pause_asked(_header(error, "Retry-After"))


def _header(error: stripe.StripeError, name: str) -> str:
    headers = error.headers or {}
    return next((value for key, value in headers.items() if key.lower() == name.lower()), "")


def _reason(error: stripe.StripeError) -> str:
    """Stripe's code for the error in brackets, where it gives one."""
    code = text_at(error.json_body, "error.code")
    return f" ({code[:64]})" if code.replace("_", "").isalnum() else ""
