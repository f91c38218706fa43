"""The receiving view for those who live in Django REST framework."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponseBase, UnreadablePostError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from ..entry import open_to_providers
from ..views import ReceivesWebhooks


class WebhookAPIView(ReceivesWebhooks, APIView):
    """An `APIView` that receives webhooks: set `provider`, and override `handle` if you like.

    The signature is what lets a delivery in; throttles and permissions of the project's own can
    be set as on every `APIView`. The raw body is read before any of them can parse it.
    """

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """As Django REST framework's, and takes the provider's options too, in lower case."""
        overrides, rest = cls.split_options(initkwargs)
        return open_to_providers(super().as_view(**rest, overrides=overrides))

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Keep the raw body, which a parser would consume."""
        # The receiver meets the same error and answers it.
        with suppress(RequestDataTooBig, UnreadablePostError):
            request.body  # noqa: B018
        return super().initialize_request(request, *args, **kwargs)

    def post(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Receive one delivery."""
        return self.receive(request)

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The receiver refuses it: there is nothing to describe."""
        return self.receive(request)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Whatever the sender accepts: a delivery is not refused for that."""
        return super().perform_content_negotiation(request, force=True)

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The receiver knows which methods the provider uses."""
        return self.receive(request)
