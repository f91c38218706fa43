"""The pages in a real Chromium under `default-src 'self'`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.screenshots import APP, browse, live_server

pytestmark = [pytest.mark.service("chromium"), pytest.mark.slow, pytest.mark.once]

Live = tuple[str, dict[str, int]]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Give a server with sample data."""
    with live_server(tmp_path_factory.mktemp("live")) as server:
        yield server


def complaints(folder: Path, address: str) -> tuple[list[str], str]:
    """What the browser says of the policy while it loads a page, and the page as it stands then."""
    done = browse(folder, address, "--dump-dom", "--enable-logging=stderr")
    lines = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return lines, done.stdout


def test_the_browser_complains_where_it_should(tmp_path: Path, live: Live) -> None:
    lines, page = complaints(tmp_path, f"{live[0]}/violation/")
    assert "breaks the policy" in page
    assert any("Content Security Policy" in line for line in lines), lines


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("webhookevent/", "payment_intent.succeeded"),
        ("webhookevent/?event_type=order.*&status=processed", "order.paid"),
        ("webhookevent/{failed}/change/", "is not in the books &lt;yet&gt;"),
        ("webhookdelivery/", "http_timeout"),
        ("webhookdelivery/1/change/", "user-agent"),
    ],
)
def test_no_page_breaks_the_policy(tmp_path: Path, live: Live, path: str, text: str) -> None:
    address, events = live
    lines, page = complaints(tmp_path, f"{address}/{APP}/{path.format(**events)}")
    assert text in page
    assert lines == []
