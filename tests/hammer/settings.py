"""The test project as a server runs it: HAMMER_SETTINGS says what differs in one test."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, WEBHOOK_IDEMPOTENCY

_changes = json.loads(os.environ.get("HAMMER_SETTINGS", "{}"))

DEBUG = False
ROOT_URLCONF = "tests.hammer.urls"
# No more than a server of webhooks needs, which starts in half the time.
INSTALLED_APPS = ["django_webhook_idempotency", "tests.app", "tests.hammer"]
MIDDLEWARE = []

INSTALLED_APPS += _changes.get("APPS", [])
globals().update(_changes.get("DJANGO", {}))

if os.environ.get("WEBHOOK_HAMMER") == "full" and "postgresql" in DATABASES["default"]["ENGINE"]:
    # Figures are those of commits that are on disk.
    DATABASES["default"]["OPTIONS"] = {}
DATABASES["default"].update(_changes.get("DATABASE", {}))
WEBHOOK_IDEMPOTENCY = {**WEBHOOK_IDEMPOTENCY, **_changes.get("WEBHOOK_IDEMPOTENCY", {})}
for _name in {"LEASE", "BACKOFF", "BACKOFF_MAX"} & WEBHOOK_IDEMPOTENCY.keys():
    WEBHOOK_IDEMPOTENCY[_name] = timedelta(seconds=WEBHOOK_IDEMPOTENCY[_name])
