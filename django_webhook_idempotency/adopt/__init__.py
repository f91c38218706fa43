"""Take over the ids that another table remembers, so that nothing is processed once more."""

from __future__ import annotations

from .adopting import Adoption, Report, wrong_scope
from .djstripe import DjStripe
from .rows import AdoptError, Bad, Row, Scopes
from .sheets import Sheet
from .tables import Columns, Table

__all__ = [
    "AdoptError",
    "Adoption",
    "Bad",
    "Columns",
    "DjStripe",
    "Report",
    "Row",
    "Scopes",
    "Sheet",
    "Table",
    "wrong_scope",
]
