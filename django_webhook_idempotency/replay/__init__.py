"""Run the handlers again on stored events: chosen, counted, and with who and why written down."""

from __future__ import annotations

from .arming import Request
from .choosing import Choice, UnknownEvents
from .preview import Preview, preview
from .refusals import Refusal, Refused
from .reports import Fate, Line, Report
from .running import Replayer, replay

__all__ = [
    "Choice",
    "Fate",
    "Line",
    "Preview",
    "Refusal",
    "Refused",
    "Replayer",
    "Report",
    "Request",
    "UnknownEvents",
    "preview",
    "replay",
]
