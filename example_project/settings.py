"""Settings of the shop. All that differs between two runs comes from the environment:

- DATABASE_URL: a SQLite file beside this one, unless set
- REDIS_URL: if set, where the leases of `atomic=False` work live
- WEBHOOK_PROCESSING: `inline`, unless set to `queued`
- WEBHOOK_QUEUE: what runs queued events: `database`, unless set to `celery` or `tasks`
- CELERY_BROKER_URL: Celery's broker, a RabbitMQ on this machine unless set
- WEBHOOK_SECRET_<PROVIDER>: one secret, or several separated by commas
- WEBHOOK_ATOMIC_REQUESTS: Django's ATOMIC_REQUESTS; off, unless set
- DEBUG: on, unless set; off, every provider needs a secret of its own
- ALLOWED_HOSTS, SECRET_KEY: as Django's
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url

from .environment import flag, given, secret_key, webhook_secrets, words

BASE_DIR = Path(__file__).resolve().parent

DEBUG = flag("DEBUG", default=True)
ALLOWED_HOSTS = words("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# GitHub sends up to 25 MB, and Django refuses more than 2.5 MB unless told.
DATA_UPLOAD_MAX_MEMORY_SIZE = 26 * 1024 * 1024

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_webhook_idempotency",
    "example_project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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

#: What a connection needs by vendor. SQLite has one writer at a time: IMMEDIATE makes a
#: transaction wait for its turn when it begins, since one that has read before it writes is
#: refused at once. `synchronous` stays FULL: what was answered 2xx survives a power cut.
DATABASE_OPTIONS: dict[str, dict[str, Any]] = {
    "django.db.backends.sqlite3": {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL",
    },
    "django.db.backends.mysql": {"charset": "utf8mb4"},
}

DATABASES = {
    "default": dj_database_url.parse(
        os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'shop.sqlite3'}",
        conn_max_age=60,
        conn_health_checks=True,
    )
}
for _database in DATABASES.values():
    _database["ATOMIC_REQUESTS"] = flag("WEBHOOK_ATOMIC_REQUESTS", default=False)
    _database["OPTIONS"] = {
        **DATABASE_OPTIONS.get(_database["ENGINE"], {}),
        **_database.get("OPTIONS", {}),
    }

#: Public: whoever reads this can sign with them.
DEMO_SECRETS = {
    "github": "public-demo-secret-of-github",
    "sangho": "whsec_public_demo_secret_of_sangho",
    "slack": "public-demo-secret-of-slack",
    "standard_webhooks": "whsec_cHVibGljIGRlbW8gc2VjcmV0IG9mIHN0YW5kYXJk",
    "stripe": "whsec_public_demo_secret_of_stripe",
}

_secrets = {
    provider: webhook_secrets(provider, demo, debug=DEBUG)
    for provider, demo in DEMO_SECRETS.items()
}

SECRET_KEY = secret_key([each for some in _secrets.values() for each in some], debug=DEBUG)

WEBHOOK_IDEMPOTENCY = {
    "PROVIDERS": {provider: {"SECRETS": secrets} for provider, secrets in _secrets.items()},
    **given(PROCESSING="WEBHOOK_PROCESSING", QUEUE="WEBHOOK_QUEUE", REDIS_URL="REDIS_URL"),
}
if "REDIS_URL" in WEBHOOK_IDEMPOTENCY:
    WEBHOOK_IDEMPOTENCY["STORE"] = "redis"

CELERY_BROKER_URL = os.environ.get("CELERY_BROKER_URL") or "amqp://guest:guest@127.0.0.1:5672//"
CELERY_TASK_IGNORE_RESULT = True

if WEBHOOK_IDEMPOTENCY.get("QUEUE") == "tasks":
    # A queue in the database; Django's own backends run tasks in the request, or not at all.
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
    INSTALLED_APPS += ["django_tasks_db"]
    if find_spec("django.tasks") is None:
        INSTALLED_APPS += ["django_tasks"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        "django_webhook_idempotency": {"handlers": ["stderr"], "level": "INFO"},
        "example_project": {"handlers": ["stderr"], "level": "INFO"},
    },
}
