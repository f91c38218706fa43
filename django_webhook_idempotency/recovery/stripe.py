"""Stripe: events of which a delivery failed or is pending, taken over the API with their bodies.

https://docs.stripe.com/webhooks/process-undelivered-events
https://docs.stripe.com/api/events/list
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import MalformedWebhook, MissingExtra
from ..providers import Incoming, Provider
from ..providers.incoming import text_at
from ..providers.stripe import exact_types
from . import asking
from .base import RateLimited, Sent, Source, SourceError
from .options import SourceOptions
from .raw_json import elements, with_member

if TYPE_CHECKING:
    from stripe import StripeClient

OPTIONS = frozenset({"API_BASE", "API_KEY", "ACCOUNTS", "OWN_ACCOUNT", "SCOPE", "TYPES"})
#: Secret keys, and restricted ones that may read events.
KEY_PREFIXES = ("sk_", "rk_")
CONTENT_TYPE = "application/json; charset=utf-8"
MAX_TYPES = 20
PAGE = 100


class StripeSource(Source):
    """The undelivered events of one account: the platform's own, or one connected to it.

    Stripe renders an event in the API version of the account when it was made, and for an
    endpoint with an `api_version` of its own in that one: there the two bodies differ in shape.
    Thin events are not in this list.
    """

    # Stripe keeps an event for 30 days. It retries for three of them: a copy that comes after
    # its event was recovered is a duplicate, so the grace need not last as long.
    horizon = timedelta(days=30)
    timeout: float = asking.TIMEOUT

    def __init__(
        self,
        provider: Provider,
        key: str,
        *,
        api_key: Callable[[], str],
        where: str,
        account: str = "",
        scope: str = "",
        types: Iterable[str] = (),
        api_base: str | None = None,
    ) -> None:
        """`account` is empty for one's own; `where` names the setting that holds the key."""
        super().__init__(provider, key)
        self.account = account
        self.scope = scope
        self.types = list(types)
        self._api_key = api_key
        self._where = where
        self._api_base = api_base
        #: How far Stripe's clock is ahead of ours.
        self._ahead = timedelta(0)
        #: Where a list was broken off for a pause: what it was asked for, and the last event.
        self._paused: tuple[datetime, str] | None = None

    @classmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> Iterable[StripeSource]:
        """One source for the own account, unless OWN_ACCOUNT is False, and one for each other."""
        _require_client()
        read = SourceOptions(provider, options, OPTIONS)
        accounts = read.ids("ACCOUNTS")
        if read.flag("OWN_ACCOUNT", True):
            accounts.insert(0, "")
        if not accounts:
            raise ImproperlyConfigured(
                f"{read.where()} names no account. Leave OWN_ACCOUNT True, or list ACCOUNTS."
            )
        scope, types = read.scope(), _types(read, options)
        api_key = read.api_key("API_KEY", KEY_PREFIXES)
        mode = _mode(options["API_KEY"])
        return [
            cls(
                provider,
                "/".join(filter(None, (scope, mode, account or "own"))),
                api_key=api_key,
                where=read.where("API_KEY"),
                account=account,
                scope=scope,
                types=types,
                api_base=read.address("API_BASE"),
            )
            for account in accounts
        ]

    def now(self) -> datetime:
        """The time by Stripe's clock, as its last answer told."""
        return datetime.now(UTC) + self._ahead

    def sent(self, since: datetime) -> Iterator[Sent]:
        """The undelivered events made since then, the newest first.

        Raises SourceError at the end if there were some that could not be understood.
        """
        from .stripe_client import client_of  # which needs the client

        unread = 0
        with client_of(self._api_key(), self.account, self._api_base, self.timeout) as client:
            for text, event in self._events(client, since):
                sent = self._sent(text, event)
                if sent is None:
                    unread += 1
                else:
                    yield sent
        if unread:
            raise SourceError(
                "Events in Stripe's list without an id or a time, or that no webhook could be: "
                f"{unread}."
            )

    def _events(self, client: StripeClient, since: datetime) -> Iterator[tuple[str, Any]]:
        paused, self._paused = self._paused, None
        after = paused[1] if paused and paused[0] == since else ""
        has_more = True
        asked = {after}
        while has_more:
            ask = partial(self._page, client, since, after)
            try:
                page = asking.patiently(ask)
            except RateLimited:
                self._paused = (since, after)
                raise
            found, has_more = self._listed(page)
            yield from found
            if has_more:
                after = text_at(found[-1][1], "id")
                if after in asked:
                    raise SourceError("Stripe's answer is the same page again.")
                asked.add(after)

    def _page(self, client: StripeClient, since: datetime, after: str) -> Any:
        from .stripe_errors import understood  # which needs the client

        params: dict[str, Any] = {
            # Stripe counts in whole seconds.
            "created": {"gte": int(since.timestamp())},
            # As text: older clients spell False with a capital, which is no boolean there.
            "delivery_success": "false",
            "limit": PAGE,
        }
        if after:
            params["starting_after"] = after
        if self.types:
            params["types"] = self.types
        # Before 12.5 there is no `v1`, and what stands in its place is deprecated now.
        events: Any = getattr(client, "v1", client).events
        with understood(self._where, self.account):
            return events.list(params)

    def _listed(self, page: Any) -> tuple[list[tuple[str, Any]], bool]:
        """The events of a page, each as Stripe spelled it, and whether more follow."""
        response: Any = getattr(page, "last_response", None)
        has_more = getattr(page, "has_more", None)
        try:
            found = list(elements(response.body, "data"))
        except (AttributeError, ValueError):
            found = []
            has_more = None
        if not isinstance(has_more, bool) or (has_more and not found):
            raise SourceError("Stripe's answer is no list of events. Is API_BASE Stripe's API?")
        date = asking.http_date(response.headers.get("Date", ""))
        if date is not None:
            self._ahead = date - datetime.now(UTC)
        return found, has_more

    def _sent(self, text: str, event: Any) -> Sent | None:
        """An event with the body that the webhook would have had, as far as the API tells.

        None if it cannot be understood.
        """
        also = None
        bare = text.encode("utf-8", "surrogatepass")
        is_nameless = bool(self.account) and not text_at(event, "account")
        if is_nameless:
            # Asked as the account itself, the API may leave out what its webhook names.
            text = with_member(text, "account", self.account)
        body = text.encode("utf-8", "surrogatepass")
        created = event.get("created") if isinstance(event, dict) else None
        try:
            identity = self.provider.identify(Incoming.stored(body, CONTENT_TYPE))
            if is_nameless:
                # If it is the own account, the webhook names none. Ids are Stripe's, and unique.
                also = self.provider.identify(Incoming.stored(bare, CONTENT_TYPE))
            if isinstance(created, bool) or not isinstance(created, int):
                raise ValueError
            sent_at = datetime.fromtimestamp(created, UTC)
            leaves_at = sent_at + self.horizon
        except (MalformedWebhook, ValueError, OverflowError, OSError):
            return None
        return Sent(
            identity,
            sent_at,
            accepted=False,
            scope=self.scope,
            leaves_at=leaves_at,
            body=body,
            content_type=CONTENT_TYPE,
            also=also,
        )


def _require_client() -> None:
    try:
        import stripe  # noqa: F401
    except ImportError:
        raise MissingExtra("stripe", "Recovery from Stripe") from None


def _types(read: SourceOptions, options: Mapping[str, Any]) -> list[str]:
    try:
        types = sorted(exact_types(options.get("TYPES", ())))
    except ValueError as error:
        raise ImproperlyConfigured(f"{read.where('TYPES')} should be {error}.") from None
    if len(types) > MAX_TYPES:
        raise ImproperlyConfigured(
            f"{read.where('TYPES')} has {len(types)} types, and Stripe takes {MAX_TYPES}. Leave it "
            "out: what no handler wants is not taken in."
        )
    return types


def _mode(api_key: Any) -> str:
    """What tells the keys of one account apart; nothing of the key itself."""
    for mode in ("live", "test"):
        if isinstance(api_key, str) and api_key[3:].startswith(f"{mode}_"):
            return mode
    return ""
