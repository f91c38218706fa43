"""docs/recovery.md says what the code does, and its source works against an API over HTTP."""

from __future__ import annotations

import json
import re
import sys
import threading
import types
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from django_webhook_idempotency.models import WebhookEvent
from django_webhook_idempotency.recovery import LINES, recover, recoveries
from django_webhook_idempotency.recovery.configured import Terms
from django_webhook_idempotency.recovery.missing import PAUSE
from tests.app.models import Effect
from tests.test_docs import DOCS, blocks_of, options_of, table_under

PAGE = DOCS / "recovery.md"
TOKEN = "acme_public_and_only_for_the_tests"


class Acme(BaseHTTPRequestHandler):
    """An API with one event to a page, which asks for a pause at first."""

    events: list[dict[str, Any]] = []
    pauses = 1

    def do_GET(self) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401, {})
        if Acme.pauses:
            Acme.pauses -= 1
            return self.answer(429, {}, {"Retry-After": "0"})
        page = int(found[1]) if (found := re.search(r"page=(\d+)", self.path)) else 0
        following = f"http://{self.headers['Host']}/events?page={page + 1}"
        is_last = page + 1 == len(self.events)
        document = {"events": [self.events[page]], "next": None if is_last else following}
        return self.answer(200, document)

    def answer(self, status: int, document: Any, headers: Any = None) -> None:
        body = json.dumps(document).encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def acme(settings: Any, monkeypatch: Any) -> Any:
    """Serve Acme's API, and configure the page's source for it."""
    (block,) = [block for block in blocks_of(PAGE) if block.mark("module")]
    module = types.ModuleType("acme_of_the_docs")
    exec(compile(block.text, str(block), "exec", dont_inherit=True), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    created = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    Acme.events = [
        {"id": f"evt_{number}", "kind": "paid", "created": created, "delivered": number == 0}
        for number in range(3)
    ]
    Acme.pauses = 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), Acme)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    recovery = {
        "SOURCE": f"{module.__name__}.AcmeSource",
        "URL": f"http://127.0.0.1:{server.server_address[1]}/events",
        "TOKEN": TOKEN,
    }
    own = {"CLASS": "django_webhook_idempotency.providers.stripe.Stripe", "SECRETS": ["x"]}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"acme": {**own, "RECOVERY": recovery}}}
    yield recovery
    server.shutdown()
    server.server_close()


@pytest.mark.django_db(transaction=True)
def test_the_source_of_the_page_recovers(acme, handlers, settings):
    handlers.add(lambda event: Effect.objects.create(event_id=event.event_id), "acme")
    (recovery,) = recoveries()
    (report,) = recover(recovery)
    assert (report.found, report.ingested, report.unknown) == (3, 2, 1)
    assert report.problems == []
    assert set(WebhookEvent.objects.values_list("event_id", flat=True)) == {"evt_1", "evt_2"}
    (recovery,) = recoveries()
    (report,) = recover(recovery)
    assert (report.processed, report.ingested) == (2, 0)
    assert Effect.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_the_source_of_the_page_says_what_stands_in_its_way(acme, settings):
    acme["TOKEN"] = "another"
    (recovery,) = recoveries()
    (report,) = recover(recovery)
    assert report.problems == ["Acme answered 401."]


@pytest.mark.once
class TestPage:
    def test_names_every_line_of_the_report(self):
        documented = [row[0] for row in table_under(PAGE, "What the command prints")]
        assert documented == list(LINES.values())

    def test_names_every_option_of_the_command(self):
        rows = table_under(PAGE, "Recovery options")
        documented = {row[0].strip("`").split()[0] for row in rows}
        command = load_command_class("django_webhook_idempotency", "recover_webhooks")
        assert documented == options_of(command) - options_of(BaseCommand())

    def test_names_every_option_of_recovery(self):
        rows = table_under(PAGE, "Options of RECOVERY")
        assert [row[0].strip("`") for row in rows] == ["ATTEMPTS", "ALARM", "SOURCE", "VIEW"]
        assert rows[0][1] == str(Terms.attempts)
        assert rows[1][1] == f"{Terms.alarm.total_seconds() / 3600:g} hours"
        assert PAUSE.total_seconds() == 600

    def test_names_every_option_of_github(self):
        pytest.importorskip("github")
        from django_webhook_idempotency.recovery.github_options import KNOWN

        rows = table_under(PAGE, "GitHub")
        documented = [name.strip("` ") for row in rows for name in row[0].split(",")]
        assert documented == list(KNOWN)
