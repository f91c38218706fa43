"""A GitHub of our own, and the settings that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_webhook_idempotency.recovery import SourceReport, recover, recoveries
from tests.recovery.fake_github import SECRET, TOKEN, FakeGitHub, running

HOOK = "/repos/octo/shop/hooks/42"


@pytest.fixture
def github(settings: Any) -> Iterator[FakeGitHub]:
    """Give a GitHub with one hook, which the settings name."""
    pytest.importorskip("github")
    fake = FakeGitHub()
    fake.deliveries[HOOK] = []
    with running(fake):
        configure(settings, fake)
        yield fake


def configure(settings: Any, fake: FakeGitHub, recovery: Any = None, **options: Any) -> None:
    """Let the provider be recovered; `recovery` replaces entries of RECOVERY."""
    entries = {
        "HOOKS": [{"repo": "octo/shop", "hook_id": 42}],
        "TOKEN": TOKEN,
        "BASE_URL": fake.url,
        "PAUSE": 0,
        **(recovery or {}),
    }
    entries = {name: value for name, value in entries.items() if value is not None}
    defaults = {"SECRETS": [SECRET], "BACKOFF": timedelta(milliseconds=1), "RECOVERY": entries}
    settings.WEBHOOK_IDEMPOTENCY = {"PROVIDERS": {"github": defaults | options}}


@pytest.fixture
def run(github: FakeGitHub) -> Callable[..., SourceReport]:
    """Give a function that recovers the one hook, and waits until all has been sent again."""

    def once(**options: Any) -> SourceReport:
        (recovery,) = recoveries(["github"])
        (report,) = recover(recovery, **options)
        github.wait()
        return report

    return once
