"""What both lists of the ledger have in common: they are read, fast, and by whom it is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from .changelist import SeekingChangeList
from .display import NOTHING

Row = TypeVar("Row", bound=Model)

if TYPE_CHECKING:

    class _ModelAdmin(admin.ModelAdmin[Row]):
        pass
else:

    class _ModelAdmin(admin.ModelAdmin, Generic[Row]):
        pass


class LedgerAdmin(_ModelAdmin[Row]):
    """Read-only by permission: whoever may view sees all of it, and nobody edits history."""

    #: The columns that a list reads; never a body.
    list_fields: ClassVar[tuple[str, ...]] = ()
    #: How many rows one page looks through for what no index serves.
    look_limit: int = 50_000
    list_per_page = 50
    sortable_by = ()
    search_fields: ClassVar[list[str] | tuple[str, ...]] = ("event_id",)
    empty_value_display = NOTHING
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css: ClassVar = {"all": ["django_webhook_idempotency/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Nobody edits what happened."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Rows go by `purge_webhooks`, which knows what must stay."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[SeekingChangeList]:
        """The list page that counts and scans nothing."""
        return SeekingChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Nothing but the filters: a lookup written by hand could scan the table."""
        return lookup in {getattr(spec, "parameter_name", None) for spec in self.list_filter}

    def search(self, rows: QuerySet[Row], term: str) -> QuerySet[Row]:
        """The rows that a search for an id finds."""
        raise TypeError(f"{type(self).__name__} must say what a search finds.")

    def prepare(self, rows: Sequence[Row]) -> None:
        """Read what the rows of one page show besides their own columns."""
