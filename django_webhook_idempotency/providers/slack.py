"""Slack: the Events API, slash commands and interactivity.

https://docs.slack.dev/apis/events-api
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from .. import signatures
from ..exceptions import MalformedWebhook
from . import options
from .base import Provider
from .identity import Answer, Identity, Redelivery, compound, parts_of
from .incoming import FORM, Incoming, as_object, text_at

_CARRIES_AN_EVENT = re.compile(rb"(?:\A|&)(?:command|payload)=")
_SSL_CHECK = re.compile(rb"(?:\A|&)ssl_check=1(?:&|\Z)")


class Slack(Provider):
    """Requests that Slack sends to an app.

    Events carry an `event_id`. Slash commands and interactivity are forms without one: the
    trigger id stands in, else the time of the action. What has neither (a closed view, say) is
    refused unless ID_FROM_BODY allows a digest of the body.
    """

    slug = "slack"
    name = "Slack"
    scoped_by = "the app's id (api_app_id)"
    docs = (
        "https://docs.slack.dev/apis/events-api",
        "https://docs.slack.dev/authentication/verifying-requests-from-slack",
        "https://docs.slack.dev/tools/bolt-js/reference/interfaces/SlashCommand",
        "https://api.slack.com/events/url_verification",
    )
    # https://docs.slack.dev/authentication/verifying-requests-from-slack
    scheme = signatures.Hmac(
        "X-Slack-Signature",
        "v0:{timestamp}:{body}",
        prefix="v0=",
        time_header="X-Slack-Request-Timestamp",
    )
    # GET is for ssl_check only: PyPI slack_bolt 1.30.0, middleware/ssl_check.
    methods = frozenset({"GET", "POST"})
    content_types = frozenset({"application/json", FORM})

    # https://docs.slack.dev/apis/events-api
    # At once, after a minute and after five. [U] For slash commands and interactivity no retry
    # is documented.
    retry_window = timedelta(minutes=6)
    # The app setting Delayed Events adds an attempt every hour for a day.
    delayed_events: bool = False
    delayed_events_window = timedelta(hours=24)
    deadline = 3
    # https://docs.slack.dev/interactivity/implementing-slash-commands
    # Commands and interactivity ask for HTTP 200 in so many words.
    accepted_status = 200
    # https://docs.slack.dev/authentication/verifying-requests-from-slack
    # The old verification token is in every body; a response URL lets its bearer answer for us.
    hidden_fields = frozenset({"token", "response_url"})
    # The header ends the attempts, and it works on a refusal only. 422 is one that neither Slack
    # nor this package uses for anything else: read and understood, and not to be processed.
    stop_retry_headers: ClassVar[Mapping[str, str]] = {"x-slack-no-retry": "1"}
    stop_retry_status = 422
    kept_headers = frozenset(
        {
            "user-agent",
            "x-slack-request-timestamp",
            "x-slack-retry-num",
            "x-slack-retry-reason",
        }
    )

    options: ClassVar[Mapping[str, options.Validator]] = {
        **options.COMMON,
        "delayed_events": options.boolean,
    }

    def __init__(self, slug: str = "", values: Mapping[str, Any] | None = None) -> None:
        """Take the options; DELAYED_EVENTS makes the window a day longer."""
        super().__init__(slug, values)
        if self.delayed_events:
            self.retry_window += self.delayed_events_window

    def unsigned_handshake(self, incoming: Incoming) -> Answer | None:
        """Answer `ssl_check=1`, with which Slack tries the certificate of a slash command's URL.

        It does nothing, so it may come from anybody. The form is looked at as it stands, since a
        stranger's body is not to be decoded.
        """
        if incoming.message.method == "GET":
            asked = incoming.query.get("ssl_check") == "1"
        else:
            asked = incoming.is_form and _SSL_CHECK.search(incoming.body) is not None
            asked = asked and _CARRIES_AN_EVENT.search(incoming.body) is None
        return Answer() if asked else None

    def handshake(self, incoming: Incoming) -> Answer | None:
        """Give the challenge of `url_verification` back as text."""
        if incoming.is_form or text_at(incoming.json_object, "type") != "url_verification":
            return None
        challenge = text_at(incoming.json_object, "challenge")
        if not challenge:
            raise MalformedWebhook("The url_verification carries no challenge.")
        return Answer(body=challenge.encode("utf-8", "replace"))

    def identify(self, incoming: Incoming) -> Identity:
        """Tell events, interactivity and slash commands apart, and read the id of each."""
        document = self.payload(incoming)
        if not incoming.is_form:
            found = _event(document)
        elif "payload" in incoming.form:
            found = _interaction(document)
        else:
            found = _command(document)
        return replace(found, event_id=self.usable_id(found.event_id, incoming))

    def may_scope(self, scope: str) -> bool:
        """Whether it is an app's id, or that and a workspace's."""
        parts = parts_of(scope)
        return len(parts) <= 2 and bool(parts[0])

    def redelivery(self, incoming: Incoming) -> Redelivery:
        """Read x-slack-retry-num and x-slack-retry-reason."""
        return Redelivery.parse(
            incoming.header("X-Slack-Retry-Num"), incoming.header("X-Slack-Retry-Reason")
        )

    def payload(self, incoming: Incoming) -> dict[str, Any]:
        """The JSON object, of the body or of the form field `payload`, else the form's fields."""
        if not incoming.is_form:
            return incoming.json_object
        if "payload" in incoming.form:
            return as_object(incoming.form_payload)
        return incoming.form


def _event(document: Any) -> Identity:
    """The Events API: `event_callback`, and `app_rate_limited`, which comes once a minute."""
    kind = text_at(document, "type")
    event_id = text_at(document, "event_id")
    if kind == "app_rate_limited" and not event_id:
        team, minute = text_at(document, "team_id"), document.get("minute_rate_limited")
        if team and type(minute) is int:
            event_id = compound(kind, team, str(minute))
    return Identity(
        event_id=event_id,
        event_type=text_at(document, "event.type") or kind,
        scope=text_at(document, "api_app_id"),
    )


def _interaction(document: Any) -> Identity:
    """Buttons, menus, modals and shortcuts; without a trigger id, who acted when."""
    event_id = text_at(document, "trigger_id")
    actions = document.get("actions")
    if not event_id and isinstance(actions, list):
        user = text_at(document, "user.id")
        times = [time for action in actions if (time := text_at(action, "action_ts"))]
        event_id = compound(user, *times) if user and times else ""
    return Identity(
        event_id=event_id,
        event_type=text_at(document, "type"),
        scope=compound(text_at(document, "api_app_id"), text_at(document, "team.id")),
    )


def _command(fields: Any) -> Identity:
    """A slash command; its type is the command, such as `/deploy`."""
    return Identity(
        event_id=text_at(fields, "trigger_id"),
        event_type=text_at(fields, "command"),
        scope=compound(text_at(fields, "api_app_id"), text_at(fields, "team_id")),
    )
