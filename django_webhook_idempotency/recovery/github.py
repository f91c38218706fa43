"""GitHub: deliveries of repository, organisation and app hooks, listed and sent again.

https://docs.github.com/en/rest/repos/webhooks
https://docs.github.com/en/rest/orgs/webhooks
https://docs.github.com/en/rest/apps/webhooks
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..providers import Identity, Provider
from .base import Sent, Source, SourceError, SourceRefused
from .configured import where
from .github_api import GitHubAPI
from .github_options import Hook, read_hooks, read_login, refuse_unknown

#: As many as a page holds.
PER_PAGE = 100
#: What a hook sends when it is made; no event.
PING = "ping"


@dataclass(frozen=True)
class Delivery:
    """What the list of deliveries says of one."""

    number: int
    guid: str
    event_type: str
    delivered_at: datetime
    accepted: bool


@dataclass
class Walk:
    """How far a list was read: deliveries so far, and the cursor of the next page."""

    since: datetime
    deliveries: list[Delivery] = field(default_factory=list)
    cursor: str = ""
    #: The cursors of the pages before.
    past: set[str] = field(default_factory=set)


class GitHubSource(Source):
    """One hook. GitHub sends nothing again by itself, and keeps deliveries for three days.

    https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries
    """

    def __init__(self, provider: Provider, hook: Hook, api: GitHubAPI) -> None:
        super().__init__(provider, hook.key)
        self.hook = hook
        self.api = api
        #: Three days, and seven on GitHub Enterprise Server.
        self.horizon = provider.resend_window
        self._number = hook.number
        self._walk: Walk | None = None

    @classmethod
    def configured(cls, provider: Provider, options: Mapping[str, Any]) -> Iterable[Source]:
        """A source for each of HOOKS, all asked with one login."""
        setting = where(provider)
        refuse_unknown(options, setting)
        is_enterprise = bool(getattr(provider, "enterprise_server", False))
        hooks = read_hooks(options, setting, provider.scopes)
        login = read_login(options, setting, is_enterprise=is_enterprise)
        if not login.is_app and any(not hook.owner for hook in hooks):
            raise ImproperlyConfigured(
                f"{setting} names an app's hook, which only APP_ID and PRIVATE_KEY can ask for."
            )
        api = GitHubAPI(login.base_url, login.enter, login.pause)
        return [cls(provider, hook, api) for hook in hooks]

    def now(self) -> datetime:
        """The time by GitHub's clock."""
        return self.api.now()

    def sent(self, since: datetime) -> Iterator[Sent]:
        """The events of the hook's deliveries, the oldest first, which is the first to leave."""
        groups: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in self._deliveries(since):
            groups[delivery.guid].append(delivery)
        events = [self._sent(group) for group in groups.values()]
        yield from sorted(events, key=lambda event: event.sent_at)

    def redeliver(self, sent: Sent) -> None:
        """Have the newest delivery of an event sent again."""
        self.api.post(f"{self.hook.path}/deliveries/{sent.handle}/attempts", self.hook.owner)

    def _sent(self, group: list[Delivery]) -> Sent:
        """An event, from all its deliveries by this hook."""
        group = sorted(group, key=lambda delivery: (delivery.delivered_at, delivery.number))
        newest = group[-1]
        return Sent(
            identity=Identity(newest.guid, newest.event_type, scope=str(self._hook_id(newest))),
            sent_at=group[0].delivered_at,
            accepted=any(delivery.accepted for delivery in group),
            scope=self.hook.scope,
            # A redelivery is a delivery of its own, and can be sent again as long as any.
            leaves_at=newest.delivered_at + self.horizon,
            handle=newest.number,
        )

    def _deliveries(self, since: datetime) -> list[Delivery]:
        """The hook's deliveries since a time; after a pause, from the page that was refused."""
        walk = self._walk
        if walk is None or walk.since != since:
            walk = self._walk = Walk(since)
        while True:
            cursor = {"cursor": walk.cursor} if walk.cursor else {}
            page, following = self.api.get(
                f"{self.hook.path}/deliveries", self.hook.owner, per_page=PER_PAGE, **cursor
            )
            if not isinstance(page, list):
                raise SourceError("GitHub's list of deliveries is none.")
            deliveries = [_delivery(item) for item in page if _get(item, "event") != PING]
            walk.deliveries += [each for each in deliveries if each.delivered_at >= since]
            # The newest come first. A page of pings alone says nothing of the time.
            is_past = any(each.delivered_at < since for each in deliveries)
            if is_past or not page or not following or following == walk.cursor:
                self._walk = None
                return walk.deliveries
            walk.past.add(walk.cursor)
            if following in walk.past:
                self._walk = None
                raise SourceError("GitHub's list of deliveries leads back to an earlier page.")
            walk.cursor = following

    def _hook_id(self, delivery: Delivery) -> int:
        """The hook's number, which its deliveries carry in X-GitHub-Hook-ID.

        Of an app's hook no list tells it, but a delivery's own page shows the headers that it had.
        """
        if self._number is None:
            page, _ = self.api.get(f"{self.hook.path}/deliveries/{delivery.number}")
            headers = _get(_get(page, "request"), "headers")
            named = {str(name).lower(): value for name, value in dict(headers or {}).items()}
            number = str(named.get("x-github-hook-id", ""))
            if not number.isdigit():
                raise SourceRefused(
                    f"GitHub does not tell the number of the app's hook. Set 'hook_id' of it in "
                    f"{where(self.provider)}['HOOKS']: what X-GitHub-Hook-ID says."
                )
            self._number = int(number)
        return self._number


def _delivery(item: Any) -> Delivery:
    """One entry of a list of deliveries. Raises SourceError if it cannot be read."""
    event, action = _get(item, "event"), _get(item, "action")
    try:
        number, status = int(item["id"]), int(item["status_code"])
        delivered_at = datetime.fromisoformat(item["delivered_at"])
        guid = item["guid"]
        if not (isinstance(guid, str) and guid):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise SourceError("GitHub's list of deliveries cannot be read.") from None
    if delivered_at.tzinfo is None:
        delivered_at = delivered_at.replace(tzinfo=UTC)
    # Throttled and pending ones have no status of an answer.
    is_accepted = 200 <= status <= 299
    event_type = f"{event}.{action}" if event and action else str(event or "")
    return Delivery(number, guid, event_type, delivered_at, is_accepted)


def _get(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None
