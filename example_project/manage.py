#!/usr/bin/env python
"""`python example_project/manage.py migrate`, from wherever one stands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line


def main() -> None:
    """Run one of Django's commands, or the package's."""
    # Python puts this folder first, where `shop` would be found a second time under another name.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
