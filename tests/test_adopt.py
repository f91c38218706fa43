"""`manage.py adopt_webhooks`: what another table remembers is never processed again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_webhook_idempotency.adopt import AdoptError, Adoption, Columns, Scopes, Table, tables
from django_webhook_idempotency.adopt.bulk import insert_many_once
from django_webhook_idempotency.enums import EventStatus
from django_webhook_idempotency.exceptions import Reject
from django_webhook_idempotency.models import WebhookEvent, digest_of
from django_webhook_idempotency.providers import configured_provider
from tests.deliveries import deliver
from tests.replay.test_command import ROOT, own_options

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now().replace(microsecond=0)


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("adopt_webhooks", *arguments, stdout=out)
    return out.getvalue()


def failed(*arguments: str) -> tuple[str, str]:
    """The error that a run ends with, and what it has printed."""
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command("adopt_webhooks", *arguments, stdout=out)
    return str(error.value), out.getvalue()


def report(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json"))
    return found


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def insert(table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    marks = ", ".join(["%s"] * len(rows[0]))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)


@pytest.fixture
def plain() -> Iterator[Callable[..., None]]:
    """Make the table that Sangho's guide shows, and give a function that fills it."""
    execute(
        "CREATE TABLE processed_webhook_events (event_id VARCHAR(50) PRIMARY KEY, "
        "event_type VARCHAR(100) NOT NULL, processed_at TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP)"
    )

    def fill(count: int, hours: int = 1) -> None:
        moment = (NOW - timedelta(hours=hours)).replace(tzinfo=None)
        rows = [(f"evt_{number}", "invoice.paid", moment) for number in range(count)]
        insert("processed_webhook_events", "event_id, event_type, processed_at", rows)

    yield fill
    execute("DROP TABLE processed_webhook_events")


