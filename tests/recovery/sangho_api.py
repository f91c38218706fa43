"""Sangho's deliveries, as far as its official client says what they are.

PyPI sangho 0.2.0: the paths, the key, the errors and `PaginatedResponse` are the client's. What
stands in a delivery is not published: the tests try several spellings.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from .http_api import Api, Asked, Reply

KEY = "sk_test_public_and_only_for_the_tests"
EXPIRED_KEY = "sk_test_expired_and_only_for_the_tests"
OTHER_KEY = "sk_test_of_another_project_for_the_tests"
PATH = re.compile(r"/v1/webhooks/([^/]+)/deliveries/(?:([^/]+)/(retry/)?)?")


def error(status: int, code: str, message: str, **headers: str) -> Reply:
    """An error as the client reads it."""
    return Reply(status, {"code": code, "message": message}, headers)


class SanghoApi(Api):
    """The deliveries of each endpoint, the newest first."""

    page_size = 20

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: dict[str, list[dict[str, Any]]] = {"we_1": []}
        #: The fields that the list leaves out.
        self.left_out: set[str] = set()
        self.retried: list[str] = []

    def add(
        self,
        delivery_id: Any,
        event_id: str,
        event_type: str = "payment.succeeded",
        *,
        endpoint: str = "we_1",
        age: float = 3600,
        delivered: bool = False,
        **more: Any,
    ) -> None:
        """Add a delivery that was made `age` seconds ago."""
        made = datetime.fromtimestamp(self.now() - age, UTC)
        delivery = {
            "id": delivery_id,
            "object": "webhook_delivery",
            "event_id": event_id,
            "event_type": event_type,
            "status": "succeeded" if delivered else "failed",
            "status_code": 200 if delivered else 500,
            "created_at": made.isoformat(),
            **more,
        }
        self.add_raw(delivery, endpoint)

    def add_raw(self, delivery: dict[str, Any], endpoint: str = "we_1") -> None:
        """Add a delivery as it is to be given."""
        self.deliveries.setdefault(endpoint, []).insert(0, delivery)

    def answer(self, asked: Asked) -> Reply:
        """What the API answers to one of the client's requests."""
        key = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if key == EXPIRED_KEY:
            return error(401, "api_key_expired", f"The key {key} has expired.")
        found = PATH.fullmatch(asked.path)
        if found is None:
            return error(404, "not_found", "No such route.")
        endpoint, delivery_id, retry = found.groups()
        if key == OTHER_KEY:
            return error(403, "permission_denied", f"The key {key} may not do this.")
        rows = self.deliveries.get(endpoint)
        if rows is None:
            return error(404, "not_found", "No such endpoint.")
        if delivery_id is None:
            return self._list(asked, rows)
        row = next((row for row in rows if str(row["id"]) == delivery_id), None)
        if row is None:
            return error(404, "not_found", "No such delivery.")
        if retry and asked.method == "POST":
            self.retried.append(delivery_id)
        return Reply(body=row)

    def _list(self, asked: Asked, rows: list[dict[str, Any]]) -> Reply:
        page = int(asked.params.get("page", 1))
        last = page * self.page_size
        following = f"https://elsewhere.example/v1/x/?page={page + 1}" if len(rows) > last else None
        shown = [
            {name: value for name, value in row.items() if name not in self.left_out}
            for row in rows[last - self.page_size : last]
        ]
        return Reply(
            body={"count": len(rows), "next": following, "previous": None, "data": shown},
        )
