"""The ledger in Django's admin: to be read, never to be edited."""

from __future__ import annotations

from django.contrib import admin

from ..models import WebhookDelivery, WebhookEvent
from .deliveries import WebhookDeliveryAdmin
from .events import WebhookEventAdmin

__all__ = ["WebhookDeliveryAdmin", "WebhookEventAdmin"]

admin.site.register(WebhookEvent, WebhookEventAdmin)
admin.site.register(WebhookDelivery, WebhookDeliveryAdmin)
