"""Which secrets verify deliveries, and which sources are silent: one page of the admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from ..dispatch.rotation import QUIET, SecretState, secret_states
from ..dispatch.silence import Silence, last_heard, silent_sources
from ..models import SecretUse
from .display import NOTHING, time_text
from .ledger import LedgerAdmin
from .sources import Source, configured_sources


@dataclass(frozen=True)
class SecretLine:
    """One secret, ready to be shown."""

    fingerprint: str
    first_used: str | SafeString
    last_used: str | SafeString
    remark: str
    can_go: bool


@dataclass(frozen=True)
class SourceLines:
    """One configured provider: when it was heard of, and its secrets."""

    label: str
    heard: str | SafeString
    silence: Silence | None
    secrets: list[SecretLine]


class SecretUseAdmin(LedgerAdmin[SecretUse]):
    """The list is by provider and secret: secrets that were never used have no row."""

    search_fields = ()

    def get_urls(self) -> list[URLPattern]:
        """The list alone: a row has no page of its own."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Every configured provider with its secrets, by their fingerprints."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        now = timezone.now()
        silences = {silence.provider: silence for silence in silent_sources(now)}
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Secrets and sources"),
            "opts": self.opts,
            "media": self.media,
            "sources": [
                source_lines(source, silences.get(source.slug)) for source in configured_sources()
            ],
            **(extra_context or {}),
        }
        template = "admin/django_webhook_idempotency/secretuse/change_list.html"
        return TemplateResponse(request, template, context)


def source_lines(source: Source, silence: Silence | None) -> SourceLines:
    """What there is to show of one provider."""
    states = secret_states(source.provider, timezone.now()) if source.provider else []
    return SourceLines(
        label=source.label,
        heard=time_text(last_heard(source.slug)),
        silence=silence,
        secrets=[
            SecretLine(
                state.fingerprint,
                time_text(state.first_used_at),
                time_text(state.last_used_at),
                remark_text(state),
                state.can_go,
            )
            for state in states
        ],
    )


def remark_text(state: SecretState) -> str:
    """What there is to say of a secret, in the viewer's language."""
    if not state.configured:
        return gettext("not in the settings")
    if state.until is not None:
        text = gettext("ends by itself at %(time)s") if state.live else gettext("ended at %(time)s")
        return text % {"time": f"{state.until:%Y-%m-%d %H:%M %Z}".rstrip()}
    if state.can_go:
        text = gettext("the old secret has not been used for %(days)s days: it can go")
        return text % {"days": QUIET.days}
    return NOTHING
