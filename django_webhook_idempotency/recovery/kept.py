"""A quarantined delivery as it came, as far as it was kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..exceptions import MalformedWebhook
from ..models import QuarantinedDelivery, displayable
from ..providers import Incoming, Provider
from ..providers.incoming import media_type
from ..signatures import Message


class UndeclaredHeader(MalformedWebhook):
    """A kept delivery was asked for something that is not kept."""


class Kept(Mapping[str, str]):
    """What was kept of a request's headers or query.

    To ask for what is not kept raises UndeclaredHeader: who takes it for absent could read another
    event id than the request's.
    """

    def __init__(self, values: Mapping[str, str], declared: Iterable[str]) -> None:
        self._values = values
        self._declared = frozenset(declared)

    def __getitem__(self, name: str) -> str:
        if name not in self._declared:
            raise UndeclaredHeader(
                f"{name!r} is not kept in the quarantine. Name it in the provider's "
                "identifying_headers, if it is a header and no secret."
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def incoming_of(row: QuarantinedDelivery, provider: Provider) -> Incoming:
    """A kept delivery as it came, as far as it was kept."""
    bare, charset = media_type(row.content_type)
    headers = {**row.signed_headers, "content-type": row.content_type}
    declared = provider.signed_headers | {"content-type"}
    message = Message(bytes(row.body), Kept(headers, declared))
    return Incoming(message, bare, charset, query=Kept({}, ()))


def kept_headers(row: QuarantinedDelivery, provider: Provider) -> dict[str, str]:
    """What the delivery's row shows of the headers: none that authenticates."""
    shown = {name.lower() for name in provider.kept_headers}
    headers = {"content-type": row.content_type, **row.signed_headers}
    return {
        name: displayable(value)
        for name, value in headers.items()
        if name in shown or name == "content-type"
    }
