"""WB-088, WB-096: no list page counts or scans a big table, or reads a body.

Every statement of every list page is explained by the database that the tests run on, over
60,000 events and 100,000 deliveries. PostgreSQL and MariaDB also say how many rows they read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management.color import no_style
from django.db import connection
from django.test import Client

from django_webhook_idempotency.admin.ledger import LedgerAdmin
from django_webhook_idempotency.models import HandlerRun, WebhookDelivery, WebhookEvent
from tests.admin.big_tables import DELIVERY_ROWS, EVENT_ROWS, START, deliveries, events, insert
from tests.admin.conftest import DELIVERIES, EVENTS, address

pytestmark = pytest.mark.slow

PAGE = 50
#: What one page looks through here if no index serves it; the tables have many times that.
LOOK = 1_000
#: Rows that a statement may read where an index serves the page, and where it looks through
#: rows: a planner may find it cheaper to read some more of them in a row.
SERVED_ROWS, LOOK_ROWS = 500, 2 * LOOK
TABLES = {model._meta.db_table for model in (WebhookEvent, WebhookDelivery, HandlerRun)}
BODIES = re.compile(r'[`"](body|response_body|traceback|headers)[`"]')

Statement = tuple[str, Any]


@pytest.fixture(scope="module", autouse=True)
def big_tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Fill the tables once for this module, and let the database look at them."""
    with django_db_blocker.unblock():
        insert(WebhookEvent, events())
        first = WebhookEvent.objects.order_by("pk").values_list("pk", flat=True)[0]
        insert(WebhookDelivery, deliveries(first))
        # No VACUUM: where PostgreSQL expects that an index alone answers nothing, it is most
        # tempted to read in another order. SQLite is taken as it is: hardly anybody runs ANALYZE.
        word = {"postgresql": "ANALYZE", "mysql": "ANALYZE TABLE"}.get(connection.vendor)
        with connection.cursor() as cursor:
            for table in TABLES if word else ():
                cursor.execute(f"{word} {table}")
                cursor.fetchall() if cursor.description else None
        yield
        flush = connection.ops.sql_flush(no_style(), sorted(TABLES))
        connection.ops.execute_sql_flush(flush)


