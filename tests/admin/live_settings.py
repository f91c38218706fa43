"""Settings of a server whose visitor is logged in, under a strict Content-Security-Policy."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403
from tests.settings import MIDDLEWARE as TESTED

DEBUG = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["LIVE_DATABASE"],
    }
}
MIDDLEWARE = ["tests.admin.live.content_security_policy", *TESTED, "tests.admin.live.logged_in"]
LANGUAGE_CODE = os.environ.get("LIVE_LANGUAGE", "en")
TIME_ZONE = "Europe/Madrid"
