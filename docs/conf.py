"""How Sphinx builds these pages: `make docs`."""

from django_webhook_idempotency import __version__

project = "django-webhook-idempotency"
author = "django-webhook-idempotency contributors"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"{project} {release}"
