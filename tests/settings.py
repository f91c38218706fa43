"""Settings of the test project. The database comes from DATABASE_URL; a SQLite file without it."""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url

BASE_DIR = Path(__file__).resolve().parent

# Celery lets it win over every app's own `broker_url`, and each test chooses its broker.
os.environ.pop("CELERY_BROKER_URL", None)

SECRET_KEY = "public-and-only-for-the-tests"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
USE_TZ = True
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = os.environ.get("DEFAULT_AUTO_FIELD", "django.db.models.BigAutoField")
DATA_UPLOAD_MAX_MEMORY_SIZE = 25 * 1024 * 1024  # what GitHub sends at most

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_webhook_idempotency",
]
if (BASE_DIR / "app").is_dir():
    INSTALLED_APPS.append("tests.app")
#: What the queue can use, as far as it is there: django-celery-beat does not go with Django 6.1.
OPTIONAL_APPS = [
    name
    for name in ("django_celery_beat", "django_tasks_db", "django_tasks")
    if find_spec(name) and not (name == "django_tasks" and find_spec("django.tasks"))
]
INSTALLED_APPS += OPTIONAL_APPS
# Their tables at once, and not by dozens of migrations.
MIGRATION_MODULES = dict.fromkeys(OPTIONAL_APPS)
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASE_URL = os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'default.sqlite3'}"
# Why DATABASE_URL cannot be used; conftest.py then skips every test, or ends the run.
DATABASE_PROBLEM: str | None = None
if "pytest" in sys.modules:
    from tests.services import database_problem

    DATABASE_PROBLEM = database_problem(DATABASE_URL)
    if DATABASE_PROBLEM:
        DATABASE_URL = "sqlite://:memory:"

DATABASES = {"default": dj_database_url.parse(DATABASE_URL)}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, since threads and servers share it; one for each run, since runs may overlap.
    # The tests kill processes, not the machine: nothing is lost without fsync.
    DATABASES["default"]["OPTIONS"] = {"timeout": 20, "init_command": "PRAGMA synchronous=OFF"}
    DATABASES["default"]["TEST"] = {
        "NAME": str(Path(tempfile.gettempdir()) / f"test-webhooks-{os.getpid()}.sqlite3")
    }
elif DATABASES["default"]["ENGINE"].endswith("postgresql"):
    # What a test commits need not outlive a crash of the database server.
    DATABASES["default"]["OPTIONS"] = {"options": "-c synchronous_commit=off"}
elif DATABASES["default"]["ENGINE"].endswith("mysql"):
    DATABASES["default"]["OPTIONS"] = {"charset": "utf8mb4"}
    DATABASES["default"]["TEST"] = {"CHARSET": "utf8mb4"}

# Public dummy values; Slack's and GitHub's are those of their documentation.
WEBHOOK_IDEMPOTENCY: dict[str, Any] = {
    "PROVIDERS": {
        "sangho": {"SECRETS": ["whsec_sangho_test_0123456789abcdef"]},
        "github": {"SECRETS": ["It's a Secret to Everybody"]},
        "stripe": {"SECRETS": ["whsec_stripe_test_0123456789abcdef"]},
        "slack": {"SECRETS": ["8f742231b10e8888abcd99yyyzzz85a5"]},
        "standard_webhooks": {"SECRETS": ["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="]},
    },
}
