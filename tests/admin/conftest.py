"""What the tests of the admin share."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from tests.admin.sample import Sample

APP = "django_webhook_idempotency"
EVENTS = "webhookevent"
DELIVERIES = "webhookdelivery"


def address(model: str, pk: int | None = None) -> str:
    """The address of a list, or of a row's page."""
    if pk is None:
        return reverse(f"admin:{APP}_{model}_changelist")
    return reverse(f"admin:{APP}_{model}_change", args=[pk])


@pytest.fixture
def sample(db: None) -> Sample:
    """Give a maker of events, deliveries and runs."""
    return Sample()


@pytest.fixture
def listed(admin_client: Client) -> Callable[..., list[int]]:
    """Give a function that reads a list page and returns the numbers of its rows."""

    def read(model: str, **parameters: Any) -> list[int]:
        response = admin_client.get(address(model), parameters)
        assert response.status_code == 200, response.get("Location")
        return [row.pk for row in response.context["cl"].result_list]

    return read


@pytest.fixture
def text_of(admin_client: Client) -> Callable[..., str]:
    """Give a function that returns a page as a person reads it, entities decoded."""

    def read(path: str, **parameters: Any) -> str:
        response = admin_client.get(path, parameters)
        assert response.status_code == 200, response.get("Location")
        return unescape(response.content.decode())

    return read


@pytest.fixture
def staff_client(client: Client, db: None) -> Callable[..., Client]:
    """Give a function that logs in a member of staff with the permissions named."""

    def log_in(*codenames: str) -> Client:
        user = User.objects.create_user("staff", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client.force_login(user)
        return client

    return log_in