class TestTable:
    def test_ten_thousand_ids_are_duplicates_from_then_on(
        self, client: Client, handlers: Any, plain: Callable[..., None]
    ) -> None:
        calls: list[str] = []
        handlers.add(lambda event: calls.append(event.event_id))
        plain(10_000)
        assert run("sangho", "--from", "table") == "10,000 read, 10,000 adopted, 0 known\n"
        assert WebhookEvent.objects.count() == 10_000
        for number in range(0, 10_000, 500):
            answer = deliver(client, "sangho", f"evt_{number}")
            assert (answer.status_code, answer.json()["status"]) == (200, "duplicate")
        assert calls == []
        assert deliver(client, "sangho", "evt_10000").json()["status"] == "processed"
        event = WebhookEvent.objects.get(event_id="evt_0")
        assert (event.status, event.event_type, event.body) == ("processed", "invoice.paid", None)
        assert event.received_at == event.processed_at == NOW - timedelta(hours=1)
        assert (event.attempts, event.lane, event.scope) == (0, None, "")

    def test_an_interrupted_run_is_begun_again(self, plain: Callable[..., None]) -> None:
        plain(1200)
        source = Table("default", "processed_webhook_events")
        first = Adoption(configured_provider("sangho"))
        steps = first.steps(source.rows())
        next(steps)
        assert WebhookEvent.objects.count() == 500
        found = report("sangho", "--from=table")
        assert (found["adopted"], found["known"]) == (700, 500)
        assert report("sangho", "--from=table")["adopted"] == 0
        assert WebhookEvent.objects.count() == 1200

    def test_what_is_here_stays_as_it_is(
        self, client: Client, handlers: Any, plain: Callable[..., None]
    ) -> None:
        handlers.add(Raises())
        deliver(client, "sangho", "evt_0")
        deliver(client, "sangho", "evt_1")
        before = list(WebhookEvent.objects.order_by("pk").values())
        plain(3)
        found = report("sangho", "--from=table")
        assert (found["adopted"], found["known"], found["unfinished"]) == (1, 2, 2)
        assert list(WebhookEvent.objects.order_by("pk").values()[:2]) == before
        assert before[0]["status"] == EventStatus.DEAD

    def test_a_dry_run_writes_nothing(self, plain: Callable[..., None]) -> None:
        plain(3)
        assert "3 to adopt" in run("sangho", "--from=table", "--dry-run")
        assert not WebhookEvent.objects.exists()

    def test_what_is_older_than_its_key_is_kept(self, plain: Callable[..., None]) -> None:
        plain(3, hours=24 * 91)
        found = report("sangho", "--from=table")
        assert (found["adopted"], found["skipped"]) == (0, {"older than its key is kept": 3})
        assert report("sangho", "--from=table", "--all")["adopted"] == 3

    def test_a_time_that_is_not_known_is_now(self, plain: Callable[..., None]) -> None:
        plain(1)
        execute("UPDATE processed_webhook_events SET processed_at = NULL")
        run("sangho", "--from=table")
        age = timezone.now() - WebhookEvent.objects.get().received_at
        assert age < timedelta(minutes=1)

    def test_its_columns_can_have_any_name(self, plain: Callable[..., None]) -> None:
        execute("CREATE TABLE seen (webhook VARCHAR(9) PRIMARY KEY, tenant VARCHAR(9))")
        try:
            insert("seen", "webhook, tenant", [("a", "x"), ("b", None)])
            run(
                "sangho", "--from=table", "--table=seen", "--id-column=webhook", "--type-column=",
                "--time-column=", "--url-scope-column=tenant",
            )  # fmt: skip
            found = WebhookEvent.objects.order_by("event_id").values_list("event_id", "scope")
            assert list(found) == [("a", "x/"), ("b", "")]
        finally:
            execute("DROP TABLE seen")

    def test_ids_in_a_binary_column_are_ids(
        self, client: Client, handlers: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """VARBINARY is what tells ids apart by case in MariaDB."""
        monkeypatch.setattr(tables, "BATCH", 2)
        calls: list[str] = []
        handlers.add(lambda event: calls.append(event.event_id))
        kind = {"postgresql": "BYTEA", "mysql": "VARBINARY(255)"}.get(connection.vendor, "BLOB")
        execute(f"CREATE TABLE seen (event_id {kind}, event_type {kind}, tenant {kind})")
        try:
            rows = [(b"evt_1", b"a", b"x"), (b"EVT_1\0\0", b"b", b""), (b"evt_3", b"c", None)]
            insert("seen", "event_id, event_type, tenant", [*rows, (b"evt_4", b"d", b"\xff")])
            insert("seen", "event_id, event_type, tenant", [(b"\xff", b"", b"")])
            _, printed = failed(
                "sangho", "--from=table", "--table=seen", "--time-column=",
                "--url-scope-column=tenant",
            )  # fmt: skip
        finally:
            execute("DROP TABLE seen")
        assert "1 skipped: unreadable scope" in printed
        assert "row 5: unreadable id" in printed
        found = WebhookEvent.objects.order_by("event_type")
        assert list(found.values_list("event_id", "event_type", "scope")) == [
            ("evt_1", "a", "x/"),
            ("EVT_1", "b", ""),
            ("evt_3", "c", ""),
        ]
        assert deliver(client, "sangho", "evt_3").json()["status"] == "duplicate"
        assert calls == []

    def test_a_row_without_an_id_is_counted(self) -> None:
        execute("CREATE TABLE seen (event_id VARCHAR(9))")
        try:
            insert("seen", "event_id", [("a",), (None,), (None,)])
            _, printed = failed(
                "sangho", "--from=table", "--table=seen", "--type-column=", "--time-column="
            )
        finally:
            execute("DROP TABLE seen")
        assert "3 read, 1 adopted" in printed
        assert "2 skipped: blank id" in printed
        assert "row 3: blank id" in printed

    @pytest.mark.parametrize("batch", [2, 3, 7])
    def test_an_id_may_stand_there_for_several_scopes(
        self, monkeypatch: pytest.MonkeyPatch, batch: int
    ) -> None:
        monkeypatch.setattr(tables, "BATCH", batch)
        execute("CREATE TABLE seen (event_id VARCHAR(9), hook VARCHAR(9))")
        try:
            pairs = [(f"e{n}", f"h{m}") for n in range(4) for m in range(5)]
            insert("seen", "event_id, hook", pairs)
            source = Table(
                "default", "seen", Columns(type="", time=""), Scopes(scope_column="hook")
            )
            adoption = Adoption(configured_provider("github"))
            for _ in adoption.steps(source.rows()):
                pass
            assert adoption.report.adopted == 20
            found = WebhookEvent.objects.values_list("event_id", "scope")
            assert sorted(found) == sorted(pairs)
        finally:
            execute("DROP TABLE seen")

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["sangho", "--from=table", "--table=nothing"], "The table cannot be read"),
            (["sangho", "--from=table", "--id-column=nothing"], "has no column 'nothing'"),
            (["sangho", "--from=table", '--table=a"b'], "no name of a table"),
            (["sangho", "--from=table", "--database=other"], "'other' is in DATABASES"),
            (["nobody", "--from=table"], "pass --unlisted"),
            (["github", "--from=table"], "hook's id"),
            (["stripe", "--from=table"], "<account>:<mode>"),
            (["slack", "--from=table"], "api_app_id"),
            (["sangho", "--from=djstripe"], "none of 'sangho'"),
            (["stripe", "--from=djstripe", "--scope=x"], "leave --scope"),
            (["sangho", "--from=/nothing/here.csv"], "No such file"),
            (["sangho", "--from=-", "--time-zone=Mars/Phobos"], "no time zone"),
            (["sangho", "--from=-", "--time-zone=../zone"], "no time zone"),
            (["sangho", "--from=-", "--delimiter=\n"], "not one character"),
            (["sangho", "--from=-", '--delimiter="'], "not one character"),
            (["sangho", "--from=-", "--delimiter=::"], "not one character"),
        ],
    )
    def test_what_cannot_be_read_is_said(
        self, plain: Callable[..., None], arguments: list[str], problem: str
    ) -> None:
        plain(1)
        assert problem in failed(*arguments)[0]
        assert not WebhookEvent.objects.exists()


