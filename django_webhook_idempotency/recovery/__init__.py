"""Ask the provider what we did not get, and get it."""

from __future__ import annotations

from .base import NotSentAgain, RateLimited, Sent, Source, SourceError, SourceRefused
from .configured import Recovery, recoveries, recovery_of
from .credentials import Credential, credential
from .report import LINES, Allowance, SourceReport
from .runner import recover, recover_all

__all__ = [
    "LINES",
    "Allowance",
    "Credential",
    "NotSentAgain",
    "RateLimited",
    "Recovery",
    "Sent",
    "Source",
    "SourceError",
    "SourceRefused",
    "SourceReport",
    "credential",
    "recover",
    "recover_all",
    "recoveries",
    "recovery_of",
]
