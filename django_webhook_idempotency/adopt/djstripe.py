"""dj-stripe's table of events, which it writes in one transaction with what its handlers do.

https://github.com/dj-stripe/dj-stripe
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..exceptions import MalformedWebhook
from ..providers import Incoming
from ..providers.identity import compound
from ..providers.stripe import Stripe, mode_of
from .rows import Bad, BadRow, Row, id_of, moment_of, text_of
from .tables import Walk, columns_of

TABLE = "djstripe_event"
ACCOUNTS = "djstripe_account"
OWNER = "djstripe_owner_account_id"
#: The whole event, in versions that keep it.
DOCUMENT = "stripe_data"


@dataclass(frozen=True)
class DjStripe:
    """The events of dj-stripe, scoped as our provider scopes them.

    Where a row does not hold the whole event, its account is that of the row, or none if that is
    one of `own_accounts`: Stripe names no account in an event of one's own.
    """

    using: str
    provider: Stripe
    own_accounts: Collection[str] = ()
    url_scope: str = ""
    table: str = TABLE

    def rows(self) -> Iterator[Row | Bad]:
        """Every row, in the order of the ids. Raises AdoptError."""
        wanted = ["id", "type", "created", "livemode", OWNER]
        if DOCUMENT in columns_of(self.using, self.table):
            wanted.append(DOCUMENT)
        names: dict[Any, str] = {}
        for number, cells in enumerate(Walk(self.using, self.table, "id", wanted).rows(), start=1):
            place = f"row {number}"
            try:
                yield Row(
                    place,
                    id_of(cells["id"]),
                    text_of(cells["type"], "type"),
                    moment_of(cells["created"]),
                    self._scope(cells, names),
                    self.url_scope,
                )
            except BadRow as bad:
                yield Bad(place, str(bad))

    def _scope(self, cells: Mapping[str, Any], names: dict[Any, str]) -> str:
        """What our provider would make the scope of the event."""
        document = _document(cells.get(DOCUMENT))
        if document.get("id") == cells["id"]:
            body = json.dumps(document).encode()
            try:
                return self.provider.identify(Incoming.stored(body, "application/json")).scope
            except MalformedWebhook:
                raise BadRow("unreadable event") from None
        owner = self._account(cells[OWNER], names)
        if owner and not self.own_accounts:
            raise BadRow("its account may be your own or a connected one: name yours")
        live = cells["livemode"]
        account = "" if owner in self.own_accounts else owner
        return compound(account, mode_of(None if live is None else bool(live)))

    def _account(self, owner: Any, names: dict[Any, str]) -> str:
        """Stripe's id of an account; the foreign key may be dj-stripe's own number of it."""
        if owner is None or isinstance(owner, str):
            return text_of(owner)
        if owner not in names:
            rows = Walk(self.using, ACCOUNTS, "djstripe_id", ["djstripe_id", "id"])
            names |= {row["djstripe_id"]: text_of(row["id"]) for row in rows.rows()}
        if owner not in names:
            raise BadRow("its account is gone")
        return names[owner]


def _document(value: Any) -> Mapping[str, Any]:
    """A JSON column as the database's driver gives it."""
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
