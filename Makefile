.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
python := $(VENV)/bin/python
pip_install := $(python) -m pip install --quiet --disable-pip-version-check -c constraints.txt

# One environment; a stamp for each dependency group in it, so that `make demo` waits for nothing
# that only the tests need.
stamp := $(VENV)/.installed-

.PHONY: help venv demo test lint docs bench

help:
	@echo "make demo    see it work (ARGS=--exit to stop after the table)"
	@echo "make test    SQLite, then PostgreSQL and MariaDB where they run (ARGS passes on to pytest)"
	@echo "make lint    ruff, mypy, import-linter, missing migrations"
	@echo "make docs    build the pages into docs/_build/html"
	@echo "make bench   benchmarks"
	@echo "make venv    only make $(VENV), with everything in it"

$(stamp)base: pyproject.toml constraints.txt
	@test -x $(python) || $(PYTHON) -m venv $(VENV)
	@$(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: rm -r $(VENV); make PYTHON=python3.12 ..."; exit 1; }
	@$(python) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(pip_install) --editable .
	@touch $@

$(stamp)%: $(stamp)base
	@$(pip_install) --group $*
	@touch $@

venv: $(stamp)test $(stamp)lint $(stamp)docs $(stamp)demo
	@$(pip_install) --group mariadb
