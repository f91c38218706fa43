"""`path("webhooks/", include("django_webhook_idempotency.urls"))`.

Both forms of each address are served: a redirect to the one with the slash would lose the body.
"""

from __future__ import annotations

from django.urls import re_path

from .views import WebhookView

app_name = "webhooks"

_receive = WebhookView.as_view()

urlpatterns = [
    re_path(r"^(?P<provider>[-\w]+)/?$", _receive, name="receive"),
    re_path(r"^(?P<provider>[-\w]+)/(?P<scope>[-.~\w]+)/?$", _receive, name="receive-scope"),
]
