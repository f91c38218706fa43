"""Stripe's list of events, after its public description of the API.

https://docs.stripe.com/api/events/list
https://docs.stripe.com/api/errors
https://docs.stripe.com/api/connected-accounts
"""

from __future__ import annotations

import json
from typing import Any

from .http_api import Api, Asked, Reply

KEY = "sk_test_51PublicAndOnlyForTheTests"
EXPIRED_KEY = "sk_test_51ExpiredAndOnlyForTheTests"
KEY_WITHOUT_EVENTS = "rk_test_51WithoutEventsOnlyForTests"
PLATFORM = ""
DEFAULT_LIMIT, MAX_LIMIT = 10, 100
KNOWN = {"limit", "starting_after", "ending_before", "delivery_success", "type"}


def error(status: int, kind: str, message: str, code: str = "", **headers: str) -> Reply:
    """An error as Stripe words it."""
    document = {"type": kind, "message": message, **({"code": code} if code else {})}
    return Reply(status, {"error": document}, headers)


def rate_limited(**headers: str) -> Reply:
    """What Stripe answers where it was asked too often."""
    return error(429, "invalid_request_error", "Too many requests.", "rate_limit", **headers)


def broken(status: int = 500, **headers: str) -> Reply:
    """An error of Stripe's own."""
    return error(status, "api_error", "Something went wrong on our end.", **headers)


class StripeApi(Api):
    """Events by account, the platform's own under an empty name."""

    def __init__(self) -> None:
        super().__init__()
        #: Account to its events, the oldest first: the event as text, and whether it arrived.
        self.events: dict[str, list[tuple[str, bool]]] = {PLATFORM: []}

    def add(
        self,
        event_id: str,
        event_type: str = "invoice.paid",
        *,
        account: str = PLATFORM,
        age: float = 3600,
        delivered: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Make an event that is `age` seconds old; the one of an account does not name it."""
        event = {
            "id": event_id,
            "object": "event",
            "api_version": "2025-09-30.clover",
            "created": int(self.now() - age),
            "data": {"object": {"id": f"in_{event_id}", "object": "invoice", "total": 1250}},
            "livemode": False,
            "pending_webhooks": 0 if delivered else 1,
            "request": {"id": None, "idempotency_key": None},
            "type": event_type,
            **more,
        }
        self.add_text(json.dumps(event, indent=2), account=account, delivered=delivered)
        return event

    def add_text(self, text: str, *, account: str = PLATFORM, delivered: bool = False) -> None:
        """Add an event in the spelling that the API is to give."""
        self.events.setdefault(account, []).append((text, delivered))

    def answer(self, asked: Asked) -> Reply:
        """One page of the list, or Stripe's error."""
        key = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if key == EXPIRED_KEY:
            message = f"Expired API Key provided: {key[:12]}****"
            return error(401, "invalid_request_error", message, "api_key_expired")
        if key == KEY_WITHOUT_EVENTS:
            message = f"The provided key '{key[:12]}****' does not have the required permissions."
            return error(403, "invalid_request_error", message)
        if key != KEY:
            return error(401, "invalid_request_error", f"Invalid API Key provided: {key[:12]}****")
        account = asked.headers.get("stripe-account", PLATFORM)
        if account not in self.events:
            message = f"The provided key does not have access to account '{account}'."
            return error(403, "invalid_request_error", message, "account_invalid")
        if (asked.method, asked.path) != ("GET", "/v1/events"):
            return error(404, "invalid_request_error", "Unrecognized request URL.")
        return self._list(asked.params, self.events[account])

    def _list(self, params: dict[str, str], events: list[tuple[str, bool]]) -> Reply:
        types = {value for name, value in params.items() if name.startswith("types[")}
        other = {name for name in params if not name.startswith(("types[", "created["))} - KNOWN
        limit = int(params.get("limit", DEFAULT_LIMIT))
        if params.get("delivery_success", "true") not in ("true", "false"):
            return error(400, "invalid_request_error", "Invalid boolean.", "parameter_invalid")
        if other or not 1 <= limit <= MAX_LIMIT or len(types) > 20:
            return error(400, "invalid_request_error", "Bad parameter.", "parameter_unknown")
        parsed = [(text, json.loads(text), delivered) for text, delivered in reversed(events)]
        found = [
            (text, event)
            for text, event, delivered in parsed
            if event["created"] >= int(params.get("created[gte]", 0))
            and event["created"] >= self.now() - 30 * 86400
            and (not types or event["type"] in types)
            and params.get("delivery_success", "") in ("", "true" if delivered else "false")
        ]
        after = params.get("starting_after")
        if after:
            at = [event["id"] for _, event in found].index(after)
            found = found[at + 1 :]
        data = ",\n    ".join(text for text, _ in found[:limit])
        more = "true" if len(found) > limit else "false"
        head = '{\n  "object": "list",\n  "data": ['
        return Reply(body=f'{head}{data}],\n  "has_more": {more},\n  "url": "/v1/events"\n}}')


def webhook(event: dict[str, Any], account: str = PLATFORM) -> bytes:
    """The body of the webhook of an event: spelled in another way, and naming the account."""
    named = {"account": account} if account else {}
    document = {**event, **named, "pending_webhooks": 3}
    return json.dumps(document, separators=(",", ":")).encode()