class Raises:
    def __call__(self, event: WebhookEvent) -> None:
        raise Reject()


class TestScopes:
    """With the scope that a delivery has, its copy is known; with any other it is not."""

    def test_github_by_the_hook(self, client: Client, tmp_path: Path) -> None:
        path = sheet(tmp_path, "event_id,hook\nguid-1,1\nguid-2,2\n")
        options = ["--type-column=", "--time-column="]
        run("github", f"--from={path}", "--scope-column=hook", *options)
        assert deliver(client, "github", "guid-1").json()["status"] == "duplicate"
        assert deliver(client, "github", "guid-2").json()["status"] == "ignored"

    def test_stripe_by_account_and_mode_below_the_scope_in_the_url(
        self, client: Client, tmp_path: Path
    ) -> None:
        path = sheet(tmp_path, "event_id,event_type,processed_at\nevt_1,a,\n")
        run("stripe", f"--from={path}", "--scope=:live", "--url-scope=shop/1")
        assert WebhookEvent.objects.get().scope == "shop/1/:live"
        run("stripe", f"--from={path}", "--scope=acct_1:test", "--url-scope=shop")
        more = {"account": "acct_1", "livemode": False}
        answer = deliver(client, "stripe", path="/webhooks/stripe/shop/", **more)
        assert answer.json()["status"] == "duplicate"
        assert deliver(client, "stripe", **more).json()["status"] == "ignored"

    @pytest.mark.parametrize(
        ("slug", "scope", "problem"),
        [
            ("stripe", "live", "is not <account>:<mode>"),
            ("stripe", "acct_1", "is not <account>:<mode>"),
            ("stripe", "acct_1/live", "is not <account>:<mode>"),
            ("stripe", r"acct\:live", "is not <account>:<mode>"),
            ("slack", "", "is not the app's id"),
            ("slack", "A1:T1:C1", "is not the app's id"),
        ],
    )
    def test_one_that_no_delivery_has_is_refused(
        self, tmp_path: Path, slug: str, scope: str, problem: str
    ) -> None:
        path = sheet(tmp_path, f"event_id,own\nevt_1,{scope or ':'}\n")
        options = [slug, f"--from={path}", "--type-column=", "--time-column="]
        assert problem in failed(*options, f"--scope={scope}")[0]
        assert problem in failed(*options, "--scope-column=own")[1]
        assert not WebhookEvent.objects.exists()

    def test_one_that_is_blank_in_its_column_is_a_bad_row(self, tmp_path: Path) -> None:
        path = sheet(tmp_path, "event_id,hook\nguid-1,\nguid-2,12345678\n")
        options = ["--scope-column=hook", "--type-column=", "--time-column="]
        assert "line 2: blank scope" in failed("github", f"--from={path}", *options)[1]
        assert WebhookEvent.objects.get().event_id == "guid-2"
        # Of a provider that does not say what its scope is, nobody knows that it is never blank.
        assert report("sangho", f"--from={path}", *options)["adopted"] == 2

    def test_one_in_the_url_is_among_those_of_the_settings(
        self, tmp_path: Path, settings: Any
    ) -> None:
        own = {"SECRETS": ["whsec_sangho_test_0123456789abcdef"], "SCOPES": ["eu", "us"]}
        settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"sangho": own}}
        path = sheet(tmp_path, "event_id,tenant\nevt_1,ue\nevt_2,eu\nevt_3,\n")
        options = ["sangho", f"--from={path}", "--type-column=", "--time-column="]
        assert "not among SCOPES" in failed(*options, "--url-scope=ue")[0]
        assert "line 2: its scope in the URL" in failed(*options, "--url-scope-column=tenant")[1]
        assert WebhookEvent.objects.count() == 2

    def test_a_provider_that_only_a_decorator_names(self, tmp_path: Path) -> None:
        path = sheet(tmp_path, "event_id,event_type,processed_at\nevt_1,a,\n")
        run("partner", f"--from={path}", "--unlisted")
        assert WebhookEvent.objects.get().provider == "partner"


