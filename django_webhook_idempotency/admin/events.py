"""Events in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import formats
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from ..models import HandlerRun, HandlerStep, Replay, WebhookDelivery, WebhookEvent
from .details import bodies_of, delivery_lines, replay_lines, run_lines, step_lines
from .display import NOTHING, above, choice_badge, duration_text, retry_text, time_text, two_lines
from .filters import EventTypeFilter, ProviderFilter, ScopeFilter, StatusFilter
from .ledger import LedgerAdmin
from .links import list_link, may_view, with_link
from .replays import ReplaysEvents
from .searching import find_events
from .sources import source_of
from .summaries import summarize, summary_of


class WebhookEventAdmin(ReplaysEvents, LedgerAdmin[WebhookEvent]):
    """What happened, how often it was sent, and how it ended."""

    list_display = (
        "event",
        "status_and_attempts",
        "source",
        "received",
        "copies",
        "first_duration",
    )
    list_filter = (StatusFilter, ProviderFilter, EventTypeFilter, ScopeFilter)
    list_fields: ClassVar = (
        "provider", "scope", "event_id", "event_type", "status", "attempts", "received_at",
    )  # fmt: skip
    search_help_text = _("Finds an event by its exact id, its number or its dedupe key.")
    fieldsets = (
        (None, {"fields": (("status_badge", "number"), ("source_link", "scope"), "event_type",
                           "event_id")}),
        (_("Processing"), {"fields": (("received_exactly", "processed_exactly"),
                                      ("next_attempt", "lease_until"),
                                      ("attempts", "handled_by"), "last_error")}),
        (_("Keys and digests"), {
            "classes": ("collapse",),
            "fields": ("dedupe_key", "secondary_key", "content_key", "body_digest",
                       "content_type"),
        }),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEvent]:
        """Events without their bodies, of which a page reads no more than it shows."""
        return super().get_queryset(request).defer("body", "response_body", "lease_token")

    def search(self, rows: QuerySet[WebhookEvent], term: str) -> QuerySet[WebhookEvent]:
        """Events by id, number or dedupe key."""
        return rows.filter(pk__in=find_events(term))

    def prepare(self, rows: Sequence[WebhookEvent]) -> None:
        """Sum up the deliveries of the page's events."""
        summarize(rows)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the bodies, the deliveries, the runs and the steps to an event's page."""
        event = context["original"]
        source = source_of(event.provider)
        context["payload"], context["kept_answer"] = bodies_of(event, source)
        if may_view(request, WebhookDelivery):
            context["deliveries"] = delivery_lines(event, source.deadline)
            context["deliveries_link"] = list_link(WebhookDelivery, event=event.pk)
        if may_view(request, HandlerRun):
            context["runs"] = run_lines(event)
        if may_view(request, HandlerStep):
            context["steps"] = step_lines(event)
        if may_view(request, Replay):
            context["replays"] = replay_lines(event)
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description=_("event"))
    def event(self, event: WebhookEvent) -> SafeString:
        """The type and the provider's id, which link to the event's page."""
        if not event.event_type:
            return two_lines(event.event_id)
        return two_lines(event.event_type, event.event_id)

    @admin.display(description=_("status"))
    def status_badge(self, event: WebhookEvent) -> SafeString:
        """Where the event stands."""
        return choice_badge(event.status, event.get_status_display())

    @admin.display(description=_("status"))
    def status_and_attempts(self, event: WebhookEvent) -> SafeString:
        """Where the event stands, and how often handlers were started."""
        attempts = ngettext("%(number)s attempt", "%(number)s attempts", event.attempts)
        return above(self.status_badge(event), attempts % {"number": event.attempts})

    @admin.display(description=_("provider"))
    def source(self, event: WebhookEvent) -> SafeString:
        """The provider's name and what tells its equal ids apart."""
        return two_lines(summary_of(event).source.label, event.scope)

    @admin.display(description=_("provider"))
    def source_link(self, event: WebhookEvent) -> SafeString:
        """The provider's name, which links to its events."""
        link = list_link(WebhookEvent, provider=event.provider)
        return with_link(link, source_of(event.provider).label)

    @admin.display(description=_("number"))
    def number(self, event: WebhookEvent) -> str:
        """Our own number of the event, which notes and logs name."""
        return f"#{event.pk}"

    @admin.display(description=_("copies"))
    def copies(self, event: WebhookEvent) -> str:
        """How often it came again, and what the provider said of its newest retry."""
        summary = summary_of(event)
        if summary.copies is None:
            return NOTHING
        number = formats.number_format(summary.copies)
        if summary.at_least:
            number = gettext("at least %(number)s") % {"number": number}
        return above(number, retry_text(summary.retry_number, summary.retry_reason))

    @admin.display(description=_("first answer"))
    def first_duration(self, event: WebhookEvent) -> str | SafeString:
        """How long the first delivery took, against the provider's deadline."""
        summary = summary_of(event)
        if summary.first_duration is None:
            return NOTHING
        return duration_text(summary.first_duration, summary.source.deadline)

    @admin.display(description=_("received at"))
    def received(self, event: WebhookEvent) -> str:
        """When the event came first."""
        return time_text(event.received_at)

    @admin.display(description=_("received at"))
    def received_exactly(self, event: WebhookEvent) -> str:
        """When the event came first, to the millisecond."""
        return time_text(event.received_at, exact=True)

    @admin.display(description=_("processed at"))
    def processed_exactly(self, event: WebhookEvent) -> str:
        """When it was finished."""
        return time_text(event.processed_at, exact=True)

    @admin.display(description=_("next attempt at"))
    def next_attempt(self, event: WebhookEvent) -> str:
        """When it is due again."""
        return time_text(event.next_attempt_at, exact=True)

    @admin.display(description=_("lease expires at"))
    def lease_until(self, event: WebhookEvent) -> str:
        """Until when somebody has the claim."""
        return time_text(event.lease_expires_at, exact=True)
