"""Deliveries in the admin: every request with its decision, of no event too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.contrib import admin
from django.db.models import Prefetch, QuerySet, prefetch_related_objects
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..models import WebhookDelivery, WebhookEvent
from .details import header_lines
from .display import (
    NOTHING,
    above,
    badge,
    choice_badge,
    duration_text,
    retry_text,
    time_text,
    two_lines,
)
from .filters import (
    ConflictFilter,
    EventFilter,
    OutcomeFilter,
    ProviderFilter,
    RetryReasonFilter,
)
from .ledger import LedgerAdmin
from .links import list_link, row_link, with_link
from .searching import find_events
from .sources import source_of

_EVENT = Prefetch("event", WebhookEvent.objects.only("provider", "event_id", "event_type"))


class WebhookDeliveryAdmin(LedgerAdmin[WebhookDelivery]):
    """Which requests came, what was decided about each, and how fast it was answered."""

    list_display = (
        "received",
        "outcome_and_retry",
        "source",
        "event_and_type",
        "answer",
        "remarks",
    )
    list_filter = (OutcomeFilter, ProviderFilter, ConflictFilter, RetryReasonFilter, EventFilter)
    list_fields: ClassVar = (
        "event", "provider", "received_at", "outcome", "status", "duration", "retry_number",
        "retry_reason", "conflict", "note",
    )  # fmt: skip
    search_help_text = _("Finds the deliveries of an event by its exact id, number or dedupe key.")
    fieldsets = (
        (None, {"fields": (("outcome_badge", "answered"), "source_link", "event_link", "type",
                           ("received_exactly", "lasted"), "retry", "remarks")}),
        (_("Request"), {"fields": ("header_table", "body_digest", "secret_fingerprint")}),
    )  # fmt: skip

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> WebhookDelivery | None:
        """One delivery with its event, of which no body is read."""
        delivery = super().get_object(request, object_id, from_field)
        if delivery is not None:
            self.prepare([delivery])
        return delivery

    def search(self, rows: QuerySet[WebhookDelivery], term: str) -> QuerySet[WebhookDelivery]:
        """The deliveries of the events with an id, number or dedupe key."""
        return rows.filter(event__in=find_events(term))

    def prepare(self, rows: Sequence[WebhookDelivery]) -> None:
        """Read the events of the page's deliveries in one statement."""
        prefetch_related_objects(list(rows), _EVENT)

    @admin.display(description=_("received at"))
    def received(self, delivery: WebhookDelivery) -> str:
        """When it came; links to the delivery's page."""
        return time_text(delivery.received_at)

    @admin.display(description=_("received at"))
    def received_exactly(self, delivery: WebhookDelivery) -> str:
        """When it came, to the millisecond."""
        return time_text(delivery.received_at, exact=True)

    @admin.display(description=_("outcome"))
    def outcome_badge(self, delivery: WebhookDelivery) -> SafeString:
        """What became of it."""
        return choice_badge(delivery.outcome, delivery.get_outcome_display())

    @admin.display(description=_("outcome"))
    def outcome_and_retry(self, delivery: WebhookDelivery) -> SafeString:
        """What became of it, and what the provider said of its retry."""
        retry = retry_text(delivery.retry_number, delivery.retry_reason)
        return above(self.outcome_badge(delivery), retry)

    @admin.display(description=_("provider"))
    def source(self, delivery: WebhookDelivery) -> str:
        """The provider's name."""
        return source_of(delivery.provider).label

    @admin.display(description=_("provider"))
    def source_link(self, delivery: WebhookDelivery) -> SafeString:
        """The provider's name, which links to its deliveries."""
        link = list_link(WebhookDelivery, provider=delivery.provider)
        return with_link(link, self.source(delivery))

    @admin.display(description=_("event"))
    def event_and_type(self, delivery: WebhookDelivery) -> str:
        """The event's type and id, which link to its page; some deliveries have no event."""
        event = delivery.event
        if event is None:
            return self.event_link(delivery)
        link = row_link(WebhookEvent, event.pk)
        if not event.event_type:
            return two_lines(event.event_id, link=link)
        return two_lines(event.event_type, event.event_id, link)

    @admin.display(description=_("event"))
    def event_link(self, delivery: WebhookDelivery) -> str:
        """The event's id, which links to its page."""
        if delivery.event_id is None:
            return NOTHING
        if delivery.event is None:
            return gettext("#%(number)s, purged") % {"number": delivery.event_id}
        return with_link(row_link(WebhookEvent, delivery.event_id), delivery.event.event_id)

    @admin.display(description=_("event type"))
    def type(self, delivery: WebhookDelivery) -> str:
        """The event's type."""
        return (delivery.event and delivery.event.event_type) or NOTHING

    @admin.display(description=_("answered"))
    def answer(self, delivery: WebhookDelivery) -> SafeString:
        """The status that it was answered with, and how long that took."""
        return above(str(delivery.status), self.lasted(delivery))

    @admin.display(description=_("answered"))
    def answered(self, delivery: WebhookDelivery) -> int:
        """The status that the provider was answered with."""
        return delivery.status

    @admin.display(description=_("duration"))
    def lasted(self, delivery: WebhookDelivery) -> str:
        """How long the answer took, against the provider's deadline."""
        return duration_text(delivery.duration, source_of(delivery.provider).deadline)

    @admin.display(description=_("retry"))
    def retry(self, delivery: WebhookDelivery) -> str:
        """What the provider said of its own retry."""
        return retry_text(delivery.retry_number, delivery.retry_reason) or NOTHING

    @admin.display(description=_("remarks"))
    def remarks(self, delivery: WebhookDelivery) -> str:
        """That its body differs from the stored one, and why it was decided as it was."""
        if delivery.conflict:
            return format_html("{} {}", badge(gettext("body differs"), "bad"), delivery.note)
        return delivery.note or NOTHING

    @admin.display(description=_("headers"))
    def header_table(self, delivery: WebhookDelivery) -> str:
        """The headers that are kept; none of them authenticates."""
        lines = format_html_join(
            "", '<tr><th scope="row">{}</th><td>{}</td></tr>', header_lines(delivery)
        )
        return format_html('<table class="webhook-headers">{}</table>', lines) if lines else NOTHING
