"""Filters that never ask the table which values it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..dispatch.quarantine import VERIFIABLE
from ..enums import EventStatus, Outcome
from .seeking import MAX_KEY
from .sources import configured_sources

ANY = "*"


class Filter(SimpleListFilter):
    """One condition on a list, under the parameter of its column's name."""

    #: Whether so few rows match that they need no bound.
    narrow: ClassVar[bool] = False
    parameter_name: str

    @property
    def text(self) -> str:
        """What is asked for, empty if nothing. Raises IncorrectLookupParameters."""
        text = (self.value() or "").strip()
        if "\x00" in text:
            raise IncorrectLookupParameters
        return text

    @property
    def is_equality(self) -> bool:
        """Whether it compares a column with one value, as an index can."""
        return bool(self.text)

    @property
    def condition(self) -> Q:
        """What holds for the rows that have the value. Raises IncorrectLookupParameters."""
        return Q(**{self.parameter_name: self.text}) if self.text else Q()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that have the value."""
        return queryset.filter(self.condition)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The values that are offered."""
        return []


class StatusFilter(Filter):
    """Events by status."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Every status."""
        return list(EventStatus.choices)


class OutcomeFilter(Filter):
    """Deliveries by outcome."""

    title = _("outcome")
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Every outcome."""
        return list(Outcome.choices)


class ProviderFilter(Filter):
    """Rows of a provider that the settings name, or of another that a link asks for."""

    title = _("provider")
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The configured providers."""
        choices: list[tuple[str, Any]] = [
            (source.slug, source.label) for source in configured_sources()
        ]
        if self.text and self.text not in dict(choices):
            choices.append((self.text, self.text))
        return choices


class ReasonFilter(Filter):
    """Quarantined deliveries by the reason that they were refused for."""

    title = _("reason")
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Every reason that a delivery is kept for."""
        return [(str(reason), str(reason)) for reason in sorted(VERIFIABLE)]


class ConflictFilter(Filter):
    """Deliveries whose body differs from the stored one."""

    title = _("body")
    parameter_name = "conflict"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Only those; the others are all the rest."""
        return [("1", _("differs from the stored one"))]

    @property
    def condition(self) -> Q:
        """What holds for the rows that are marked. Raises IncorrectLookupParameters."""
        if self.text not in ("", "1"):
            raise IncorrectLookupParameters
        return Q(conflict=True) if self.text else Q()


class EventFilter(Filter):
    """Deliveries of one event, by its number; seen only where a link asks for it."""

    title = _("event")
    parameter_name = "event"
    narrow = True

    @property
    def text(self) -> str:
        """The number, as digits. Raises IncorrectLookupParameters for anything else."""
        text = super().text
        if text and not (text.isascii() and text.isdigit() and int(text) <= MAX_KEY):
            raise IncorrectLookupParameters
        return text

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The event that is asked for."""
        return [(self.text, f"#{self.text}")] if self.text else []


class TextFilter(Filter):
    """A typed value, exact, or with `*` at its end the start of one; `*` alone is any text."""

    template = "admin/django_webhook_idempotency/text_filter.html"

    @property
    def is_equality(self) -> bool:
        """Whether the value is exact."""
        return bool(self.text) and not self.text.endswith(ANY)

    def has_output(self) -> bool:
        """Always: it is typed, not chosen."""
        return True

    @property
    def condition(self) -> Q:
        """What holds for the rows that have the value, or start with it."""
        if self.text == ANY:
            return ~Q(**{self.parameter_name: ""})
        if self.text.endswith(ANY):
            return Q(**{f"{self.parameter_name}__startswith": self.text[:-1]})
        return super().condition

    def choices(self, changelist: Any) -> Iterator[Any]:
        """What the form needs: what it keeps of the query string, and the way to clear it."""
        yield {
            "kept": [
                (name, value)
                for name, value in changelist.params.items()
                if name != self.parameter_name
            ],
            "query_string": changelist.get_query_string(remove=[self.parameter_name]),
        }


class EventTypeFilter(TextFilter):
    """Events by type."""

    title = _("event type")
    parameter_name = "event_type"


class ScopeFilter(TextFilter):
    """Events by scope."""

    title = _("scope")
    parameter_name = "scope"


class RetryReasonFilter(TextFilter):
    """Deliveries by the reason that the provider gave for its retry."""

    title = _("retry reason")
    parameter_name = "retry_reason"
