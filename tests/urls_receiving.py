"""The included URLs and nothing else, for projects without the admin."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("webhooks/", include("django_webhook_idempotency.urls"))]
