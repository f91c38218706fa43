"""Purge what is old: keys, bodies and deliveries, each after a time of its own."""

from __future__ import annotations

from .known import purge_known
from .policies import Policy, known_providers, policy_of
from .purge import OutOfTime, Progress, Purge
from .walks import Kind

__all__ = [
    "Kind",
    "OutOfTime",
    "Policy",
    "Progress",
    "Purge",
    "known_providers",
    "policy_of",
    "purge_known",
]
