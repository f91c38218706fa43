"""The app of the shop."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """`example_project.shop` in INSTALLED_APPS."""

    name = "example_project.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