def sheet(directory: Path, text: str | bytes) -> Path:
    path = directory / "events.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


class TestSheet:
    def test_quotes_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        text = '\ufeff"event_id","event_type",processed_at\r\n'
        text += '"evt,1","a ""b""",2026-01-02\r\n\r\n evt_2 ,c,2026-01-02T03:04:05+01:00\r\n'
        text += '"evt\n3",d,1767322800\r\n'
        found = report("sangho", f"--from={sheet(tmp_path, text)}", "--all")
        assert (found["read"], found["adopted"]) == (3, 3)
        events = WebhookEvent.objects.order_by("received_at", "event_id")
        assert list(events.values_list("event_id", "event_type", "received_at")) == [
            ("evt,1", 'a "b"', datetime(2026, 1, 2, tzinfo=UTC)),
            ("evt_2", "c", datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)),
            ("evt\n3", "d", datetime(2026, 1, 2, 3, tzinfo=UTC)),
        ]

    def test_bad_rows_are_counted_and_the_first_named_without_their_words(
        self, tmp_path: Path
    ) -> None:
        lines = ["event_id,event_type,processed_at", "evt_1,a,", ",secret,", "  ,secret,"]
        lines += [
            "secret",
            "secret,a,,more",
            "secret,a,yesterday",
            "secret,a,99999999999999",
            "evt_2,a,",
        ]
        lines += [",x,"] * 20
        error, printed = failed("sangho", f"--from={sheet(tmp_path, chr(10).join(lines))}")
        assert error == "Some rows could not be read."
        assert "28 read, 2 adopted" in printed
        for line in (
            "22 skipped: blank id",
            "1 skipped: too few cells",
            "1 skipped: too many cells",
            "2 skipped: unreadable time",
            "line 3: blank id",
            "line 7: unreadable time",
        ):
            assert line in printed
        assert "secret" not in printed
        assert printed.count("line ") == 10

    def test_the_same_id_twice_is_one(self, tmp_path: Path) -> None:
        text = "event_id,event_type,processed_at\n" + "evt_1,a,\n" * 1200
        found = report("sangho", f"--from={sheet(tmp_path, text)}")
        assert (found["adopted"], found["known"]) == (1, 1199)

    def test_standard_input_and_another_delimiter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = b"\xef\xbb\xbfevent_id;event_type;processed_at\nevt_1;a;\n"
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=BytesIO(text)))
        assert report("sangho", "--from=-", "--delimiter=;")["adopted"] == 1

    def test_times_of_another_zone(self, tmp_path: Path) -> None:
        text = "event_id,event_type,processed_at\nevt_1,a,2026-07-01 12:00:00\n"
        run("sangho", f"--from={sheet(tmp_path, text)}", "--all", "--time-zone=Europe/Madrid")
        assert WebhookEvent.objects.get().received_at == datetime(2026, 7, 1, 10, tzinfo=UTC)

    def test_a_cell_that_is_long_keeps_no_row_out(self, tmp_path: Path) -> None:
        limit = csv.field_size_limit()
        text = "event_id,event_type,processed_at,body\nevt_1,a,,\nevt_2,a,," + "x" * 200_000
        assert report("sangho", f"--from={sheet(tmp_path, text)}")["adopted"] == 2
        assert csv.field_size_limit() == limit

    def test_what_comes_before_an_error_is_taken_over(self, tmp_path: Path) -> None:
        text = 'event_id,event_type,processed_at\nevt_1,a,\n"evt'
        error, printed = failed("sangho", f"--from={sheet(tmp_path, text)}")
        assert "is no CSV" in error
        assert "1 read, 1 adopted" in printed

    def test_a_time_in_the_future_is_now(self, tmp_path: Path) -> None:
        text = "event_id,event_type,processed_at\nevt_1,a,2199-01-01\n"
        run("sangho", f"--from={sheet(tmp_path, text)}")
        assert WebhookEvent.objects.get().received_at <= timezone.now()

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "'event_id' is not in the first line"),
            ("id,event_type,processed_at\n", "'event_id' is not in the first line"),
            ("event_id,event_id,event_type,processed_at\n", "'event_id' is twice"),
            ('event_id,event_type,processed_at\n"evt', "is no CSV"),
            (b"event_id,event_type,processed_at\n\xff\xfe,a,\n", "not UTF-8"),
        ],
    )
    def test_a_file_that_is_none(self, tmp_path: Path, text: str | bytes, problem: str) -> None:
        assert problem in failed("sangho", f"--from={sheet(tmp_path, text)}")[0]


