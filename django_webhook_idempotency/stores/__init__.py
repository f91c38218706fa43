"""Who may run: leases of work that cannot share a transaction with the event."""

from __future__ import annotations

from .base import LeaseStore, lease_store

__all__ = ["LeaseStore", "lease_store"]
