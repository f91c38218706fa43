"""Deliveries that failed verification in the admin: seen, and verified again."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from ..models import QuarantinedDelivery
from ..recovery.quarantine import Report, reverify_chosen
from .details import kept_body_of
from .display import NOTHING, badge, time_text, two_lines
from .filters import ProviderFilter, ReasonFilter
from .ledger import LedgerAdmin
from .links import list_link, with_link
from .sources import source_of

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds after which the action leaves the rest to the next click: an answer is waited for.
MAX_SECONDS = 20.0


class QuarantinedDeliveryAdmin(LedgerAdmin[QuarantinedDelivery]):
    """What was refused and kept; the headers that it was judged by are never shown."""

    list_display = ("received", "reason_badge", "source", "content_type")
    list_filter = (ProviderFilter, ReasonFilter)
    list_fields: ClassVar = ("received_at", "reason", "provider", "scope", "content_type")
    list_per_page = 200
    search_fields = ()
    actions = ("verify_again",)
    fieldsets = (
        (None, {"fields": (("reason_badge", "number"), ("source_link", "scope"), "view",
                           "received_exactly", "content_type")}),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[QuarantinedDelivery]:
        """Deliveries without their bodies and without their headers."""
        return super().get_queryset(request).defer("body", "signed_headers")

    def has_reverify_permission(self, request: HttpRequest) -> bool:
        """Whether the person may have what was refused processed after all."""
        codename = get_permission_codename("reverify", self.opts)
        return request.user.has_perm(f"{self.opts.app_label}.{codename}")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the body to a delivery's page."""
        delivery = context["original"]
        context["payload"] = kept_body_of(delivery, source_of(delivery.provider))
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.action(description=_("Verify again"), permissions=["reverify"])
    def verify_again(
        self, request: HttpRequest, queryset: QuerySet[QuarantinedDelivery]
    ) -> HttpResponse | None:
        """Ask whether the chosen ones are to be processed if they hold now, and do it."""
        pks = list(queryset.values_list("pk", flat=True))
        confirmed = "confirmed" in request.POST
        try:
            report = reverify_chosen(pks, max_seconds=MAX_SECONDS, dry_run=not confirmed)
        except ImproperlyConfigured as error:
            self.message_user(request, str(error), messages.ERROR)
            return None
        if not confirmed:
            return self._confirmation(request, pks, report)
        logger.warning(
            "webhook quarantine verified again in the admin: user=%s chosen=%s verified=%s",
            request.user.pk,
            len(pks),
            report.verified,
        )
        troubled = report.failed or report.problems or report.looked_at < len(pks)
        level = messages.WARNING if troubled else messages.SUCCESS
        self.message_user(request, report_text(report, len(pks)), level)
        for problem in report.problems:
            self.message_user(request, problem, messages.WARNING)
        return None

    def _confirmation(self, request: HttpRequest, pks: list[int], report: Report) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Verify again"),
            "opts": self.opts,
            "pks": pks,
            "report": report,
            "action_checkbox_name": ACTION_CHECKBOX_NAME,
        }
        template = "admin/django_webhook_idempotency/quarantineddelivery/verify_again.html"
        return TemplateResponse(request, template, context)

    @admin.display(description=_("received at"))
    def received(self, delivery: QuarantinedDelivery) -> str:
        """When it came; links to the delivery's page."""
        return time_text(delivery.received_at)

    @admin.display(description=_("received at"))
    def received_exactly(self, delivery: QuarantinedDelivery) -> str:
        """When it came, to the millisecond: its signature is judged by that time."""
        return time_text(delivery.received_at, exact=True)

    @admin.display(description=_("reason"))
    def reason_badge(self, delivery: QuarantinedDelivery) -> SafeString:
        """Why it was refused."""
        return badge(delivery.reason, "bad")

    @admin.display(description=_("number"))
    def number(self, delivery: QuarantinedDelivery) -> str:
        """Our own number of the delivery."""
        return f"#{delivery.pk}"

    @admin.display(description=_("provider"))
    def source(self, delivery: QuarantinedDelivery) -> SafeString:
        """The provider's name and the scope in the URL."""
        return two_lines(source_of(delivery.provider).label, delivery.scope)

    @admin.display(description=_("provider"))
    def source_link(self, delivery: QuarantinedDelivery) -> SafeString:
        """The provider's name, which links to its quarantine."""
        link = list_link(QuarantinedDelivery, provider=delivery.provider)
        return with_link(link, source_of(delivery.provider).label)

    @admin.display(description=_("view"))
    def view(self, delivery: QuarantinedDelivery) -> str:
        """The view class whose options it is verified with."""
        return delivery.view or NOTHING


def report_text(report: Report, chosen: int) -> str:
    """What became of the chosen ones, in one sentence or two."""
    text = gettext(
        "%(verified)s hold now: %(processed)s processed, %(accepted)s stored for the workers, "
        "%(duplicates)s already known, %(failed)s failed. %(refused)s are still refused, "
        "%(unreadable)s cannot be read."
    ) % {
        "verified": report.verified,
        "processed": report.processed,
        "accepted": report.accepted,
        "duplicates": report.duplicates,
        "failed": report.failed,
        "refused": report.refused,
        "unreadable": report.unreadable,
    }
    left = chosen - report.looked_at + report.postponed
    if left:
        text += " " + gettext("%(number)s are left for the next time.") % {"number": left}
    return text
