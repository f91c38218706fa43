"""What stands in the way of a replay, and what to do about it."""

from __future__ import annotations

from django.db import DatabaseError, models
from django.utils.translation import gettext_lazy as _

from .. import ledger
from ..dispatch.claims import lease_of, release
from ..dispatch.resolving import work_of
from ..dispatch.work import Work
from ..enums import FINISHED, EventStatus
from ..exceptions import HandlerMissing, StoreUnavailable, WebhookError
from ..models import HandlerRun, WebhookEvent, displayable
from ..stores import lease_store


class Refusal(models.TextChoices):
    """Why an event is not run again."""

    GONE = "gone", _("it is gone")
    RUNNING = "running", _("somebody runs it")
    CHANGED = "changed", _("it has changed since it was chosen")
    NO_BODY = "no_body", _("its body is not kept any more")
    NO_HANDLER = "no_handler", _("no handler is registered for it")
    VIEW = "view", _("only a request can run it")
    MISCONFIGURED = "misconfigured", _("the settings stand in the way")


class Refused(WebhookError):
    """An event is not run again, and nothing of it was changed."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


def out_of_reach(seen: WebhookEvent) -> Refused:
    """The refusal of an event that could not be locked."""
    if WebhookEvent.objects.using(ledger.alias()).filter(pk=seen.pk).exists():
        return Refused(Refusal.RUNNING, "Somebody runs it.")
    return Refused(Refusal.GONE, "It is gone: purged, perhaps.")


def refuse_change(event: WebhookEvent, seen: WebhookEvent) -> None:
    """Raise Refused if somebody runs the locked event, or has run or armed it since."""
    if event.status == EventStatus.PROCESSING and (
        not event.lease_has_expired or not _store_is_free(event)
    ):
        raise Refused(Refusal.RUNNING, "Somebody runs it.")
    if (event.status, event.attempts) != (seen.status, seen.attempts):
        raise Refused(
            Refusal.CHANGED,
            f"It was {seen.status} and is {event.status}, after {event.attempts} attempts.",
        )


def _store_is_free(event: WebhookEvent) -> bool:
    """Whether nobody has the lease of an event whose row does not show one."""
    store, token = lease_store(), ledger.new_token()
    if not store.acquire(event.dedupe_key, token, lease_of(event.provider)):
        return False
    release(store, event.dedupe_key, token)
    return True


def work_for(event: WebhookEvent, handler: str) -> Work:
    """What an event needs to run, or one handler of it. Raises Refused if that is not to be had."""
    if event.body is None:
        raise Refused(Refusal.NO_BODY, _way_out(event))
    try:
        work = work_of(event)
    except (DatabaseError, StoreUnavailable):
        raise
    except HandlerMissing as error:
        raise Refused(Refusal.NO_HANDLER, str(error)) from error
    except Exception as error:
        # Whatever keeps the handlers from being found is the project's.
        text = f"{type(error).__name__}: {error}"
        raise Refused(Refusal.MISCONFIGURED, displayable(text, 1000)) from error
    if event.status not in FINISHED | {EventStatus.DEAD} and event.lane is None:
        raise _only_a_request(event, "")
    names = [handler.stored_name for handler in work.handlers]
    if handler:
        if handler not in names:
            raise Refused(
                Refusal.NO_HANDLER,
                f"{handler} is none of its handlers: {', '.join(names)}.",
            )
        return work
    ran = _names_that_ran(event)
    if ran and not ran & set(names):
        raise _only_a_request(event, ", ".join(sorted(ran)))
    return work


def _way_out(event: WebhookEvent) -> str:
    if event.status in FINISHED:
        return (
            "Its body is not kept any more (BODY_RETENTION, STORE_BODY). It was finished, so that "
            "a copy is a duplicate: where only its key counts, there is nothing to do. If not, "
            "read its object from the provider's API and call your own code with that."
        )
    return (
        "Its body is not kept any more. Have the provider send it again: with recover_webhooks, "
        "or from the provider's own page."
    )


def _only_a_request(event: WebhookEvent, ran: str) -> Refused:
    """The refusal of an event whose handler is none that could be looked up."""
    who = f"{ran} ran it, which is" if ran else "What runs it is"
    return Refused(
        Refusal.VIEW,
        f"{who} a decorated view, or a handler that is not registered any more. The provider can "
        "send an event again that is not finished; a renamed handler can be chosen by its name.",
    )


def _names_that_ran(event: WebhookEvent) -> set[str]:
    """The handlers that have run the event, by their stored names."""
    runs = HandlerRun.objects.using(ledger.alias()).filter(event=event)
    names = set(runs.order_by().values_list("handler", flat=True).distinct())
    return names | {event.handled_by} if event.handled_by else names
