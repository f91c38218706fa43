"""URLs of the shop."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.staticfiles.urls import staticfiles_urlpatterns
from django.urls import include, path

urlpatterns = [
    path("webhooks/", include("django_webhook_idempotency.urls")),
    path("admin/", admin.site.urls),
    # The admin's own files, under gunicorn too; only where DEBUG is on.
    *staticfiles_urlpatterns(),
]
