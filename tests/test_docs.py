"""What the README and the documentation say is compiled, run and compared with the code."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from django_webhook_idempotency import conf as conf_module
from django_webhook_idempotency import signals
from django_webhook_idempotency.checks import IDS
from django_webhook_idempotency.entry import NOT_ON_VIEWS
from django_webhook_idempotency.handlers import registry
from django_webhook_idempotency.providers import BUILT_IN, Provider, configured_provider
from django_webhook_idempotency.providers import provider_class as class_of
from django_webhook_idempotency.providers.options import COMMON, STRUCTURAL
from django_webhook_idempotency.schedule import PERIODIC

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]

_BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ENVIRONMENT = re.compile(r"os\.environ\[\"(\w+)\"\]")


@dataclass(frozen=True)
class Block:
    """A fenced block; `language` is the first word of its info string, `marks` are the others."""

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def mark(self, name: str) -> str:
        """The value of the mark `name=value`, empty without one."""
        values = [mark.partition("=")[2] for mark in self.marks if mark.startswith(f"{name}=")]
        return values[0] if values else ""


def blocks_of(page: Path) -> list[Block]:
    source = page.read_text()
    found = []
    for match in _BLOCK.finditer(source):
        language, *marks = match["info"].split()
        line = source.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, language, tuple(marks), match["text"]))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
#: Blocks that belong to a project are run there, by `TestNewcomer`.
LONE = [block for block in PYTHON if not (block.mark("file") or block.mark("append"))]


class _Anything(type):
    """Stands for a class of the reader's own project."""

    def __getattr__(cls, name: str) -> Any:
        return lambda *args, **kwargs: None


