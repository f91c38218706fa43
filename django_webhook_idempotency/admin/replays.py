"""Replay events from the list: chosen there, confirmed with a reason, and told of afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connections
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from .. import ledger
from ..exceptions import StoreUnavailable
from ..models import WebhookEvent
from ..replay import Fate, Line, Replayer, Report, Request
from ..replay.arming import MAX_BY, MAX_REASON
from .links import list_link

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[WebhookEvent]
else:
    _Admin = object

#: Events that one page replays at the most, and seconds after which it begins no other one: where
#: handlers run in the request, they run in this one.
MOST, MAX_SECONDS = 100, 15.0
#: What is read of an event; never its body.
READ = ("provider", "event_id", "event_type", "status", "attempts")
PERMISSION = "django_webhook_idempotency.replay_webhookevent"
TEMPLATE = "admin/django_webhook_idempotency/webhookevent/replay.html"

_SEEN = re.compile(r"([0-9]{1,18}):([a-z]{1,16}):([0-9]{1,9})")


class ReplayForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        label=_("Why"),
        max_length=MAX_REASON,
        help_text=_("Kept with each event, together with your name."),
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True}),
    )


class ReplaysEvents(_Admin):
    """The action and the page that confirms it, for those with the permission to replay."""

    actions = ("replay_selected",)

    def has_replay_permission(self, request: HttpRequest) -> bool:
        """Whether the person may let events run again."""
        return self.has_view_permission(request) and request.user.has_perm(PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        """The page that confirms and replays, before those of single events."""

        def view(request: HttpRequest) -> HttpResponse:
            return self.admin_site.admin_view(self.replay_view)(request)

        update_wrapper(view, self.replay_view)
        # A handler's transaction has to end by itself, and not with this request's.
        view._non_atomic_requests = set(connections)  # type: ignore[attr-defined]
        name = f"{self.opts.app_label}_{self.opts.model_name}_replay"
        return [path("replay/", view, name=name), *super().get_urls()]

    @admin.action(permissions=["replay"], description=_("Replay selected webhook events"))
    def replay_selected(
        self, request: HttpRequest, queryset: QuerySet[WebhookEvent]
    ) -> HttpResponse | None:
        """Show what is chosen, and ask why."""
        events = list(queryset.only(*READ)[: MOST + 1])
        if len(events) > MOST:
            text = gettext("Choose %(most)s events at the most, or use replay_webhooks.")
            self.message_user(request, text % {"most": MOST}, messages.ERROR)
            return None
        return self._page(request, events, ReplayForm())

    def replay_view(self, request: HttpRequest) -> HttpResponse:
        """Replay what was confirmed, as it was seen then."""
        if not self.has_replay_permission(request):
            raise PermissionDenied
        texts = request.POST.getlist("seen") if request.method == "POST" else []
        # A project may show some people some rows only.
        events = _seen(self.get_queryset(request).using(ledger.alias()), texts)
        if not events:
            return HttpResponseRedirect(list_link(WebhookEvent))
        form = ReplayForm(request.POST)
        if not form.is_valid():
            return self._page(request, events, form)
        reason = form.cleaned_data["reason"]
        replayer = Replayer(
            Request(request.user.get_username()[:MAX_BY], reason),
            timeout=MAX_SECONDS,
            max_seconds=MAX_SECONDS,
        )
        try:
            for event, line in zip(events, replayer.lines(events), strict=True):
                self._note(request, event, line, reason)
        except (DatabaseError, StoreUnavailable) as error:
            text = gettext("The replay was stopped: %(error)s")
            self.message_user(request, text % {"error": type(error).__name__}, messages.ERROR)
        self._tell(request, replayer.report)
        return HttpResponseRedirect(list_link(WebhookEvent))

    def _page(
        self, request: HttpRequest, events: Sequence[WebhookEvent], form: ReplayForm
    ) -> HttpResponse:
        options = self.opts
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Replay webhook events"),
            "opts": options,
            "media": self.media,
            "events": events,
            "finished": sum(event.is_finished for event in events),
            "form": form,
            "list_link": list_link(WebhookEvent),
            "action_link": reverse(f"admin:{options.app_label}_{options.model_name}_replay"),
        }
        return TemplateResponse(request, TEMPLATE, context)

    def _note(self, request: HttpRequest, event: WebhookEvent, line: Line, reason: str) -> None:
        """Write down in the event's history that it was replayed."""
        if line.fate not in (Fate.REFUSED, Fate.LEFT):
            text = gettext("Replayed (%(fate)s): %(reason)s")
            self.log_change(request, event, text % {"fate": line.fate.label, "reason": reason})

    def _tell(self, request: HttpRequest, report: Report) -> None:
        """Say what became of the events, and why some were refused."""
        if report.total:
            counts = [f"{fate.label}: {count}" for fate, count in report.counts.items()]
            text = ngettext("%(n)s event. %(counts)s", "%(n)s events. %(counts)s", report.total)
            level = messages.SUCCESS if report.is_good else messages.WARNING
            told = text % {"n": report.total, "counts": ", ".join(counts)}
            self.message_user(request, told, level)
        for line in report.first:
            if line.refusal is not None:
                told = f"#{line.pk} {line.event_id}: {line.refusal.label}"
                self.message_user(request, told, messages.WARNING)


def _seen(rows: QuerySet[WebhookEvent], texts: Iterable[str]) -> list[WebhookEvent]:
    """The events of a confirmed page, out of some rows, as they stood on it."""
    stood = {
        int(found[1]): (found[2], int(found[3]))
        for found in map(_SEEN.fullmatch, list(texts)[:MOST])
        if found
    }
    chosen = rows.filter(pk__in=list(stood)).only(*READ)
    events = sorted(chosen, key=lambda event: event.pk)
    for event in events:
        event.status, event.attempts = stood[event.pk]
    return events
