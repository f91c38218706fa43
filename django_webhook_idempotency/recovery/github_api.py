"""GitHub's REST API as far as recovery needs it, over the client `githubkit`.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..exceptions import MissingExtra
from .base import NotSentAgain, RateLimited, SourceError, SourceRefused

try:
    import httpx
    from githubkit import AppAuthStrategy, AppInstallationAuthStrategy, GitHub, TokenAuthStrategy
    from githubkit.exception import RequestError, RequestFailed
except ImportError:
    raise MissingExtra("github", "Asking GitHub for deliveries") from None

PUBLIC = "https://api.github.com"
#: https://docs.github.com/en/rest/about-the-rest-api/api-versions
VERSION = "2022-11-28"
#: Seconds that an answer may take.
TIMEOUT = 20.0
#: Seconds of pause where GitHub does not say how long. As its page on rate limits asks.
DEFAULT_PAUSE = 60.0
_REFUSALS = frozenset({401, 403, 404})
_LIMITED = frozenset({403, 429})
#: Answers to a redelivery that may be meant for the one delivery.
_NOT_AGAIN = frozenset({400, 404, 410, 422})


class GitHubAPI:
    """One login to GitHub. It never tries again by itself: whoever calls knows what a pause costs.

    `login` makes the client's authentication when it is first needed.
    """

    def __init__(self, base_url: str, login: Callable[[], Any], pause: float) -> None:
        self.base_url = base_url
        self.login = login
        self.pause = pause
        #: How far GitHub's clock is ahead of ours.
        self.offset = timedelta(0)
        self._clients: dict[str, Any] = {}
        self._closed_until = 0.0
        self._next_post = 0.0

    def now(self) -> datetime:
        """The time by GitHub's clock, as its last answer said."""
        return datetime.now(UTC) + self.offset

    def get(self, path: str, owner: str = "", **params: Any) -> tuple[Any, str]:
        """The document at a path, and the cursor of the next page, empty after the last.

        `owner` is the path of whatever an app's installation stands for.
        """
        answer = self._ask("GET", path, owner, params)
        # Of the link only the cursor is taken: a token follows no link to another host.
        following = answer.raw_response.links.get("next", {}).get("url", "")
        cursors = parse_qs(urlsplit(following).query).get("cursor", [""])
        return document(answer), cursors[0]

    def post(self, path: str, owner: str = "") -> None:
        """Ask for something to be done, with a pause since the last time."""
        time.sleep(max(0.0, self._next_post - time.monotonic()))
        try:
            self._ask("POST", path, owner, {})
        finally:
            self._next_post = time.monotonic() + self.pause

    def _ask(self, method: str, path: str, owner: str, params: dict[str, Any]) -> Any:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise RateLimited(left)
        headers = {"X-GitHub-Api-Version": VERSION}
        try:
            answer = self._client(owner).request(method, path, params=params, headers=headers)
        except RequestError as error:
            # The client wraps what it meets while it logs in.
            failed = error if isinstance(error, RequestFailed) else error.exc
            if isinstance(failed, RequestFailed):
                raise self._refusal(failed.response.raw_response, method) from None
            if isinstance(failed, httpx.HTTPError):
                raise SourceError(f"GitHub cannot be asked: {type(failed).__name__}.") from None
            if isinstance(failed, RuntimeError):
                raise MissingExtra("github", "Logging in to GitHub as an app") from None
            raise SourceRefused("PRIVATE_KEY is no RSA key in PEM.") from None
        except ValueError as error:
            raise SourceError(f"GitHub's answer cannot be read: {type(error).__name__}.") from None
        self._read_clock(answer.headers)
        if answer.headers.get("x-ratelimit-remaining") == "0":
            # The next one would be refused, and an app that goes on asking may be shut out.
            self._closed_until = time.monotonic() + self._pause_of(answer.headers)
        return answer

    def _client(self, owner: str) -> Any:
        """The client for what belongs to an owner; an app asks there as its installation."""
        if "" not in self._clients:
            self._clients[""] = self._new_client(self.login())
        app = self._clients[""].auth
        if not owner or not isinstance(app, AppAuthStrategy):
            return self._clients[""]
        if owner not in self._clients:
            number = document(self._ask("GET", f"{owner}/installation", "", {}))["id"]
            login = AppInstallationAuthStrategy(app.app_id, app.private_key, number)
            self._clients[owner] = self._new_client(login)
        return self._clients[owner]

    def _new_client(self, login: Any) -> Any:
        return GitHub(
            login,
            base_url=self.base_url,
            timeout=TIMEOUT,
            auto_retry=False,
            http_cache=False,
            user_agent="django-webhook-idempotency",
        )

    def _refusal(self, answer: httpx.Response, method: str) -> SourceError:
        """What an answer means that is no success; nothing of its text is told."""
        status = answer.status_code
        self._read_clock(answer.headers)
        if status in _LIMITED and (
            "retry-after" in answer.headers
            or answer.headers.get("x-ratelimit-remaining") == "0"
            or status not in _REFUSALS
            or b"secondary rate" in answer.content
        ):
            return RateLimited(self._pause_of(answer.headers))
        if method == "POST" and status in _NOT_AGAIN:
            return NotSentAgain(
                f"GitHub answered a redelivery with {status}. Whoever asks for one has to be "
                "allowed to write webhooks."
            )
        if status in _REFUSALS:
            return SourceRefused(
                f"GitHub answered {status}. Is there such a hook, and is TOKEN or PRIVATE_KEY "
                "still valid and allowed to read webhooks?"
            )
        return SourceError(f"GitHub answered {status}.")

    def _read_clock(self, headers: Any) -> None:
        try:
            told = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        self.offset = told - datetime.now(UTC)

    def _pause_of(self, headers: Any) -> float:
        """Seconds that GitHub asks to wait; its clock counts where it names a time."""
        after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
        if after.isdigit():
            return float(after)
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(1.0, int(reset) - self.now().timestamp() + 1)
        return DEFAULT_PAUSE


def document(answer: Any) -> Any:
    """The JSON of an answer. Raises SourceError."""
    try:
        return answer.json()
    except ValueError:
        raise SourceError("GitHub's answer is no JSON.") from None


def token_login(token: str) -> Any:
    """Log in with a token."""
    return TokenAuthStrategy(token)


def app_login(app_id: str, private_key: str) -> Any:
    """Log in as an app."""
    return AppAuthStrategy(app_id, private_key)