class ReadersModule(types.ModuleType):
    """A module of the reader's own project, which the snippets import from."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (Provider,) if name.endswith("Provider") else (), {})


@pytest.fixture
def readers_project(monkeypatch) -> Iterator[None]:
    """Let snippets import `shop` and `acme`, and forget the handlers that they register."""
    for name in ("shop", "acme"):
        for part in ("", ".models", ".webhooks", ".mail"):
            monkeypatch.setitem(sys.modules, name + part, ReadersModule(name + part))
    before = dict(registry._handlers)
    yield
    registry._handlers = before


class TestSnippets:
    """Python in the documentation."""

    @pytest.mark.parametrize("block", LONE, ids=str)
    def test_runs(self, block, readers_project, monkeypatch):
        """It runs, and the settings in it are valid ones."""
        for name in _ENVIRONMENT.findall(block.text):
            monkeypatch.setenv(name, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
        if block.mark("module"):
            module = types.ModuleType(block.mark("module"))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            namespace = module.__dict__
        else:
            namespace = {"__name__": "shop.webhooks", "BASE_DIR": ROOT}
        code = compile(block.text, str(block), "exec", dont_inherit=True)
        exec(code, namespace)
        configured = namespace.get(conf_module.SETTING)
        if configured is not None:
            monkeypatch.setattr(settings, conf_module.SETTING, configured)
            for slug in configured["PROVIDERS"]:
                configured_provider(slug, default=Provider).live_secrets()

    @pytest.mark.parametrize("block", PYTHON, ids=str)
    def test_says_what_it_is(self, block):
        """A mark with a typing error would leave a block out of every test."""
        assert all(re.fullmatch(r"(file|append|module)=\S+", mark) for mark in block.marks)

    def test_are_found(self):
        """A page that is fenced in another way would pass unread."""
        fences = sum(page.read_text().count("\n```python") for page in PAGES)
        assert len(PYTHON) == fences > 20


def table_under(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its header."""
    text = page.read_text()
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"{page.name} has no heading {heading!r}"
    lines = text[start.end() :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def value_in(cell: str) -> Any:
    """The Python value that a cell holds in backticks."""
    literal = re.fullmatch(r"`(.+)`", cell)
    assert literal, f"{cell!r} is not one value in backticks"
    return eval(literal[1], {"timedelta": timedelta, "frozenset": frozenset})


def provider_defaults(slug: str) -> dict[str, Any]:
    """The defaults of the options that a provider adds or changes."""
    cls = class_of(slug)
    return {
        name.upper(): getattr(cls, name)
        for name in cls.options
        if name not in COMMON or getattr(cls, name) != getattr(Provider, name)
    }


class TestSettingsPage:
    """docs/settings.md names every option with its default, and no other."""

    page = DOCS / "settings.md"

    def test_options_of_every_provider(self):
        rows = table_under(self.page, "Options of every provider")
        documented = {row[0].strip("`"): value_in(row[2]) for row in rows}
        assert documented == {name.upper(): getattr(Provider, name) for name in COMMON}

    def test_where_an_option_may_stand(self):
        rows = table_under(self.page, "Options of every provider")
        in_settings_only = {row[0].strip("`").lower() for row in rows if row[3] != "anywhere"}
        assert in_settings_only == NOT_ON_VIEWS

    def test_options_of_one_provider(self):
        rows = table_under(self.page, "Options and defaults of one provider")
        documented: dict[str, dict[str, Any]] = {}
        for provider, option, _, default, _ in rows:
            documented.setdefault(provider.strip("`"), {})[option.strip("`")] = value_in(default)
        assert documented == {
            slug: defaults for slug in BUILT_IN if (defaults := provider_defaults(slug))
        }

    def test_settings_of_the_project(self, monkeypatch):
        monkeypatch.setattr(settings, conf_module.SETTING, {})
        rows = table_under(self.page, "Settings of the project")
        documented = {row[0].strip("`"): row[2] for row in rows}
        assert set(documented) == conf_module.PROJECT_SETTINGS
        for name, default in documented.items():
            if hasattr(conf_module.Settings, name.lower()):
                assert value_in(default) == getattr(conf_module.conf, name.lower())

    def test_entries_that_are_no_options(self):
        text = self.page.read_text()
        assert all(f"`{name}`" in text for name in STRUCTURAL)


class TestProvidersPage:
    """docs/providers.md and the classes say the same."""

    @pytest.mark.parametrize("slug", sorted(BUILT_IN))
    def test_facts(self, slug):
        provider = class_of(slug)(slug)
        rows = table_under(DOCS / "providers.md", "At a glance")
        row = next(row for row in rows if row[0] == f"`{slug}`")
        retries, resends, deadline, in_progress, stop = map(value_in, row[1:])
        assert retries == provider.retry_window
        assert resends == provider.resend_window
        assert deadline == provider.deadline
        assert in_progress == provider.in_progress_status
        assert stop == provider.stop_retry_status

    @pytest.mark.parametrize("slug", sorted(BUILT_IN))
    def test_names_the_vendors_pages(self, slug):
        text = (DOCS / "providers.md").read_text()
        assert [url for url in class_of(slug).docs if url not in text] == []


def test_checks_page_names_every_check():
    documented = [row[0].strip("`") for row in table_under(DOCS / "checks.md", "System checks")]
    assert documented == list(IDS)


def options_of(command: BaseCommand) -> set[str]:
    actions = command.create_parser("", "")._actions
    return {name for action in actions for name in action.option_strings}


@pytest.mark.parametrize(
    ("heading", "name"),
    [("Purging options", "purge_webhooks"), ("Status options", "webhooks_status")],
)
def test_operations_page_names_every_option(heading, name):
    rows = table_under(DOCS / "operations.md", heading)
    documented = {row[0].strip("`").split()[0] for row in rows}
    command = load_command_class("django_webhook_idempotency", name)
    assert documented == options_of(command) - options_of(BaseCommand())


def test_workers_page_names_every_option_of_the_worker():
    rows = table_under(DOCS / "workers.md", "Worker options")
    documented = {row[0].strip("`").split()[0] for row in rows}
    command = load_command_class("django_webhook_idempotency", "webhook_worker")
    assert documented == options_of(command) - options_of(BaseCommand())


def test_celery_page_names_every_option_and_task():
    rows = table_under(DOCS / "celery.md", "Schedule options")
    documented = {row[0].strip("`") for row in rows}
    command = load_command_class("django_webhook_idempotency", "schedule_webhooks")
    assert documented == options_of(command) - options_of(BaseCommand())
    periodic = [row[0].strip("`") for row in table_under(DOCS / "celery.md", "Beat")]
    assert periodic == [each.task for each in PERIODIC]


def test_handlers_page_names_every_signal():
    documented = {row[0].strip("`") for row in table_under(DOCS / "handlers.md", "Signals")}
    assert documented == {name for name in dir(signals) if name.startswith("webhook_")}


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = _BLOCK.sub("", page.read_text())
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = _BLOCK.sub("", page.read_text())
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text()
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages == set(re.findall(r"^([a-z-]+)$", index, re.MULTILINE))


@dataclass
class Newcomer:
    """Somebody who does what the README says, in an empty directory."""

    folder: Path
    port: int

    def __post_init__(self) -> None:
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "COVERAGE_PROCESS_START")
        } | {"PYTHONPATH": str(ROOT)}

    def write(self, block: Block) -> None:
        """Put a block where its mark says."""
        text = block.text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        if block.mark("file"):
            (self.folder / block.mark("file")).write_text(text)
        else:
            with (self.folder / block.mark("append")).open("a") as file:
                file.write("\n" + text)

    def arguments(self, command: str) -> list[str]:
        first, *rest = shlex.split(command)
        programs = {"python": [sys.executable], "django-admin": [sys.executable, "-m", "django"]}
        return [*programs[first], *rest]

    def type(self, block: Block) -> Iterator[subprocess.Popen[str]]:
        """Run the commands of a block and compare what they print; yields the server."""
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if " pip install " in command:
                continue
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                self.environment[name] = value
            elif command.endswith(" runserver"):
                yield self.serve(command)
            else:
                done = subprocess.run(
                    self.arguments(command),
                    cwd=self.folder,
                    env=self.environment,
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                assert done.returncode == 0, f"{block} {command}\n{done.stderr}"
                if expected:
                    assert done.stdout == expected, f"{block} {command}"

    def serve(self, command: str) -> subprocess.Popen[str]:
        """Start the server on a free port and wait until it listens."""
        server = subprocess.Popen(
            [*self.arguments(command), "--noreload", f"127.0.0.1:{self.port}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return server
            assert server.poll() is None, "runserver ended"
            time.sleep(0.1)
        raise AssertionError("runserver does not listen")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def ended(servers: list[subprocess.Popen[str]]) -> Iterator[None]:
    """End what was started, whatever happens."""
    try:
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md"])
def test_the_start_works_as_written(page, tmp_path):
    """Every file and command of the README, in its order."""
    newcomer = Newcomer(tmp_path, free_port())
    servers: list[subprocess.Popen[str]] = []
    steps = [
        block
        for block in blocks_of(ROOT / page)
        if block.marks and (block.language == "python" or block.marks == ("run",))
    ]
    assert len(steps) == 8
    with ended(servers):
        for block in steps:
            if block.language == "python":
                newcomer.write(block)
            else:
                servers.extend(newcomer.type(block))
    assert len(servers) == 1
