"""GitHub's REST API as far as recovery needs it, over the client PyGithub.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..exceptions import MissingExtra
from .base import NotSentAgain, RateLimited, SourceError, SourceRefused

try:
    from github import Auth, Github, GithubException
    from requests import RequestException
except ImportError:
    raise MissingExtra("github", "Asking GitHub for deliveries") from None

PUBLIC = "https://api.github.com"
#: https://docs.github.com/en/rest/about-the-rest-api/api-versions
VERSION = "2022-11-28"
#: Seconds that an answer may take.
TIMEOUT = 20
#: Seconds of pause where GitHub does not say how long, as its page on rate limits asks.
DEFAULT_PAUSE = 60.0
_REFUSALS = frozenset({401, 403, 404})
_TOO_MANY = 429
#: Answers to a redelivery that may be meant for the one delivery.
_NOT_AGAIN = frozenset({400, 404, 410, 422})
_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="next"')


class GitHubAPI:
    """One login to GitHub. It never tries again by itself: whoever calls knows what a pause costs.

    `login` makes the client's authentication when it is first needed; `pause` is the time in
    seconds between two requests that change something.
    """

    def __init__(self, base_url: str, login: Callable[[], Any], pause: float) -> None:
        self.base_url = base_url
        self.login = login
        self.pause = pause
        #: How far GitHub's clock is ahead of ours.
        self.offset = timedelta(0)
        self._clients: dict[str, Github] = {}
        self._closed_until = 0.0

    def now(self) -> datetime:
        """The time by GitHub's clock, as its last answer said."""
        return datetime.now(UTC) + self.offset

    def get(self, path: str, owner: str = "", **params: Any) -> tuple[Any, str]:
        """The document at a path, and the cursor of the next page, empty after the last.

        `owner` is the path of whatever an app's installation stands for.
        """
        headers, document = self._ask("GET", path, owner, params)
        # Of the link only the cursor is taken: a token follows no link to another host.
        following = _NEXT.search(headers.get("link", ""))
        query = urlsplit(following[1]).query if following else ""
        return document, parse_qs(query).get("cursor", [""])[0]

    def post(self, path: str, owner: str = "") -> None:
        """Ask for something to be done."""
        self._ask("POST", path, owner, {})

    def _ask(
        self, method: str, path: str, owner: str, params: dict[str, Any]
    ) -> tuple[Mapping[str, str], Any]:
        left = self._closed_until - time.monotonic()
        if left > 0:
            raise RateLimited(left)
        try:
            client = self._client(owner)
            headers, document = client.requester.requestJsonAndCheck(
                method, path, params, {"X-GitHub-Api-Version": VERSION}
            )
        except GithubException as error:
            raise self._refusal(error, method) from None
        except RequestException as error:
            raise SourceError(f"GitHub cannot be asked: {type(error).__name__}.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"GitHub's answer cannot be read: {type(error).__name__}.") from None
        except RuntimeError:
            raise SourceRefused("GitHub redirects to elsewhere. Is BASE_URL right?") from None
        self._read_clock(headers)
        if headers.get("x-ratelimit-remaining") == "0":
            # The next one would be refused, and an app that goes on asking may be shut out.
            self._closed_until = time.monotonic() + self._pause_of(headers)
        return headers, document

    def _client(self, owner: str) -> Github:
        """The client for what belongs to an owner; an app asks there as its installation."""
        if "" not in self._clients:
            self._clients[""] = self._new_client(self.login())
        app = self._clients[""].requester.auth
        if not owner or not isinstance(app, Auth.AppAuth):
            return self._clients[""]
        if owner not in self._clients:
            _, installation = self._ask("GET", f"{owner}/installation", "", {})
            login = Auth.AppInstallationAuth(app, int(installation["id"]))
            self._clients[owner] = self._new_client(login)
        return self._clients[owner]

    def _new_client(self, login: Any) -> Github:
        return Github(
            auth=login,
            base_url=self.base_url.rstrip("/"),
            timeout=TIMEOUT,
            retry=None,
            seconds_between_requests=0,
            seconds_between_writes=self.pause,
            user_agent="django-webhook-idempotency",
        )

    def _refusal(self, error: GithubException, method: str) -> SourceError:
        """What an answer means that is no success; nothing of its text is told."""
        status, headers = error.status, error.headers or {}
        self._read_clock(headers)
        if status == _TOO_MANY or (
            status in _REFUSALS
            and (
                "retry-after" in headers
                or headers.get("x-ratelimit-remaining") == "0"
                or "rate limit" in str(error.data)
            )
        ):
            return RateLimited(self._pause_of(headers))
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

    def _read_clock(self, headers: Mapping[str, str]) -> None:
        try:
            told = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        if told.tzinfo is not None:
            self.offset = told - datetime.now(UTC)

    def _pause_of(self, headers: Mapping[str, str]) -> float:
        """Seconds that GitHub asks to wait; its clock counts where it names a time."""
        after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
        if after.isdecimal():
            return float(after)
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
            return max(1.0, float(reset) - self.now().timestamp() + 1)
        return DEFAULT_PAUSE


def token_login(token: str) -> Any:
    """Log in with a token."""
    return Auth.Token(token)


def app_login(app_id: str, private_key: str) -> Any:
    """Log in as an app. Raises SourceRefused if the key does not sign."""
    login = Auth.AppAuth(app_id, private_key)
    try:
        login.create_jwt()
    except Exception:
        # Its text may quote the key.
        raise SourceRefused("PRIVATE_KEY is no RSA key in PEM.") from None
    return login
