"""From a verified delivery to its event: what it is about, and which way it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..enums import EventStatus
from ..exceptions import MalformedWebhook
from ..models import WebhookEvent, digest_of, displayable
from ..providers import Identity, Incoming, Provider
from .inline import deliver_atomic
from .leased import deliver_leased
from .receipt import deliver_queued
from .reconnecting import deliver_once_more
from .work import Result, Work


def whole_scope(scope: str, own: str) -> str:
    """The scope in the URL and the provider's own; a slash can only stand between them."""
    own = own.replace("%", "%25").replace("/", "%2F")
    return f"{scope}/{own}" if scope else own


def key_of(provider: Provider, scope: str, identity: Identity) -> str:
    """The dedupe key of what a delivery is about; `scope` is the one in the URL."""
    return digest_of(provider.key, whole_scope(scope, identity.scope), identity.event_id)


def with_secondary(identity: Identity, provider: Provider, incoming: Incoming) -> Identity:
    """An identity with the secondary key that the project's SECONDARY_KEY gives it, if it is set.

    Raises MalformedWebhook and ImproperlyConfigured, as `asked` does.
    """
    if provider.secondary_key is None:
        return identity
    secondary = asked(provider.secondary_key, incoming)
    return replace(identity, secondary=secondary if isinstance(secondary, str) else "")


def asked(function: Callable[[Any], object], about: Any) -> object:
    """Ask a function of the project's for a key.

    A look-up that fails means that the delivery has none: MalformedWebhook. Any other error is the
    project's: ImproperlyConfigured.
    """
    try:
        return function(about)
    except MalformedWebhook:
        raise
    except LookupError:
        raise MalformedWebhook("The delivery lacks what its key is made of.") from None
    except Exception as error:
        raise ImproperlyConfigured(
            f"The function of a webhook's key raised {type(error).__name__}."
        ) from error


def new_event(
    provider: Provider,
    incoming: Incoming,
    identity: Identity,
    *,
    scope: str,
    content_type: str,
    body_digest: str,
    received_at: datetime,
) -> WebhookEvent:
    """The event that a verified delivery carries, not yet stored; `scope` is the one in the URL.

    `body_digest` is empty where the body is not the one that the provider sends, but its API's.
    """
    whole = whole_scope(scope, identity.scope)
    event = WebhookEvent(
        provider=provider.key,
        scope=displayable(whole),
        event_id=displayable(identity.event_id),
        dedupe_key=key_of(provider, scope, identity),
        event_type=displayable(identity.event_type),
        status=EventStatus.PENDING,
        body=incoming.body,
        body_digest=body_digest,
        content_type=displayable(content_type),
        received_at=received_at,
    )
    if identity.secondary:
        event.secondary_key = digest_of("secondary", provider.key, whole, identity.secondary)
    if provider.same_body != "allow" and body_digest:
        # Without the scope: the URL and the header that it comes from are not signed either.
        event.content_key = digest_of("content", provider.key, body_digest)
    event.read_data_with(lambda: provider.payload(incoming))
    return event


def deliver(event: WebhookEvent, work: Work) -> Result:
    """Run the event here and now, or store it for the workers.

    Raises what stands in the way: the database's own error, StoreUnavailable, ImproperlyConfigured.
    """
    # What nobody wants is ignored at once: there is nothing to queue.
    if work.provider.processing == "queued" and work.lane is not None and work.handlers:
        return deliver_once_more(deliver_queued, event, work)
    return deliver_once_more(deliver_atomic if work.atomic else deliver_leased, event, work)