class TestDjStripe:
    """Its tables as its migrations make them, reduced to the columns that matter."""

    @pytest.fixture
    def tables(self) -> Iterator[None]:
        json_type = {"postgresql": "jsonb"}.get(connection.vendor, "json")
        execute(
            "CREATE TABLE djstripe_account (djstripe_id BIGINT PRIMARY KEY, id VARCHAR(255))",
            "CREATE TABLE djstripe_event (djstripe_id BIGINT PRIMARY KEY, id VARCHAR(255) UNIQUE, "
            "type VARCHAR(250), created TIMESTAMP NULL, livemode BOOLEAN NULL, "
            f"djstripe_owner_account_id VARCHAR(255) NULL, stripe_data {json_type} NOT NULL)",
        )
        yield
        execute("DROP TABLE djstripe_event", "DROP TABLE djstripe_account")

    def add(self, number: int, owner: Any, live: bool | None, **document: Any) -> None:
        if document:
            document = {"id": f"evt_{number}", "object": "event", "type": "a.b", **document}
        moment = NOW.replace(tzinfo=None)
        row = (number, f"evt_{number}", "a.b", moment, live, owner, json.dumps(document))
        columns = "djstripe_id, id, type, created, livemode, djstripe_owner_account_id, stripe_data"
        insert("djstripe_event", columns, [row])

    @pytest.mark.usefixtures("tables")
    def test_the_scope_is_that_of_a_delivery(self, client: Client) -> None:
        shapes: list[dict[str, Any]] = [
            {"livemode": True},
            {"livemode": False, "account": "acct_2"},
            {"livemode": True, "context": "acct:3"},
            {"account": None},
        ]
        for number, shape in enumerate(shapes):
            self.add(number, "acct_own", shape.get("livemode"), **shape)
        assert report("stripe", "--from=djstripe")["adopted"] == 4
        for number, shape in enumerate(shapes):
            answer = deliver(client, "stripe", f"evt_{number}", "a.b", **shape)
            assert answer.json()["status"] == "duplicate", shape
        assert WebhookEvent.objects.filter(received_at=NOW, event_type="a.b").count() == 4

    @pytest.mark.usefixtures("tables")
    def test_rows_without_the_whole_event(self, client: Client) -> None:
        self.add(1, "acct_own", True)
        self.add(2, "acct_2", False)
        self.add(3, None, None)
        _, printed = failed("stripe", "--from=djstripe")
        assert "2 skipped: its account may be your own or a connected one" in printed
        assert "1 adopted" in printed
        found = report("stripe", "--from=djstripe", "--own-account=acct_own", "--url-scope=shop")
        assert found["adopted"] == 3
        scopes = WebhookEvent.objects.order_by("event_id", "-scope").values_list("scope", flat=True)
        assert list(scopes) == ["shop/:live", "shop/acct_2:test", "shop/:", ":"]
        path = "/webhooks/stripe/shop/"
        own = deliver(client, "stripe", "evt_1", path=path, livemode=True)
        other = deliver(client, "stripe", "evt_2", path=path, livemode=False, account="acct_2")
        assert {own.json()["status"], other.json()["status"]} == {"duplicate"}

    @pytest.mark.usefixtures("tables")
    def test_a_foreign_key_to_its_own_numbers_and_no_document(self) -> None:
        execute("DROP TABLE djstripe_event")
        execute(
            "CREATE TABLE djstripe_event (id VARCHAR(255) PRIMARY KEY, type VARCHAR(250), "
            "created TIMESTAMP NULL, livemode BOOLEAN NULL, djstripe_owner_account_id BIGINT)"
        )
        insert("djstripe_account", "djstripe_id, id", [(7, "acct_own"), (8, "acct_2")])
        columns = "id, type, livemode, djstripe_owner_account_id"
        rows = [("evt_1", "a", True, 7), ("evt_2", "a", True, 8)]
        insert("djstripe_event", columns, rows)
        assert report("stripe", "--from=djstripe", "--own-account=acct_own")["adopted"] == 2
        scopes = WebhookEvent.objects.order_by("event_id").values_list("scope", flat=True)
        assert list(scopes) == [":live", "acct_2:live"]

    def test_without_its_table(self) -> None:
        assert "djstripe_event" in failed("stripe", "--from=djstripe")[0]


def test_a_key_that_is_taken_meanwhile_is_known() -> None:
    """Between the look for what is there and the insert."""
    made = [
        WebhookEvent(
            provider="sangho", event_id=f"evt_{n}", dedupe_key=digest_of(str(n)), status="processed"
        )
        for n in range(40)
    ]
    made[7].save()
    made[7].pk = None
    assert insert_many_once(connection, made) == 39
    assert WebhookEvent.objects.count() == 40
    assert insert_many_once(connection, made) == 0


def test_a_source_that_is_no_table_says_so() -> None:
    with pytest.raises(AdoptError, match="no name of a table"):
        list(Table("default", "").rows())


def test_the_page_names_every_option() -> None:
    command = load_command_class("django_webhook_idempotency", "adopt_webhooks")
    text = (ROOT / "docs/adopt.md").read_text()
    assert [name for name in own_options(command) if f"`{name}" not in text] == []
