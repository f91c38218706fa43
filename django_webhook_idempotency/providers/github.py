"""GitHub: JSON or a form, an unsigned GUID that two hooks share, and never a retry.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from .. import signatures
from ..signatures import Message, Secret, Verdict
from . import options
from .base import Provider
from .identity import Answer, Identity
from .incoming import FORM, Incoming, as_object, text_at


class GitHub(Provider):
    """Webhooks of repositories, organisations and apps, on github.com and Enterprise Server."""

    slug = "github"
    name = "GitHub"
    scoped_by = "the hook's id (X-GitHub-Hook-ID)"
    docs = (
        "https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers",
        "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
        "https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks",
    )

    # https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    scheme = signatures.Hmac("X-Hub-Signature-256", prefix="sha256=")
    sha1_scheme = signatures.Hmac("X-Hub-Signature", prefix="sha1=", digest="sha1")
    # Only the body is signed: no time, and not the GUID.
    tolerance = None
    id_is_signed = False
    same_body = "flag"
    accept_sha1: bool = False

    # https://docs.github.com/en/webhooks/using-webhooks/creating-webhooks
    content_types = frozenset({"application/json", FORM})
    # https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/troubleshooting-webhooks
    max_body = 25 * 1024 * 1024

    # https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries
    # Nothing is sent again by itself, so a copy that meets its first cannot be asked to come
    # back: 409 makes GitHub show it as failed, and a person or a script can redeliver it.
    retry_window = timedelta(0)
    in_progress_status = 409
    # https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks/redelivering-webhooks
    resend_window = timedelta(days=3)
    # https://docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks
    deadline = 10
    # The same two pages, for GitHub Enterprise Server.
    enterprise_server: bool = False
    enterprise_resend_window = timedelta(days=7)
    enterprise_deadline = 30

    kept_headers = frozenset(
        {
            "user-agent",
            "x-github-delivery",
            "x-github-enterprise-host",
            "x-github-enterprise-version",
            "x-github-event",
            "x-github-hook-id",
            "x-github-hook-installation-target-id",
            "x-github-hook-installation-target-type",
        }
    )

    identifying_headers = frozenset({"x-github-delivery", "x-github-event", "x-github-hook-id"})

    options: ClassVar[Mapping[str, options.Validator]] = {
        **options.COMMON,
        "accept_sha1": options.boolean,
        "enterprise_server": options.boolean,
        "same_body": options.one_of("flag", "refuse", "allow"),
    }

    def __init__(self, slug: str = "", values: Mapping[str, Any] | None = None) -> None:
        """Take the options; ENTERPRISE_SERVER changes the window, and the deadline if unset."""
        super().__init__(slug, values)
        if self.enterprise_server:
            self.resend_window = self.enterprise_resend_window
            if "DEADLINE" not in (values or {}):
                self.deadline = self.enterprise_deadline

    @property
    def signed_headers(self) -> frozenset[str]:
        """The SHA-1 signature too where `verify` would read it."""
        names = super().signed_headers
        return names | self.sha1_scheme.signed_headers if self.accept_sha1 else names

    def verify(self, message: Message, secrets: Sequence[Secret], now: float) -> Verdict:
        """Judge SHA-256 wherever it is present; SHA-1 alone only with ACCEPT_SHA1."""
        if self.accept_sha1 and self.scheme.header.lower() not in message.headers:
            return self.sha1_scheme.verify(message, secrets, now=now, tolerance=None)
        return super().verify(message, secrets, now)

    def handshake(self, incoming: Incoming) -> Answer | None:
        """Answer the ping that a new hook sends; it is no event."""
        if incoming.header("X-GitHub-Event") != "ping":
            return None
        return Answer(body=b'{"status": "handshake"}', content_type="application/json")

    def identify(self, incoming: Incoming) -> Identity:
        """Read the GUID, scoped by the hook: two hooks on one URL get the same GUID.

        The type is `push` or, where the body names an action, `pull_request.opened`.
        """
        event = incoming.header("X-GitHub-Event")
        action = text_at(self.payload(incoming), "action")
        return Identity(
            event_id=self.usable_id(incoming.header("X-GitHub-Delivery"), incoming),
            event_type=f"{event}.{action}" if event and action else event,
            scope=incoming.header("X-GitHub-Hook-ID"),
        )

    def payload(self, incoming: Incoming) -> dict[str, Any]:
        """The event as an object, from the body or from the form field `payload`."""
        return as_object(incoming.form_payload if incoming.is_form else incoming.json)
