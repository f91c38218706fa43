"""Effects without any unique constraint: two rows for one event are a double effect."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    event_id = models.CharField(max_length=255)
    name = models.CharField(max_length=64, default="")

    def __str__(self) -> str:
        return f"{self.event_id} {self.name}"
