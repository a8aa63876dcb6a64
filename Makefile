# Every target works from a fresh clone: it makes .venv first. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.installed-product
SETUP := $(VENV)/.installed

.PHONY: dead hooks changelog deploy-check bench-spark fuzz slow bugbank coverage help setup compiled demo test check bench interop sim docs clean chaos chaos-smoke tools

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name text; do \
		printf '%s\n' "$$text" | fold -s -w 64 | sed -E "1s/^/$$(printf '%-14s' "$$name")/; 2,\$$s/^/              /; s/ +\$$//"; done

setup: $(SETUP) hooks ## make .venv with everything the other targets need, and install the hook that checks commit messages

hooks: # git runs .githooks/commit-msg; left alone: a tree that is not a git clone, and hooks of your own
	@if [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ] && ! git config core.hooksPath > /dev/null; then \
	    git config core.hooksPath .githooks && echo "Installed the hook that checks commit messages: .githooks/commit-msg"; fi

# The product with what `kraft chaos` needs: all of `make demo`. pip's own lines show how far it is.
$(PRODUCT): pyproject.toml hatch_build.py kraft/wire/record_walk.py
	@test -L kraft/broker || { echo "This checkout has no symbolic links (kraft/broker is not one). Clone with 'git -c core.symlinks=true clone' on a file system that has them."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing pykraft and what its demo needs into $(VENV), once: one to two minutes."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[chaos]'
	@touch $@

$(SETUP): $(PRODUCT)
	@echo "Installing the tools for tests, checks and benchmarks into $(VENV), once: some minutes, most of it Spark."
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]'
	@touch $@

compiled: $(PRODUCT) # modules are compiled once, also where PYTHONDONTWRITEBYTECODE keeps Python from doing it
	@$(BIN)/python -m compileall -q kraft broker client deploy sim  # it does not follow symbolic links

tools: $(PRODUCT)
	@tests/chaos/tools.sh

demo: compiled tools ## the main job: a quorum and brokers behind toxiproxy, faults under a real client, and the verdict
	$(BIN)/python -m tests.demo

chaos-smoke: compiled tools ## three chaos scenarios on real processes, in under four minutes
	$(BIN)/kraft chaos campaign broker-crash controller-crash isolate-leader --out $(or $(OUT),chaos-runs)

chaos: $(SETUP) compiled tools ## every chaos scenario; the core ones and Apache Kafka beside ours: about 90 minutes; writes docs/chaos-results.json
	tests/chaos/campaign.sh $(or $(OUT),chaos-runs)

test: $(SETUP) tools ## the quick suite: nine to eleven minutes on two cores that do nothing else
	$(BIN)/python -m pytest -m "not slow and not interop and not deploy" -n auto --maxprocesses 4 --dist worksteal

slow: $(SETUP) tools ## what takes longer than the quick suite may: many seeds, shrinking, fresh processes; some minutes
	$(BIN)/python -m pytest -m "slow and not interop and not deploy" --timeout 300 --durations 20 -n auto --maxprocesses 4 --dist worksteal

coverage: $(SETUP) ## lines of the pure folders (listed in pyproject.toml) that their tests run; fails under 95 %
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 tests/wire tests/seam tests/runtime tests/raft/test_[a-oq-z]*.py tests/image tests/control tests/config \
		tests/broker/replica tests/broker/consumer_group tests/broker/group tests/broker/regular_expressions tests/broker/share_coordinator tests/broker/share_group tests/broker/share_partition tests/broker/txn tests/client/core --ignore tests/raft/test_simulation.py --cov --cov-report=term --cov-fail-under=95

check: $(SETUP) dead ## ruff, mypy --strict, import contracts, dead names, the change log, subjects of new commits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.change_log
	$(BIN)/python -m tests.architecture.commit_subjects

dead: $(SETUP) ## names of the product that nothing in it uses
	$(BIN)/python -m tests.architecture.dead_names

bench: $(SETUP) compiled ## ours, bare loops and Apache Kafka side by side, into docs/benchmarks.md; QUICK=1: ours alone, two minutes, six if an alarm stays
	@$(if $(QUICK),,{ command -v java && command -v mvn; } > /dev/null || tests/interop/tools.sh)
	$(BIN)/python -m tests.bench $(if $(QUICK),--quick) $(if $(RUNS),--runs $(RUNS)) $(ONLY:%=--only %)

bench-spark: $(SETUP) compiled # Spark's tables beside Spark's own connector, into docs/benchmarks.md: ten minutes
	tests/interop/tools.sh
	$(BIN)/python -m tests.bench.spark $(if $(RUNS),--runs $(RUNS))

interop: $(SETUP) tools ## foreign clients in Python, JavaScript, Go, Java and C, Kafka's tools, and Spark, against clusters with kills
	tests/interop/tools.sh
	$(BIN)/python -m pytest -m interop --timeout 900 -n 2 --dist loadfile -p no:randomly -p no:unraisableexception  # sockets that foreign libraries leave open

sim: compiled ## whole clusters under faults in virtual time: fixed seeds and a fresh one, in under three minutes; SEEDS=2000, RESUME=FILE, FIXED=1
	$(BIN)/kraft sim --seeds $(or $(SEEDS),12) $(if $(FIXED),,--fresh) $(if $(RESUME),--resume $(RESUME))

fuzz: compiled ## random requests of every API and version against three controllers and three brokers: SECONDS=600, SEED=7
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) $(SEED:%=--seed %)

bugbank: $(SETUP) ## plant every known bug and catch it: RANGES=5, ONLY=B01,B06; without ONLY it writes docs/bugbank.md
	$(BIN)/python -m tests.bugbank --ranges $(or $(RANGES),1) --only "$(ONLY)"

deploy-check: $(SETUP) ## what needs systemd, Helm, Prometheus or podman, half an hour: PARTS="chart image"; root on Debian
	@for part in $(or $(PARTS),systemd chart monitoring image); do \
	    echo "== deploy/check/$$part.sh"; deploy/check/$$part.sh || { echo "deploy-check: $$part failed" >&2; exit 1; }; done

changelog: $(SETUP) ## print what docs/changes will add to CHANGELOG.md
	$(BIN)/towncrier build --draft --version $(or $(VERSION),next)

docs: $(SETUP) ## regenerate the generated pages of docs/ and check the links
	$(BIN)/python -m tests.docs

clean: ## remove what the other targets made
	rm -rf $(VENV) kraft/wire/record_walk*.so build dist sim-failures chaos-runs .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
