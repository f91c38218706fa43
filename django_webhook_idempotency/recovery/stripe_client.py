"""A client of Stripe's API for one look at one account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import stripe
from requests import Response, Session


class _Straight(Session):
    """Follows no redirect: what another host says is no event of Stripe's."""

    def get_redirect_target(self, resp: Response) -> str | None:
        return None


@contextmanager
def client_of(
    key: str, account: str, api_base: str | None, timeout: float
) -> Iterator[stripe.StripeClient]:
    """A client of our own: nobody else's retries, and no connection that outlives the block."""
    http = stripe.RequestsClient(
        timeout=timeout,
        session=_Straight(),
        proxy=stripe.proxy,
        verify_ssl_certs=stripe.verify_ssl_certs,
    )
    with closing(http):
        yield stripe.StripeClient(
            key,
            stripe_account=account or None,
            base_addresses={"api": api_base} if api_base else {},
            http_client=http,
            max_network_retries=0,
        )
