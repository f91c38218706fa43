"""The list page: one page read from a place onwards, nothing counted, nothing scanned."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from .dates import BEFORE, FROM, PARAMETERS, DrillDown, Span, drill_down, local_day
from .filters import Filter
from .seeking import TIME, Page, Place, Seek, served, unweighed

if TYPE_CHECKING:
    from .ledger import LedgerAdmin

OLDER, NEWER = "older", "newer"


class SeekingChangeList(ChangeList):
    """Django's list page with a page that is sought instead of counted to."""

    model_admin: LedgerAdmin[Any]

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Read the place and the dates. Raises IncorrectLookupParameters."""
        try:
            self.span = Span.parse(request.GET.dict())
            self.older = NEWER not in request.GET
            text = request.GET.get(OLDER if self.older else NEWER, "")
            self.place = Place.parse(text, by_time=bool(self.span)) if text else None
        except ValueError as error:
            raise IncorrectLookupParameters(error) from error
        super().__init__(request, *args, **kwargs)

    def get_filters_params(self, params: Any = None) -> Any:
        """The parameters that filters read: neither the dates nor the place."""
        rest = super().get_filters_params(params)
        return {name: rest[name] for name in rest if name not in PARAMETERS}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Every row that matches, and how to read a page of them."""
        for name in (OLDER, NEWER):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        specs, self.has_filters, _, _, self.has_active_filters = self.get_filters(request)
        self.filter_specs = specs
        self.clear_all_filters_qs = self.get_query_string(
            remove=[name for spec in specs for name in spec.expected_parameters() if name]
        )
        active = [spec for spec in specs if isinstance(spec, Filter) and spec.text]
        everything = self.root_queryset.filter(**self.span.conditions)
        equal = {spec.parameter_name: spec.text for spec in active if spec.is_equality}
        leading = served(self.model, equal, TIME if self.span else "id")
        asked = Q()
        for spec in active:
            if spec.parameter_name not in leading:
                asked &= spec.condition
        is_narrow = bool(self.query) or any(spec.narrow for spec in active)
        is_served = len(leading) == len(active)
        is_walked = not (is_narrow or is_served)
        rest = everything.only(*self.model_admin.list_fields)
        rest = rest.filter(unweighed(asked, rest.db) if is_walked else asked)
        if self.query:
            rest = self.model_admin.search(rest, self.query)
        self.seek = Seek(
            rest,
            everything if is_walked else None,
            {name: equal[name] for name in leading},
            by_time=bool(self.span),
            size=self.list_per_page,
            limit=self.model_admin.look_limit,
        )
        return rest.filter(**self.seek.fixed).order_by("-pk")

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and what its rows need besides."""
        self.page: Page = self.seek.page(self.place, older=self.older)
        self.model_admin.prepare(self.page.rows)
        self.result_list = self.page.rows
        # Nothing is counted: what Django's templates take for totals is what is on the page.
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = True
        self.multi_page = False
        self.paginator = Paginator(self.page.rows, self.list_per_page)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """Newest first, whatever the query string asks for: no other order has an index."""
        return ["-pk"]

    @property
    def older_link(self) -> str:
        """The next page's query string, empty on the last one."""
        return self._link_to(OLDER, self.page.older)

    @property
    def newer_link(self) -> str:
        """The previous page's query string, empty on the first one."""
        return self._link_to(NEWER, self.page.newer)

    @property
    def newest_link(self) -> str:
        """The first page's query string, empty on it."""
        return self.get_query_string() if self.page.newer else ""

    def _link_to(self, name: str, place: Place | None) -> str:
        return "" if place is None else self.get_query_string({name: str(place)})

    @property
    def drill_down(self) -> DrillDown | None:
        """The date drill-down, between the first and the last row of the table."""
        times = self.root_queryset.order_by(TIME).values_list(TIME, flat=True)
        first, last = times.first(), times.last()
        if first is None or last is None:
            return None
        return drill_down(self.span, local_day(first), local_day(last), self._link_to_dates)

    def _link_to_dates(self, start: date | None, end: date | None) -> str:
        bounds: dict[str, Any] = {
            FROM: start and start.isoformat(),
            BEFORE: end and end.isoformat(),
        }
        return self.get_query_string(bounds)
