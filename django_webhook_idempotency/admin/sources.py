"""What the admin says of a provider, also of one that is no longer configured."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from ..conf import conf
from ..providers import Provider, configured_provider


@dataclass(frozen=True)
class Source:
    """A provider by the slug that its rows carry; `deadline` is in seconds."""

    slug: str
    name: str
    deadline: float | None = None
    provider: Provider | None = None

    @property
    def label(self) -> str:
        """The provider's name, with the slug where the project chose its own."""
        if self.provider is None or self.slug == self.provider.slug:
            return self.name
        return f"{self.name} ({self.slug})"


def source_of(slug: str) -> Source:
    """The provider behind a slug; of one that the settings don't explain, the slug is all."""
    try:
        provider = configured_provider(slug)
    except ImproperlyConfigured:
        return Source(slug, slug)
    return Source(slug, provider.name or slug, provider.deadline, provider)


def configured_sources() -> list[Source]:
    """The providers that the settings name, by label."""
    return sorted(map(source_of, conf.providers), key=lambda source: source.label.lower())
