#!/usr/bin/env python3
"""Compile each catalogue of the package and compare it with the committed .mo beside it."""

import gettext
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "django_webhook_idempotency"


def messages(path):
    with path.open("rb") as file:
        return gettext.GNUTranslations(file)._catalog


def problem(po):
    mo = po.with_suffix(".mo")
    if not mo.exists():
        return f"{mo} is missing: run django-admin compilemessages"
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "django.mo"
        done = subprocess.run(
            ["msgfmt", "--check", "-o", compiled, po], capture_output=True, text=True
        )
        if done.returncode:
            return done.stderr
        if messages(compiled) != messages(mo):
            return f"{mo} is older than its .po: run django-admin compilemessages"
    return None


catalogues = sorted(PACKAGE.glob("locale/*/LC_MESSAGES/*.po"))
problems = [found for found in map(problem, catalogues) if found]
print("\n".join(problems) or f"{len(catalogues)} catalogues are compiled")
sys.exit(bool(problems))
