"""The path of a delivery: read, verify, identify, claim, dispatch, answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.debug import sensitive_variables

from . import answers
from .dispatch.deliveries import record, record_stranger
from .dispatch.intake import asked, deliver, new_event, with_secondary
from .dispatch.quarantine import Refused, keep, may_be_kept
from .dispatch.reporting import announce, first_line, log_delivery, logger
from .dispatch.secret_uses import note_use
from .dispatch.work import DeliveryReport, Result, Work
from .enums import Outcome, RejectReason
from .exceptions import BodyTooLarge, MalformedWebhook, StoreUnavailable, UnknownScope
from .handlers import Handler
from .ledger import alias, require_no_transaction
from .models import WebhookEvent
from .providers import Answer, Identity, Incoming, Provider
from .reading import kept_headers, plain_request, read

NOT_FOUND = 404

Key = Callable[[Any], str]


@dataclass(frozen=True)
class Receiver:
    """Everything about one place that receives webhooks.

    `resolve` makes the provider; `handlers` picks the handlers of an event; `key` replaces the
    provider's own event id; `scope` is the one in the URL; `prepare` is told which event is about
    to run. `view` is as in `Work`: what a worker can run the event with, if it can. `kept_view`
    says whose options a refused delivery is verified again with; None where only a request could.
    """

    resolve: Callable[[], Provider] = field(repr=False)  # may hold secrets
    handlers: Callable[[WebhookEvent], Sequence[Handler]]
    scope: str = ""
    key: Key | None = None
    replay_response: bool = False
    prepare: Callable[[WebhookEvent], None] = lambda event: None
    view: str | None = None
    kept_view: Callable[[], str | None] = lambda: None

    def receive(self, request: Any) -> HttpResponseBase:
        """Handle one request from its bytes to its answer.

        Never raises what a delivery, a mistake in the settings or an unreachable service causes:
        the last two are answered 503, and the provider comes back.
        """
        retry_after = Provider.retry_after
        try:
            provider = self.resolve()
            retry_after = provider.retry_after
            return Reception(self, provider, DeliveryReport(provider)).receive(
                plain_request(request)
            )
        except UnknownScope as error:
            logger.warning("webhook for an unknown scope: %s", error)
            return answers.plain(NOT_FOUND, "unknown_scope")
        except ImproperlyConfigured as error:
            logger.critical("webhook receiver misconfigured: %s", error)
            return answers.unavailable("misconfigured", retry_after)
        except (DatabaseError, StoreUnavailable) as error:
            logger.error("webhook not accepted: %s", first_line(error))
            return answers.unavailable("unavailable", retry_after)


@dataclass(frozen=True)
class Reception:
    """One request on its way through a receiver."""

    receiver: Receiver
    provider: Provider
    report: DeliveryReport

    def receive(self, request: HttpRequest) -> HttpResponseBase:
        """Read it, then verify and dispatch it, or say why not."""
        refusal = answers.wrong_request(request, self.provider)
        if refusal is not None:
            return refusal
        self.report.headers = kept_headers(request, self.provider)
        try:
            incoming = read(request, self.provider)
            self.report.redelivery = self.provider.redelivery(incoming)
            answer = self.provider.unsigned_handshake(incoming)
            if answer is not None:
                return self._shake_hands(answer)
            return self._verify(request, incoming)
        except BodyTooLarge as error:
            return self._refuse(Outcome.TOO_LARGE, str(error))
        except MalformedWebhook as error:
            return self._refuse(Outcome.MALFORMED, str(error))

    @sensitive_variables("secrets", "verdict")
    def _verify(self, request: HttpRequest, incoming: Incoming) -> HttpResponseBase:
        provider, report = self.provider, self.report
        if provider.is_signed:
            secrets = provider.live_secrets(self.receiver.scope)
            verdict = provider.verify(incoming.message, secrets, time.time())
            if verdict.secret is None or verdict.reason is not None:
                self._quarantine(request, incoming, verdict.reason)
                return self._refuse(Outcome.REJECTED, str(verdict.reason or ""))
            report.secret_fingerprint = verdict.secret.fingerprint
            answer = provider.handshake(incoming)
            if answer is not None:
                return self._shake_hands(answer)
        report.body_digest = provider.body_digest(incoming.body)
        return self._dispatch(self._event(request, incoming))

    def _quarantine(
        self, request: HttpRequest, incoming: Incoming, reason: RejectReason | None
    ) -> None:
        """Keep a delivery whose signature did not hold, if it may hold later."""
        if reason is None or not may_be_kept(self.provider, reason):
            return
        view = self.receiver.kept_view()
        if view is not None:
            refused = Refused(
                provider=self.provider,
                reason=reason,
                incoming=incoming,
                scope=self.receiver.scope,
                view=view,
                address=request.META.get("REMOTE_ADDR") or "",
                content_type=request.META.get("CONTENT_TYPE", ""),
                received_at=self.report.received_at,
            )
            keep(refused)

    def _event(self, request: HttpRequest, incoming: Incoming) -> WebhookEvent:
        """The event that a verified delivery carries, not yet stored. Raises MalformedWebhook."""
        provider, report = self.provider, self.report
        return new_event(
            provider,
            incoming,
            self._identify(request, incoming),
            scope=self.receiver.scope,
            content_type=request.META.get("CONTENT_TYPE", ""),
            body_digest=report.body_digest,
            received_at=report.received_at,
        )

    def _identify(self, request: HttpRequest, incoming: Incoming) -> Identity:
        provider, key = self.provider, self.receiver.key
        if key is None:
            return with_secondary(provider.identify(incoming), provider, incoming)
        own = asked(key, request)
        event_id = provider.usable_id(own if isinstance(own, str) else "", incoming)
        identity = replace(provider.describe(incoming), event_id=event_id)
        return with_secondary(identity, provider, incoming)

    def _dispatch(self, event: WebhookEvent) -> HttpResponseBase:
        require_no_transaction(alias())
        work = Work(
            provider=self.provider,
            handlers=list(self.receiver.handlers(event)),
            report=self.report,
            replay_response=self.receiver.replay_response,
            prepare=self.receiver.prepare,
            view=self.receiver.view,
        )
        event.view = work.view or ""
        work.prepare(event)
        return self._answer(deliver(event, work), event)

    def _answer(self, result: Result, event: WebhookEvent) -> HttpResponseBase:
        """Answer a delivery that carried an event, then tell the log and the signals of it."""
        report = self.report
        report.outcome = result.outcome
        response = answers.answer(
            self.provider,
            result,
            event,
            status=report.status if result.recorded else 0,
            replay_response=self.receiver.replay_response,
        )
        report.status = response.status_code
        if result.unproven:
            record_stranger(report)
        elif not result.recorded:
            record(report, result.event)
        if not result.unproven:
            self._note_use()
        about = result.event or event
        log_delivery(report, about, error=result.error)
        announce(result, about, report)
        return response

    def _note_use(self) -> None:
        """Note that the delivery's secret is in use, and that its source is heard of."""
        report = self.report
        note_use(self.provider.key, report.secret_fingerprint, report.received_at)

    def _shake_hands(self, answer: Answer) -> HttpResponseBase:
        """Answer a handshake."""
        self.report.status = answer.status
        self._record_eventless(Outcome.HANDSHAKE)
        return answers.exact(answer)

    def _refuse(self, outcome: Outcome, note: str) -> HttpResponseBase:
        """Refuse a delivery that carries no event that we could take."""
        self.report.note = note
        self.report.status = self.provider.answer_status(outcome)
        self._record_eventless(outcome, logging.WARNING)
        return answers.plain(self.report.status, outcome)

    def _record_eventless(self, outcome: Outcome, level: int = logging.INFO) -> None:
        """Store a delivery without an event; within bounds unless its signature held."""
        self.report.outcome = outcome
        if self.report.secret_fingerprint:
            record(self.report, None)
            self._note_use()
        else:
            record_stranger(self.report)
        log_delivery(self.report, None, level)
