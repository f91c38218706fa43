"""Class-based views: one place in `urls.py` that receives webhooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.decorators import classonlymethod
from django.utils.functional import classproperty
from django.views import View

from .conf import conf
from .dispatch.resolving import view_at
from .entry import open_to_providers, refuse_retentions
from .handlers import MAX_NAME, Handler, name_of, registry
from .models import WebhookEvent
from .providers import Provider, configured_provider, provider_class
from .receiver import Receiver


class ReceivesWebhooks:
    """What Django's view and Django REST framework's have in common.

    Override `handle` to take the events here; otherwise the functions registered with
    `@webhook_handler` run. Every option of the provider can be set as a class attribute.
    """

    #: Slug of the provider; left empty, it is taken from the URL.
    provider: ClassVar[str] = ""
    #: Whether what `handle` writes commits together with the event.
    atomic: ClassVar[bool] = True
    #: Whether a copy is answered with the first answer's status and body.
    replay_response: ClassVar[bool] = False
    #: Options given to `as_view()`, under upper-case names.
    overrides: Mapping[str, Any] = {}
    kwargs: dict[str, Any]

    def handle(self, event: WebhookEvent) -> Any:
        """Take one event. Returning means done; raising means failed."""
        raise TypeError("handle() is only called where a subclass defines it.")

    @classmethod
    def split_options(cls, initkwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tell provider options, upper-case, from what the view class itself takes.

        Raises TypeError for a retention, which only the settings can hold.
        """
        slug = initkwargs.get("provider", cls.provider)
        names = set((provider_class(slug) if slug else Provider).options)
        refuse_retentions(name for name in names if name in initkwargs or hasattr(cls, name))
        chosen = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
        chosen |= {name: value for name, value in initkwargs.items() if name in names}
        rest = {name: value for name, value in initkwargs.items() if name not in names}
        return {name.upper(): value for name, value in chosen.items()}, rest

    def receive(self, request: Any) -> HttpResponseBase:
        """Handle one delivery. Raises Http404 for a provider that isn't configured."""
        receiver = Receiver(
            resolve=self.resolve,
            handlers=self.find_handlers,
            scope=str(self.kwargs.get("scope", "")),
            replay_response=self.replay_response,
            view=self.worker_view(),
            kept_view=self.kept_view,
        )
        return receiver.receive(request)

    def resolve(self) -> Provider:
        """The provider of this view, or of the URL. Raises Http404 if it isn't configured."""
        slug = self.provider or str(self.kwargs.get("provider", ""))
        if not self.provider and slug not in conf.providers:
            raise Http404(f"No provider {slug!r} is configured.")
        return configured_provider(slug, self.overrides)

    def find_handlers(self, event: WebhookEvent) -> Sequence[Handler]:
        """The handlers of an event: this view's own, else the registered ones."""
        if type(self).handle is ReceivesWebhooks.handle:
            return registry.find(event.provider, event.event_type)
        return [type(self).handler_of(self)]

    @classmethod
    def handler_of(cls, view: ReceivesWebhooks) -> Handler:
        """The handler that `handle` of a view is."""
        return Handler(view.handle, atomic=view.atomic, name=name_of(cls))

    @classmethod
    def worker_view(cls) -> str | None:
        """The path of this class if it handles events itself and a worker can import it.

        Empty if registered handlers do; None where a worker can run nothing.
        """
        return "" if cls.handle is ReceivesWebhooks.handle else cls.importable()

    @classmethod
    def importable(cls) -> str | None:
        """The path of this class if another process can import it."""
        path = name_of(cls)
        try:
            found = view_at(path)
        except ImproperlyConfigured:
            return None
        return path if found is cls and len(path) <= MAX_NAME else None

    def kept_view(self) -> str | None:
        """The path of this class where its options or its handler matter to a kept delivery.

        Empty if the settings say all. None if the class alone cannot verify it again as this view
        does: `as_view()` was given options, or something cannot be imported.
        """
        cls = type(self)
        own, _ = cls.split_options({})
        if (
            cls.resolve is not ReceivesWebhooks.resolve
            or cls.find_handlers is not ReceivesWebhooks.find_handlers
            or self.atomic != cls.atomic
            or dict(self.overrides) != own
        ):
            return None
        if not own and cls.handle is ReceivesWebhooks.handle:
            return ""
        return cls.importable()

    @classmethod
    def for_quarantine(cls) -> tuple[Handler | None, Mapping[str, Any]]:
        """As `for_worker`; without a handler where the registered ones run."""
        overrides, _ = cls.split_options({})
        if cls.handle is ReceivesWebhooks.handle:
            return None, overrides
        return cls.handler_of(cls()), overrides

    @classmethod
    def for_worker(cls) -> tuple[Handler, Mapping[str, Any]]:
        """The handler of this class in a worker, where no request is, and its provider options."""
        overrides, _ = cls.split_options({})
        return cls.handler_of(cls()), overrides


class WebhookView(ReceivesWebhooks, View):
    """Receives the webhooks of one provider, or of the one that the URL names.

    Asynchronous if `handle` is; `AsyncWebhookView` is for registered handlers under ASGI.
    """

    @classproperty
    def view_is_async(cls) -> bool:  # noqa: N805
        """Whether the view has to be awaited."""
        return iscoroutinefunction(cls.handle)

    @classonlymethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:  # noqa: N805
        """As Django's, and takes the provider's options too, in lower case.

        Raises TypeError for a class with a `post` of its own, which would never be called.
        """
        for method in cls.http_method_names:
            if method != "options" and hasattr(cls, method):
                raise TypeError(
                    f"{cls.__qualname__}.{method}() would never be called. Override handle(event)."
                )
        overrides, rest = cls.split_options(initkwargs)
        view: Callable[..., HttpResponseBase] = open_to_providers(
            super().as_view(**rest, overrides=overrides)
        )
        return view

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Every method goes to the receiver, which knows what the provider uses."""
        if type(self).view_is_async:
            return sync_to_async(self.receive)(request)
        return self.receive(request)


class AsyncWebhookView(WebhookView):
    """The same, to be awaited; database work goes to a thread, handlers may be coroutines."""

    @classproperty
    def view_is_async(cls) -> bool:  # noqa: N805
        """Always."""
        return True


class SanghoWebhookView(WebhookView):
    """Receives Sangho's webhooks."""

    provider = "sangho"


class GitHubWebhookView(WebhookView):
    """Receives GitHub's webhooks."""

    provider = "github"


class StripeWebhookView(WebhookView):
    """Receives Stripe's webhooks."""

    provider = "stripe"


class SlackWebhookView(WebhookView):
    """Receives Slack's events, slash commands and interactions."""

    provider = "slack"


class StandardWebhookView(WebhookView):
    """Receives webhooks of any sender that follows Standard Webhooks."""

    provider = "standard_webhooks"
