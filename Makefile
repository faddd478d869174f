# Every target makes the environment it needs; a bare machine with Python 3.11 or newer is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Tests wait for servers half of the time: one process more than there are cores. Heavy ones keep a core busy each.
CROWD = --dist loadfile --no-loadscope-reorder -n $(shell $(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
HEAVY_CROWD := --dist loadfile --no-loadscope-reorder -n auto --maxprocesses 4

.PHONY: help setup kernels run test test-heavy test-all conformance fuzz-promql fuzz-logql fuzz-loki check fix golden bench lock peers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## the environment in .venv, from the hashed lock

$(STAMP): requirements.lock pyproject.toml demo/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lakerunner needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e . -e demo
	@touch $@

kernels: setup ## compile what is compiled at the first start otherwise
	@$(BIN)/python -m lakerunner.services.warm

run: setup ## start everything with demo data and keep it running (Ctrl-C stops)
	$(BIN)/lakerunner demo --home .lakerunner

# Half of the start of a JVM, for each of some hundred that the tests start.
ARCHIVE := .cache/spark.jsa
$(ARCHIVE): $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m servers.spark_archive $@

test: kernels $(ARCHIVE) ## the tests, in one process more than there are cores (four at most)
	$(BIN)/pytest -m "not slow and not heavy" $(CROWD)

test-heavy: kernels $(ARCHIVE) ## what takes longer: whole lakes started and killed, Spark sessions; CI runs it after `make test`
	$(BIN)/pytest -m "heavy and not slow" $(HEAVY_CROWD)

test-all: kernels $(ARCHIVE) ## all tests, the slow ones too, on newly drawn examples
	EXAMPLES=random $(BIN)/pytest

conformance: kernels ## scripts of load and eval through the engine; SCRIPTS="FILE-OR-FOLDER ..." for others
	@CALLER=$(PWD) PYTHONPATH=tests $(BIN)/python -m conformance.run $(SCRIPTS)

fuzz-promql: kernels ## random queries beside a real Prometheus (make peers); QUERIES=10000 SEED=1 HTTP= NAMES=
	@PYTHONPATH=tests $(BIN)/python -m fuzz.promql.run --queries $(or $(QUERIES),10000) --seed $(or $(SEED),1) $(if $(HTTP),--http) $(if $(NAMES),--names-at-once)

fuzz-logql: kernels ## random LogQL against a slow evaluator, in lakes of several forms; QUERIES=10000 SEED=1 EVERY=1
	@PYTHONPATH=tests $(BIN)/python -m fuzz.logql.run --queries $(or $(QUERIES),10000) --seed $(or $(SEED),1) --every $(or $(EVERY),1)

fuzz-loki: kernels ## random LogQL beside a real Loki (make peers); QUERIES=2000 SEED=1
	@PYTHONPATH=tests $(BIN)/python -m fuzz.logql.beside_loki --queries $(or $(QUERIES),2000) --seed $(or $(SEED),1)

check: setup ## ruff, mypy, import-linter; the size rules are tests/test_house.py
	$(BIN)/ruff format --check src demo tests bench
	$(BIN)/ruff check src demo tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_house.py

fix: setup ## format and mend what ruff can mend
	$(BIN)/ruff format src demo tests bench
	$(BIN)/ruff check --fix src demo tests bench

golden: kernels ## rewrite the golden files; read the diff
	GOLDEN=rewrite $(BIN)/pytest tests/lakeql tests/plan tests/promql tests/pipeline/test_inputs_golden.py -k golden

bench: kernels ## every benchmark, ratios in one run
	@for file in bench/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

lock: ## requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --upgrade -o requirements.lock

peers: ## build real Prometheus and collector for the peer tests, outside the repo (needs Go)
	peers/build

clean: ## forget the environment and the demo's data
	rm -rf $(VENV) .cache .lakerunner
