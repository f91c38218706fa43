"""The app: where its models live and what is set up at start."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WebhookIdempotencyConfig(AppConfig):
    """`django_webhook_idempotency` in INSTALLED_APPS."""

    name = "django_webhook_idempotency"
    verbose_name = _("Webhooks")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Find the handlers in every app's `webhooks.py` and register the system checks."""
        from . import checks, handlers

        checks.register()
        handlers.autodiscover()
