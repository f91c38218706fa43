"""GitHub as far as recovery asks it: hooks, their deliveries, pages, limits, and a clock.

Written from the schemas of its REST description: `hook-delivery-item`, `hook-delivery`,
`installation` and `basic-error`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "github_pat_public_and_only_for_the_tests"
SECRET = "It's a Secret to Everybody"
APP_HOOK = 77
_LIST = re.compile(r"(/repos/[^/]+/[^/]+/hooks/\d+|/orgs/[^/]+/hooks/\d+|/app/hook)/deliveries")


@dataclass
class Event:
    """Something that happened, and the body that tells of it."""

    guid: str
    name: str
    action: str | None
    body: bytes


@dataclass
class Canned:
    """An answer that is given instead of the next ones to requests of a method."""

    method: str
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"message": "Sorry"}'
    times: int = 1
    after: int = 0


@dataclass
class FakeGitHub:
    """The state behind the server; `requests` are method and path of what was asked."""

    port: int = 0
    target: str = ""
    offset: timedelta = timedelta(0)
    page_size: int = 100
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    #: Says whether a JSON Web Token is the app's.
    knows_app: Callable[[str], bool] = lambda token: False
    events: dict[str, Event] = field(default_factory=dict)
    deliveries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    canned: list[Canned] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    #: What a redelivery is answered with instead of being posted to the target.
    redelivers: bool = True

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 1000
        self.posting = ThreadPoolExecutor(4)
        self.posted: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def attempts(self) -> list[str]:
        """The deliveries that were asked for again."""
        return [path for method, path in self.requests if method == "POST"]

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def happen(self, name: str = "push", action: str | None = None, **more: Any) -> Event:
        document = {"n": len(self.events), **({"action": action} if action else {}), **more}
        event = Event(str(uuid.uuid4()), name, action, json.dumps(document).encode())
        self.events[event.guid] = event
        return event

    def note(
        self,
        hook: str,
        event: Event,
        status_code: int,
        status: str = "",
        *,
        age: timedelta = timedelta(hours=1),
        redelivery: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Put a delivery into a hook's list, the newest first, whatever really came of it."""
        with self.lock:
            self.number += 1
            delivered_at = (self.now() - age).strftime("%Y-%m-%dT%H:%M:%SZ")
            item = {
                "id": self.number,
                "guid": event.guid,
                "delivered_at": delivered_at,
                "redelivery": redelivery,
                "duration": 0.27,
                "status": status or ("OK" if 200 <= status_code < 300 else "failed"),
                "status_code": status_code,
                "event": event.name,
                "action": event.action,
                "installation_id": None,
                "repository_id": 1,
                "throttled_at": None,
                **more,
            }
            items = self.deliveries.setdefault(hook, [])
            items.append(item)
            items.sort(key=lambda each: (each["delivered_at"], each["id"]), reverse=True)
            return item

    def post(self, hook: str, event: Event) -> int:
        """Really send an event, signed; the status that was answered."""
        signature = hmac.new(SECRET.encode(), event.body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/044aadd",
            "X-GitHub-Delivery": event.guid,
            "X-GitHub-Event": event.name,
            "X-GitHub-Hook-ID": str(hook_id(hook)),
            "X-Hub-Signature-256": f"sha256={signature}",
        }
        parts = urlsplit(self.target)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            connection.request("POST", parts.path, event.body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def deliver(self, hook: str, event: Event, **more: Any) -> dict[str, Any]:
        """Send an event and note what was answered."""
        return self.note(hook, event, self.post(hook, event), **more)

    def redeliver(self, hook: str, item: dict[str, Any]) -> None:
        event = self.events[item["guid"]]
        self.deliver(hook, event, age=timedelta(0), redelivery=True)

    def wait(self) -> None:
        """Wait until everything that was to be sent again has been."""
        while self.posted:
            self.posted.pop().result(30)


def hook_id(hook: str) -> int:
    return APP_HOOK if hook == "/app/hook" else int(hook.rpartition("/")[2])


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    fake: FakeGitHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.respond("GET")

    def do_POST(self) -> None:
        self.respond("POST")

    def respond(self, method: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        path = parts.path.removeprefix("/api/v3")
        with self.fake.lock:
            self.fake.requests.append((method, path))
            canned = self.take_canned(method)
        if canned is not None:
            self.answer(canned.status, canned.body, canned.headers)
        elif not self.is_known(path):
            self.answer_json(401, {"message": "Bad credentials", "documentation_url": ""})
        else:
            self.route(method, path, {k: v[0] for k, v in parse_qs(parts.query).items()})

    def take_canned(self, method: str) -> Canned | None:
        for canned in self.fake.canned:
            if canned.method == method and canned.times:
                if canned.after:
                    canned.after -= 1
                    return None
                canned.times -= 1
                return canned
        return None

    def is_known(self, path: str) -> bool:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if path.startswith("/app") or path.endswith("/installation"):
            return kind == "Bearer" and self.fake.knows_app(token)
        return kind in ("Bearer", "token") and token in self.fake.tokens

    def route(self, method: str, path: str, query: dict[str, str]) -> None:
        fake = self.fake
        if found := re.fullmatch(rf"{_LIST.pattern}/(\d+)/attempts", path):
            return self.attempt(found[1], int(found[2])) if method == "POST" else self.missing()
        if path.endswith("/installation"):
            return self.answer_json(200, {"id": 5, "app_id": 9})
        if path.endswith("/access_tokens"):
            expires = (fake.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            fake.tokens.add("ghs_installation")
            document = {"token": "ghs_installation", "expires_at": expires}
            return self.answer_json(201, document)
        if found := re.fullmatch(_LIST, path):
            return self.page(found[1], query)
        if found := re.fullmatch(rf"{_LIST.pattern}/(\d+)", path):
            return self.one(found[1], int(found[2]))
        return self.missing()

    def page(self, hook: str, query: dict[str, str]) -> None:
        items = self.fake.deliveries.get(hook)
        if items is None:
            return self.missing()
        size = min(int(query.get("per_page", 30)), self.fake.page_size)
        first = int(query.get("cursor", "0"))
        start = [item["id"] for item in items].index(first) if first else 0
        rest = items[start:]
        headers = {}
        if len(rest) > size:
            following = f"{self.fake.url}{urlsplit(self.path).path}"
            following += f"?per_page={size}&cursor={rest[size]['id']}"
            headers["Link"] = f'<{following}>; rel="next"'
        return self.answer_json(200, rest[:size], headers)

    def one(self, hook: str, number: int) -> None:
        for item in self.fake.deliveries.get(hook, ()):
            if item["id"] == number:
                headers = {"X-GitHub-Hook-ID": str(hook_id(hook)), "Accept": "*/*"}
                document = {**item, "request": {"headers": headers, "payload": {}}}
                return self.answer_json(200, document)
        return self.missing()

    def attempt(self, hook: str, number: int) -> None:
        fake = self.fake
        for item in fake.deliveries.get(hook, ()):
            if item["id"] == number:
                if fake.redelivers:
                    fake.posted.append(fake.posting.submit(fake.redeliver, hook, item))
                return self.answer_json(202, {})
        return self.missing()

    def missing(self) -> None:
        self.answer_json(404, {"message": "Not Found", "documentation_url": ""})

    def answer_json(self, status: int, document: Any, headers: Any = None) -> None:
        self.answer(status, json.dumps(document).encode(), headers or {})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        now = self.fake.now()
        self.send_header("Date", now.strftime("%a, %d %b %Y %H:%M:%S GMT"))
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def running(fake: FakeGitHub) -> Iterator[FakeGitHub]:
    """Serve until the test is over."""
    handler = type("BoundHandler", (Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.wait()
        fake.posting.shutdown()
        server.shutdown()
        server.server_close()
        thread.join(10)
