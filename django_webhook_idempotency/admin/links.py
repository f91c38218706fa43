"""Links between the pages of the ledger."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth import get_permission_codename
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the person may see rows of a model."""
    options = model._meta
    codename = get_permission_codename("view", options)
    return request.user.has_perm(f"{options.app_label}.{codename}")


def list_link(model: type[Model], **parameters: object) -> str:
    """The address of a model's list, limited by its filters."""
    options = model._meta
    address = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    return f"{address}?{urlencode(parameters)}" if parameters else address


def row_link(model: type[Model], pk: int) -> str:
    """The address of a row's page."""
    options = model._meta
    return reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[pk])


def with_link(address: str, text: str) -> SafeString:
    """Text that links to an address."""
    return format_html('<a href="{}">{}</a>', address, text)