@pytest.fixture
def statements(db: None, client: Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that opens a list page and returns its statements on the big tables."""
    monkeypatch.setattr(LedgerAdmin, "look_limit", LOOK)
    client.force_login(User.objects.create_superuser("admin"))

    def open_page(model: str, parameters: dict[str, Any]) -> tuple[Any, list[Statement]]:
        seen: list[Statement] = []

        def record(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if any(table in sql for table in TABLES):
                seen.append((sql, params))
            return execute(sql, params, many, context)

        with connection.execute_wrapper(record):
            response = client.get(address(model), parameters)
        assert response.status_code == 200
        return response.context["cl"], seen

    return open_page


def explained(sql: str, params: Any, prefix: str) -> list[Any]:
    """What a database says of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(f"{prefix} {sql}", params)
        return list(cursor.fetchall())


def check(sql: str, params: Any, most: int = SERVED_ROWS) -> None:
    """Fail if the statement counts, reads a body, scans a big table, or reads too many rows."""
    assert "COUNT(" not in sql.upper()
    assert "DISTINCT" not in sql.upper()
    assert not BODIES.search(sql), sql
    {"postgresql": check_postgresql, "sqlite": check_sqlite, "mysql": check_mysql}[
        connection.vendor
    ](sql, params, most)


def check_postgresql(sql: str, params: Any, most: int) -> None:
    plan = explained(sql, params, "EXPLAIN (ANALYZE, FORMAT JSON)")[0][0][0]["Plan"]
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node.get("Relation Name") not in TABLES:
            continue
        assert node["Node Type"] != "Seq Scan", (sql, params, node)
        removed = node.get("Rows Removed by Filter", 0)
        read = (node["Actual Rows"] + removed) * node["Actual Loops"]
        assert read <= most, (sql, params, node)


def check_sqlite(sql: str, params: Any, most: int) -> None:
    for *_, detail in explained(sql, params, "EXPLAIN QUERY PLAN"):
        assert not re.match(r"SCAN (?!.*USING)", detail), (sql, params, detail)


def check_mysql(sql: str, params: Any, most: int) -> None:
    nodes = [json.loads(explained(sql, params, "ANALYZE FORMAT=JSON")[0][0])]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        if not isinstance(node, dict):
            continue
        nodes += node.values()
        if node.get("table_name") in TABLES:
            assert node["access_type"] != "ALL", (sql, params, node)
            read = (node["r_rows"] or 0) * node["r_loops"]
            assert read <= most, (sql, params, node)


def month(number: int) -> dict[str, str]:
    """One month's dates."""
    start = (START + timedelta(days=number)).date().replace(day=1)
    end = (start + timedelta(days=32)).replace(day=1)
    return {"received_at__gte": str(start), "received_at__lt": str(end)}


YEAR = {"received_at__gte": f"{START.year}-01-01", "received_at__lt": f"{START.year + 1}-01-01"}
DAY = {
    "received_at__gte": str((START + timedelta(days=400)).date()),
    "received_at__lt": str((START + timedelta(days=401)).date()),
}
ANYWHERE: list[dict[str, str]] = [
    {},
    {"provider": "slack"},
    {"provider": "stripe"},
    {"provider": "silent"},
    {"provider": "nobody"},
    {"q": "evt_31234"},
    {"q": "nobody"},
    {"q": f"{31234:064x}"},
    YEAR,
    month(0),
    month(300),
    DAY,
    {"received_at__gte": "1999-01-01", "received_at__lt": "1999-02-01"},
    {"provider": "slack", **month(300)},
]
OF_EVENTS: list[dict[str, str]] = [
    {"status": "processed"},
    {"status": "dead"},
    {"status": "failed"},
    {"status": "ignored"},
    {"status": "ignored", "event_type": "rare.happened"},
    {"event_type": "kind_7.happened"},
    {"event_type": "rare.*"},
    {"event_type": "nothing"},
    {"event_type": "*"},
    {"scope": "tenant_7"},
    {"scope": "tenant_7", "status": "processed", "provider": "stripe"},
    {"status": "dead", "provider": "github"},
    {"status": "dead", **YEAR},
    {"event_type": "rare.happened", **month(300)},
    {"q": "evt_31234", "event_type": "rare.happened"},
]
OF_DELIVERIES: list[dict[str, str]] = [
    {"outcome": "processed"},
    {"outcome": "malformed"},
    {"outcome": "too_large"},
    {"outcome": "malformed", "provider": "slack"},
    {"outcome": "duplicate", "provider": "slack"},
    {"conflict": "1"},
    {"conflict": "1", "provider": "stripe"},
    {"retry_reason": "http_timeout"},
    {"retry_reason": "http*"},
    {"retry_reason": "*"},
    {"outcome": "malformed", **YEAR},
    {"retry_reason": "http_timeout", **month(300)},
    {"event": "1"},
]
PAGES = [(EVENTS, one) for one in ANYWHERE + OF_EVENTS] + [
    (DELIVERIES, one) for one in ANYWHERE + OF_DELIVERIES
]


@pytest.mark.parametrize(("model", "parameters"), PAGES)
def test_no_page_scans(statements: Any, model: str, parameters: dict[str, str]) -> None:
    page, seen = statements(model, parameters)
    most = SERVED_ROWS if page.seek.walked is None else LOOK_ROWS
    assert len(seen) >= 3
    for sql, params in seen:
        check(sql, params, most)
    for name in ("older", "newer"):
        place = page.page.older if name == "older" else page.page.newer
        if place is not None:
            page, seen = statements(model, {**parameters, name: str(place)})
            for sql, params in seen:
                check(sql, params, most)


@pytest.mark.parametrize(("model", "rows"), [(EVENTS, EVENT_ROWS), (DELIVERIES, DELIVERY_ROWS)])
def test_a_page_far_down_costs_the_same(statements: Any, model: str, rows: int) -> None:
    table: Any = {EVENTS: WebhookEvent, DELIVERIES: WebhookDelivery}[model]
    key = table.objects.order_by("pk").values_list("pk", flat=True)[rows // 10]
    page, seen = statements(model, {"older": key})
    assert len(page.result_list) == PAGE
    for sql, params in seen:
        check(sql, params)
    assert not any("OFFSET" in sql for sql, _ in seen)


def test_the_check_itself_sees_a_scan(db: None) -> None:
    rows = WebhookEvent.objects.filter(last_error="x").only("pk").order_by("scope")
    with pytest.raises(AssertionError):
        check(*rows.query.sql_with_params())
    with pytest.raises(AssertionError):
        check(*WebhookEvent.objects.order_by("-pk")[:5].query.sql_with_params())
