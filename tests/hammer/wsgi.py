"""What gunicorn serves."""

from __future__ import annotations

from django.conf import settings
from django.core.wsgi import get_wsgi_application

if settings.WEBHOOK_IDEMPOTENCY.get("QUEUE") == "celery":
    from . import celery_app  # noqa: F401

application = get_wsgi_application()
