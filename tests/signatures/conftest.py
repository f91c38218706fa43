from __future__ import annotations

import hmac

import pytest


@pytest.fixture
def compared(monkeypatch) -> list[tuple[bytes, bytes]]:
    """Collect what is compared in constant time, pair by pair."""
    pairs = []
    compare_digest = hmac.compare_digest

    def counted(expected, candidate):
        pairs.append((expected, candidate))
        return compare_digest(expected, candidate)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    return pairs
