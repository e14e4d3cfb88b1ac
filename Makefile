# make demo   set up what is missing, then show the whole path from a database to a table
# make test   set up what is missing, then run the tests of a commit: under a quarter of an hour on two cores
# make test-all  run these and the long tests: kills, long random runs, every scenario with real services
# make check  check formatting, lint, types, layers and dead code, and run the pure tests: under a minute
# make fuzz   N=10000 SEED=1: compare N random changelogs with the reference; shrink and print a failing one
# make mutants  insert one fault after the other into the code and check that the tests catch each
# make bench PART=small: time this project, a Delta MERGE and other table formats at the same work, each in its own
#             environment; parts: small, tables, catch-up, skewed, append, topic, archive, erasure, shredding,
#             starts (a start and the erasure of one person after --rows events and after ten times as many),
#             wide (1,200 columns, and as many cells in ten columns);
#             ARGS="--rows 5000000 --only ingest --only paimon --where"
# make soak MINUTES=10: run 500 changes a second from Postgres to silver; print how lag, files and memory change
# make docs   build the documentation as a site in `site`, with the generated reference; check every link
# make jars   fetch the jars of Spark, Kafka, Kafka Connect and Debezium now rather than at their first use, and write
#             an archive of Spark's classes, which halves the start time of sessions
# make clean  remove the environment and the files of tools and tests (not the cached jars)

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-all check fuzz mutants bench soak docs venv jars clean java

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
CLASSES := $(VENV)/.classes
AIRFLOW := .venv-airflow
AIRFLOW_STAMP := $(AIRFLOW)/.complete
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.complete
ARGS ?=
N ?= 10000
SEED ?= 1
PART ?= small
MINUTES ?= 10
NEEDED_MEGABYTES := 3000

help:
	@sed -n 's/^# make/make/p' Makefile

demo: $(STAMP) java
	@$(BIN)/ingest demo $(ARGS)

test: $(CLASSES) $(AIRFLOW_STAMP)
	@echo "testing: all but the long tests, which \`make test-all\` runs too"
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not long" $(ARGS)

test-all: $(CLASSES) $(AIRFLOW_STAMP)
	@echo "testing: everything"
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: $(STAMP)
	@echo "checking: formatting, lint"
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@echo "checking: types"
	@$(BIN)/mypy --no-error-summary
	@echo "checking: layers"
	@$(BIN)/lint-imports --no-logo > $(VENV)/layers.log 2>&1 || { cat $(VENV)/layers.log; exit 1; }
	@echo "checking: dead code"
	@$(BIN)/vulture
	@echo "testing: what needs no service"
	@$(BIN)/python -m pytest -q -n 2 -m "not spark and not integration and not long" --ignore=tests/airflow_dags --ignore=tests/docs tests

fuzz: $(STAMP) java
	@echo "testing: $(N) random changelogs, seed $(SEED)"
	@FUZZ_CASES=$(N) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -q -s --timeout=0 tests/property/test_merge.py $(ARGS)

mutants: $(STAMP) java
	@$(BIN)/python -m tests.mutants $(ARGS)

bench: $(STAMP) java
	@$(BIN)/python -m tests.bench $(PART) $(ARGS)

soak: $(STAMP) java
	@$(BIN)/python -m tests.bench.soak --minutes $(MINUTES) $(ARGS)

docs: $(STAMP) $(DOCS_STAMP)
	@$(BIN)/python -m tools.reference docs/reference
	@$(DOCS)/bin/zensical build --strict --clean

venv: $(STAMP)

jars: $(CLASSES)
	@echo "fetching: jars (a minute or two at the first time)"
	@$(BIN)/python -c "from ingest.jvm.jars import jars; [jars(name) for name in ('spark', 'kafka', 'connect', 'debezium')]; from ingest.jvm.library import library_jar; library_jar()"

# The stamp is written last: an incomplete environment is built again.
$(STAMP): pyproject.toml constraints.txt
	@free=$$(df -Pm . | awk 'NR == 2 { print $$4 }'); \
	if [ "$$free" -lt $(NEEDED_MEGABYTES) ]; then \
	  echo "This folder's disk has $$free MB free; the environment and the jars need $(NEEDED_MEGABYTES) MB." >&2; exit 2; \
	fi
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11 python3; do \
	  if [ -n "$$python" ] && "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
	    found="$$python"; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "No Python 3.11 or later with its venv module. Install one (python3.11 and python3.11-venv on Debian)," \
	       "or name yours: make PYTHON=/path/to/python3 ..." >&2; exit 2; \
	fi; \
	echo "setting up: $(VENV) with $$("$$found" --version)" && \
	"$$found" -m venv --clear $(VENV)
	@echo "setting up: packages (some minutes at the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" || { \
	  echo "The packages could not be installed; pip says why above. Check the network, then run the same again." >&2; exit 2; }
	@touch $(STAMP)

# Airflow's Spark provider depends on another pyspark, so Airflow has its own environment. ingest is installed there
# without its dependencies: DAGs only read configuration.
$(AIRFLOW_STAMP): pyproject.toml constraints-airflow.txt | $(STAMP)
	@echo "setting up: $(AIRFLOW), Airflow for its tests (some minutes at the first time)"
	@$(BIN)/python -m venv --clear $(AIRFLOW)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["airflow"], sep="\n")' \
	  > $(AIRFLOW)/requirements.txt
	@$(AIRFLOW)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-airflow.txt \
	  -r $(AIRFLOW)/requirements.txt && \
	$(AIRFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e . || { \
	  echo "Airflow could not be installed; pip says why above. Check the network, then run the same again." >&2; exit 2; }
	@touch $(AIRFLOW_STAMP)

# The generator of the site shares no package with the code.
$(DOCS_STAMP): constraints-docs.txt | $(STAMP)
	@echo "setting up: $(DOCS), the generator of the site"
	@$(BIN)/python -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r constraints-docs.txt || { \
	  echo "The generator could not be installed; pip says why above. Check the network, then run the same again." >&2; exit 2; }
	@touch $(DOCS_STAMP)

# Commands work without the archive, but each starts some seconds later.
$(CLASSES): $(STAMP) ingest/jvm/jars/ivy.xml $(wildcard ingest/jvm/java/ingest/*/*.java) | java
	@echo "setting up: jars, and an archive of Spark's classes (a minute or two at the first time)"
	@if $(BIN)/ingest jars --archive > /dev/null; then touch $(CLASSES); else echo "going on without the archive" >&2; fi

java: $(STAMP)
	@$(BIN)/python -c $$'import sys\nfrom ingest.errors import IngestError\nfrom ingest.jvm.jars import require_java\ntry:\n    require_java()\nexcept IngestError as missing:\n    sys.exit(str(missing))'

clean:
	rm -rf $(VENV) $(AIRFLOW) $(DOCS) .venv-peers site docs/reference build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
