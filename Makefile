.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
POSTGRES_URL ?= postgres://postgres@127.0.0.1:5432/webhooks
MARIADB_URL ?= mysql://root@127.0.0.1:3306/webhooks
export POSTGRES_URL MARIADB_URL

python := $(VENV)/bin/python
pip_install := $(python) -m pip install --quiet --disable-pip-version-check -c constraints.txt
manage := DJANGO_SETTINGS_MODULE=tests.settings $(python) -m django

# One environment with a stamp for each dependency group in it: `make demo` waits for nothing that
# only the tests need, and a change of pyproject.toml or constraints.txt installs anew.
stamp := $(VENV)/.installed-

.PHONY: help venv demo test test-sqlite test-postgres test-mariadb lint docs bench
.SECONDARY:

help:
	@echo "make demo    see it work (ARGS=--exit to stop after the table)"
	@echo "make test    the tests on SQLite, then on PostgreSQL and MariaDB where they run (ARGS go to pytest)"
	@echo "make lint    ruff, mypy, import-linter, missing migrations"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make bench   measure (ARGS go to the benchmarks)"
	@echo "make messages  collect and compile the texts to translate"
	@echo "make venv    only make $(VENV), with all of the above in it"

$(stamp)base: pyproject.toml constraints.txt
	@test -x $(python) || $(PYTHON) -m venv $(VENV)
	@$(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: rm -r $(VENV), then make PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(python) -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(pip_install) --editable .
	@touch $@

$(stamp)%: $(stamp)base
	@$(pip_install) --group $*
	@touch $@

# Not at once, whatever --jobs is: they install into one environment.
$(stamp)beat: | $(stamp)test
$(stamp)mariadb: | $(stamp)beat

# Apart, because mysqlclient is compiled: without its headers the MariaDB run is skipped.
$(stamp)mariadb: $(stamp)base
	@if $(pip_install) --group mariadb 2>$(VENV)/mysqlclient.log; then touch $@; else \
		echo "mysqlclient could not be built: install libmariadb-dev, pkg-config and a C compiler" \
			"(more in $(VENV)/mysqlclient.log)"; fi

venv: $(stamp)demo $(stamp)test $(stamp)beat $(stamp)mariadb $(stamp)lint $(stamp)docs

demo: $(stamp)demo
	@$(python) -m example_project.demo $(ARGS)

# A run whose database is away skips every test and says why; WEBHOOK_TEST_REQUIRE_SERVICES=1 fails it.
# CI lets them run at once: make --jobs=3 --output-sync=target test
test: test-sqlite test-postgres test-mariadb

test-sqlite test-postgres test-mariadb: $(stamp)test $(stamp)beat $(stamp)mariadb
	@echo "== $(title)"
	@DATABASE_URL=$(url) $(python) -m pytest $(ARGS)

test-sqlite: title := SQLite
test-postgres: title := PostgreSQL
test-postgres: url = $(POSTGRES_URL)
test-mariadb: title := MariaDB
test-mariadb: url = $(MARIADB_URL)

lint: $(stamp)lint
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(VENV)/bin/lint-imports
	DEFAULT_AUTO_FIELD=django.db.models.AutoField $(manage) makemigrations --check --dry-run django_webhook_idempotency
	DEFAULT_AUTO_FIELD=django.db.models.BigAutoField $(manage) makemigrations --check --dry-run django_webhook_idempotency

docs: $(stamp)docs
	$(python) -m sphinx --fail-on-warning --keep-going -b html docs docs/_build/html

bench: $(stamp)test $(stamp)demo $(stamp)mariadb
	@test -f benchmarks/__main__.py || { echo "There are no benchmarks yet: benchmarks/__main__.py is missing."; exit 1; }
	@$(python) -m benchmarks $(ARGS)

# Texts of the admin: collect them from the source, fill English in, compile. Spanish and French are
# translated by hand in the .po files; run it again afterwards.
english := locale/en/LC_MESSAGES/django.po
.PHONY: messages
messages: $(stamp)base
	@cd django_webhook_idempotency && \
		$(abspath $(python)) -m django makemessages -l en -l es -l fr --no-obsolete --add-location file && \
		msgattrib --clear-fuzzy --empty --add-location=file -o $(english) $(english) && \
		msgen --add-location=file -o $(english) $(english) && \
		$(abspath $(python)) -m django compilemessages
