"""The ledger in Django's admin: to be read, never to be edited."""

from __future__ import annotations

from django.contrib import admin

from ..models import QuarantinedDelivery, SecretUse, WebhookDelivery, WebhookEvent
from .deliveries import WebhookDeliveryAdmin
from .events import WebhookEventAdmin
from .quarantine import QuarantinedDeliveryAdmin
from .secrets import SecretUseAdmin

__all__ = [
    "QuarantinedDeliveryAdmin",
    "SecretUseAdmin",
    "WebhookDeliveryAdmin",
    "WebhookEventAdmin",
]

admin.site.register(WebhookEvent, WebhookEventAdmin)
admin.site.register(WebhookDelivery, WebhookDeliveryAdmin)
admin.site.register(QuarantinedDelivery, QuarantinedDeliveryAdmin)
admin.site.register(SecretUse, SecretUseAdmin)
