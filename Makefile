# Every target works from a fresh clone: it makes .venv first. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

PURE := wire seam raft image control config broker.replica broker.group client.core

.PHONY: coverage help setup compiled demo test check bench interop sim docs clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(SETUP) ## make .venv with everything the other targets need

$(SETUP): pyproject.toml
	@test -L kraft/broker || { echo "This checkout has no symbolic links (kraft/broker is not one). Clone with 'git -c core.symlinks=true clone' on a file system that has them."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

compiled: $(SETUP) # modules are compiled once, also where PYTHONDONTWRITEBYTECODE keeps Python from doing it
	@$(BIN)/python -m compileall -q kraft broker client deploy sim  # it does not follow symbolic links

demo: compiled ## three controllers and three brokers, killed with kill -9 under a real client
	$(BIN)/python -m tests.demo

test: $(SETUP) ## the quick suite, in under three minutes
	$(BIN)/python -m pytest -m "not slow and not interop" -n auto --maxprocesses 4 --dist worksteal

coverage: $(SETUP) ## lines of the pure folders that their tests run; fails under 95 %
	$(BIN)/python -m pytest -m "not slow" tests/wire tests/seam tests/raft/test_[a-oq-z]*.py tests/image tests/control tests/config \
		tests/replica tests/group tests/client --ignore tests/raft/test_simulation.py $(PURE:%=--cov=kraft.%) --cov-report=term --cov-fail-under=95

check: $(SETUP) ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: compiled ## ours and the bare loops in one go, with targets and alarm values
	$(BIN)/python -m tests.bench

interop: $(SETUP) ## foreign clients (confluent-kafka, kafka-python, aiokafka, kcat, Java) against a cluster with leader kills
	tests/interop/tools.sh
	$(BIN)/python -m pytest -m interop $(PYTEST_OPTIONS) --timeout 900 -p no:unraisableexception  # sockets that foreign libraries leave open

sim: $(SETUP) ## the in-memory cluster, many seeds: make sim SEEDS=300
	$(BIN)/python -m kraft.sim --seeds $(or $(SEEDS),100)

docs: $(SETUP) ## regenerate the generated pages of docs/ and check the links
	$(BIN)/python -m tests.docs

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
