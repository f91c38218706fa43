"""Sangho: the deliveries of a webhook endpoint, and one of them sent again.

PyPI sangho 0.2.0: `webhooks.list_deliveries`, `retrieve_delivery`, `retry_delivery`, and the
`PaginatedResponse` of its types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import MissingExtra
from ..providers import Provider
from . import asking
from .base import NotSentAgain, RateLimited, Sent, Source, SourceError, SourceRefused
from .options import SourceOptions
from .sangho_deliveries import Attempt, Log

OPTIONS = frozenset({"API_KEY", "BASE_URL", "ENDPOINTS", "SCOPE"})
#: Secret keys; a public one may not list deliveries.
KEY_PREFIXES = ("sk_prod_", "sk_test_")
#: How far our clock and Sangho's may be apart: what lies in it is looked at twice.
CLOCK_SKEW = timedelta(hours=1)
#: Parameters that are arguments of the client's own.
_RESERVED = frozenset({"id", "self"})
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, SERVER_ERROR = 401, 403, 404, 500


class SanghoSource(Source):
    """The deliveries of one webhook endpoint.

    [U] What a delivery holds is in no type and no docstring of the client: `sangho_deliveries`
    reads it under the names that are usual. The order of the list, the parameters of its pages
    and how long a delivery can be retried are not published either.
    """

    # [U] From Sangho's guide to idempotent webhooks: nothing is delivered after 48 hours.
    horizon = timedelta(hours=48)
    timeout: float = asking.TIMEOUT

    def __init__(
        self,
        provider: Provider,
        key: str,
        *,
        endpoint: str,
        api_key: Callable[[], str],
        where: str,
        scope: str = "",
        base_url: str | None = None,
    ) -> None:
        """`where` names the setting that holds the key."""
        super().__init__(provider, key)
        self.endpoint = endpoint
        self.scope = scope
        self._api_key = api_key
        self._where = where
        self._base_url = base_url
        #: What was asked for one by one is not asked for again after a pause.
        self._details: dict[str, Attempt] = {}

    @classmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> Iterable[SanghoSource]:
        """One source for each of ENDPOINTS."""
        _require_client()
        read = SourceOptions(provider, options, OPTIONS)
        endpoints = read.ids("ENDPOINTS")
        if not endpoints:
            raise ImproperlyConfigured(
                f"{read.where('ENDPOINTS')} is empty. List the ids of the webhook endpoints."
            )
        scope = read.scope()
        api_key = read.api_key("API_KEY", KEY_PREFIXES)
        return [
            cls(
                provider,
                "/".join(filter(None, (scope, endpoint))),
                endpoint=endpoint,
                api_key=api_key,
                where=read.where("API_KEY"),
                scope=scope,
                base_url=read.address("BASE_URL"),
            )
            for endpoint in endpoints
        ]

    def sent(self, since: datetime) -> Iterator[Sent]:
        """The events with a delivery since then, and some before that.

        The whole list is read first: an event may have a delivery on any page of it. Raises
        SourceError at the end if there were deliveries that could not be understood.
        """
        log = Log(since - CLOCK_SKEW)
        with self._client() as client:
            for page in self._pages(client):
                log.add(page)
                if log.is_past:
                    break
            for row in log.nameless:
                # The list may leave out what a single delivery holds.
                log.add_detail(row, self._detail(client, row))
        for event in log.events.values():
            yield Sent(
                event.identity,
                event.first_at,
                accepted=event.accepted,
                scope=self.scope,
                leaves_at=event.first_at + self.horizon,
                handle=event.latest.delivery_id,
            )
        if log.unread:
            raise SourceError(
                "Deliveries in Sangho's list whose id, event id or time cannot be read: "
                f"{log.unread}."
            )

    def redeliver(self, sent: Sent) -> None:
        """Have the latest delivery of an event retried.

        Asked once: nobody knows whether a retry that failed on its way was taken in.
        """
        with self._client() as client, _understood(self._where, self.endpoint, NotSentAgain):
            client.webhooks.retry_delivery(self.endpoint, sent.handle)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        import sangho

        options: dict[str, Any] = {"timeout": self.timeout, "max_retries": 0}
        if self._base_url:
            options["base_url"] = self._base_url
        try:
            client = sangho.Sangho(self._api_key(), **options)
        except ValueError:
            # Not its own words: they show the beginning of the key.
            raise ImproperlyConfigured(
                f"The client of Sangho does not take the key in {self._where}. Is it whole?"
            ) from None
        with client:
            yield client

    def _pages(self, client: Any) -> Iterator[list[Any]]:
        """The pages of the list, each once."""
        criteria: dict[str, str] = {}
        seen = []
        while criteria not in seen:
            seen.append(criteria)
            answer = asking.patiently(lambda: self._listed(client, seen[-1]))
            rows, criteria = _page(answer)
            yield rows
            if not criteria:
                return
        raise SourceError("Sangho's list of deliveries leads back to a page that it has given.")

    def _listed(self, client: Any, criteria: Mapping[str, str]) -> Any:
        with _understood(self._where, self.endpoint):
            return client.webhooks.list_deliveries(self.endpoint, **criteria)

    def _detail(self, client: Any, row: Attempt) -> Attempt:
        def ask() -> Any:
            with _understood(self._where, self.endpoint):
                return client.webhooks.retrieve_delivery(self.endpoint, row.delivery_id)

        if row.delivery_id not in self._details:
            self._details[row.delivery_id] = Attempt.read(asking.patiently(ask))
        return self._details[row.delivery_id]


def _page(answer: Any) -> tuple[list[Any], dict[str, str]]:
    """The rows of a page, and the parameters of the next; none on the last.

    `data` and `next` are those of the client's `PaginatedResponse`. [U] `next` is taken for an
    address, of which only the parameters count: nothing else chooses where the key is sent.
    """
    rows = answer
    following = None
    if isinstance(answer, dict):
        rows = next((answer[name] for name in ("data", "results") if name in answer), None)
        following = answer.get("next")
    if not isinstance(rows, list) or not isinstance(following, str | None):
        raise SourceError("Sangho's answer is no list of deliveries. Is BASE_URL Sangho's API?")
    has_more = isinstance(answer, dict) and answer.get("has_more") is True
    if not following and not has_more:
        return rows, {}
    try:
        criteria = dict(parse_qsl(urlsplit(following or "").query, strict_parsing=True))
    except ValueError:
        criteria = {}
    if not criteria or not _RESERVED.isdisjoint(criteria):
        raise SourceError("Sangho's list names a next page that cannot be read.")
    return rows, criteria


def _require_client() -> None:
    try:
        import sangho  # noqa: F401
    except ImportError:
        raise MissingExtra("sangho", "Recovery from Sangho") from None


@contextmanager
def _understood(
    where: str, endpoint: str, refused: type[SourceError] = SourceRefused
) -> Iterator[None]:
    """Say what stands in the way; `refused` is raised where only the question is at fault.

    Sangho's own words are left out: nobody knows what they show.
    """
    import sangho

    try:
        yield
    except sangho.SanghoRateLimitError as error:
        raise RateLimited(asking.pause_asked(error.retry_after)) from None
    except sangho.SanghoError as error:
        status = error.status_code
        if status is None:
            raise SourceError("Sangho's API cannot be reached, or does not answer.") from None
        if status == UNAUTHORIZED:
            raise SourceRefused(
                f"Sangho does not accept the key. Put a live one into {where}."
            ) from None
        if status == FORBIDDEN:
            raise SourceRefused(
                f"Sangho does not let the key in {where} use the endpoint {endpoint}."
            ) from None
        if status == NOT_FOUND and refused is SourceRefused:
            raise SourceRefused(
                f"Sangho knows no endpoint {endpoint} of the key in {where}."
            ) from None
        if status < SERVER_ERROR:
            raise refused(f"Sangho refuses what it is asked, with status {status}.") from None
        raise SourceError(f"Sangho's API answers {status}.") from None
    except ValueError:
        # The client takes the Retry-After of a 429 for a number, and it may be a date.
        raise RateLimited(asking.UNSAID_PAUSE) from None
    except (AttributeError, TypeError):
        # The client takes the body of an error for an object.
        raise SourceError("Sangho's API answers with an error that cannot be read.") from None
