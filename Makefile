# Every target makes what it needs first; `make` alone lists the targets.

PY = .venv/bin/python
READY = .venv/ready
BENCH_READY = .venv/peers
DEMO_READY = .demo-venv/ready
DOCS_READY = .venv/docs
PACKAGE_READY = .venv/package
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
# Linted, formatted and type-checked alike.
CODE = src testkit tests verification conftest.py hatch_build.py benchmarks examples docs/conf.py
# How many processes run the tests, and how many seeds the simulation tries.
JOBS ?= $(shell expr $(CORES) + $(CORES) / 2)
N ?= 20000
CORES ?= $(shell nproc)
SECONDS ?= 28.5
# How the tests are shared out: each process takes a half, and then tests from the other one.
TOGETHER = -p tests.skips -n $(JOBS) --dist worksteal
# What `make test` alone covers completely.
COVERED = src/leaselock/_core/*,src/leaselock/_drivers/*,src/leaselock/_backends/redlock/*

.DEFAULT_GOAL = help
.PHONY: dev servers docs package lua man screenshots check checks verify chaos crashed tasks interruptions hazards controls conformance libraries help env test lint types contracts format demo bench interop race fuzz audit simulate seeds traces models explore clean
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

env: $(READY) ## make .venv with everything that the tests need

dev: ## make .venv with what the tests without a server need: a minute less, and fewer packages
	@scripts/venv .venv
	@$(PY) $(PIP_INSTALL) 'pip>=25.1'
	@$(PY) $(PIP_INSTALL) --group dev --editable '.[all]'

servers: ## install the servers that the tests start, with the system's package manager
	@scripts/servers --ask

$(READY): pyproject.toml scripts/venv
	@scripts/venv .venv
	@echo "installing leaselock and the development tools into .venv"
	@# Dependency groups are understood from pip 25.1 on.
	@$(PY) $(PIP_INSTALL) 'pip>=25.1'
	@$(PY) $(PIP_INSTALL) --group test --group lint --editable '.[all]'
	@touch $@

# Each test is in exactly one of the tiers `test` and `verify`: tests/tiers.py.
test: checks ## lint, types, contracts, deterministic tests, coverage
	@scripts/servers
	@rm -f .coverage .coverage.*
	$(PY) -m pytest --tier test $(TOGETHER) -rfE --cov --cov-report=
	$(PY) -m coverage report --skip-covered --show-missing \
		--include='$(COVERED)' --fail-under=100

verify: $(READY) ## all other tests: measured, statistical, long, with many servers
	@scripts/servers
	$(PY) -m tests.verify $(TOGETHER)

check: checks ## what needs no server: lint, types, contracts, fast tests
	$(PY) -m pytest --tier check $(TOGETHER) -q

# Side by side; each shows its output when it is done.
checks: $(READY)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint types contracts

lint: $(READY) ## ruff: rules and format; the classes for threads
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) scripts/generate --check
	$(PY) scripts/tables --check

types: $(READY) ## mypy, strict
	$(PY) -m mypy

contracts: $(READY) ## import rules
	.venv/bin/lint-imports --no-logo

format: $(READY) ## let ruff arrange the code
	$(PY) -m ruff check --fix-only $(CODE)
	$(PY) -m ruff format $(CODE)
	$(PY) scripts/generate
	$(PY) scripts/tables

demo: $(DEMO_READY) ## several processes, one lock, one of them killed: nothing is lost
	@.demo-venv/bin/python examples/demo.py

$(DEMO_READY): pyproject.toml scripts/venv
	@scripts/venv .demo-venv
	@echo "installing leaselock into .demo-venv"
	@.demo-venv/bin/python $(PIP_INSTALL) --editable .
	@touch $@

bench: $(READY) $(BENCH_READY) ## measure, next to the peers: make bench, make bench QUICK=1, make bench NAMES="readers semaphore"
	@$(PY) -m benchmarks.foreign
	$(PY) -m benchmarks $(NAMES) $(if $(QUICK),--quick) \
		--into $(if $(QUICK)$(NAMES),build/benchmarks,docs/benchmarks)

$(BENCH_READY): pyproject.toml $(READY)
	@echo "installing the peers into .venv"
	@$(PY) $(PIP_INSTALL) --group bench
	@touch $@

docs: $(DOCS_READY) ## the documentation as a site, in docs/_build; warnings are errors
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "open docs/_build/index.html"

$(DOCS_READY): pyproject.toml $(READY)
	@echo "installing Sphinx into .venv"
	@$(PY) $(PIP_INSTALL) --group docs
	@touch $@

package: $(PACKAGE_READY) ## build wheel and sdist, and install them in empty environments
	$(PY) scripts/package

$(PACKAGE_READY): pyproject.toml $(READY)
	@echo "installing build and twine into .venv"
	@$(PY) $(PIP_INSTALL) --group package
	@touch $@

conformance: $(READY) ## the whole suite on every store, in threads and in asyncio
	LEASELOCK_CONFORMANCE=all $(PY) -m pytest $(TOGETHER) tests/conformance

libraries: $(READY) ## the same with the lowest, then with the newest supported client libraries
	$(PY) scripts/libraries lowest -n $(JOBS) --dist worksteal
	$(PY) scripts/libraries newest -n $(JOBS) --dist worksteal

interop: $(READY) ## a minute each beside Redisson, redis-py, redsync, node-redlock, Curator and kazoo on one lock
	LEASELOCK_INTEROP_TURNS=2000 $(PY) -m pytest --timeout 300 verification/interop

race: $(READY) ## 20 processes, 500 optimistic writes each, of one row: none lost
	LEASELOCK_INCREMENTS=500 $(PY) -m pytest -qs tests/sql/test_race.py

chaos: $(READY) ## faults injected into private servers and workers: make chaos SECONDS=60
	$(PY) -m verification.chaos --seconds $(SECONDS)

crashed: $(READY) ## kill the holder of 10,000 locks, collect the garbage, and count what is left, on each store
	$(PY) -m verification.chaos.crashed

tasks: $(READY) ## 200 tasks of one event loop with a synchronous client, a minute on each store
	$(PY) -m verification.chaos.tasks --seconds 60

interruptions: $(READY) ## interrupt every operation at every suspension, a minute on each store
	$(PY) -m verification.chaos.interruptions --seconds 60

hazards: $(READY) ## play every hazard on every way of locking, and write its page
	@scripts/servers
	$(PY) -m verification.hazards --markdown docs/internals/hazard-table.md \
		--picture docs/internals/hazard-table.svg

controls: $(READY) $(BENCH_READY) ## find the known defects of others, and write their page
	@scripts/servers
	LEASELOCK_CONTROLS=docs/internals/controls.md $(PY) -m pytest -p tests.skips verification/controls

lua: $(READY) ## write out the Redis scripts, for redis-cli --eval: build/scripts
	@$(PY) -m leaselock._backends.redis.scripts build/scripts

man: $(READY) ## write the manual page from the parsers of the command line
	@$(PY) -m leaselock help --man > docs/reference/leaselock.1

screenshots: $(READY) ## the pictures of `leaselock top` and of the page: docs/images
	@scripts/servers
	$(PY) scripts/screenshots
	$(PY) -m tests.web.screenshots

fuzz: $(READY) ## generated input for every parser of text that others write: make fuzz SECONDS=600
	$(PY) -m verification.fuzz --seconds $(SECONDS)

audit: $(READY) ## check the installed packages for known vulnerabilities
	@$(PY) scripts/audit

simulate: $(READY) ## every protocol, N seeds in all: make simulate N=1000000
	$(PY) -m verification.simulation.seeds --seeds $(N) --jobs $(CORES)

seeds: $(READY) ## find the seeds of planted bugs again: make seeds, make seeds NAMES=redis/no_expiry
	$(PY) -m verification.simulation.bugs --seeds $(NAMES)

traces: $(READY) ## hash the traces of 300 seeds of each scenario; make traces AGAINST=build/traces.txt compares
	$(PY) -m verification.simulation.traces $(if $(AGAINST),--against $(AGAINST),--write build/traces.txt)

explore: $(READY) ## all interleavings of two or three processes, to a bound
	$(PY) -m verification.simulation.explore

models: $(READY) ## TLA+ models, checked by TLC: make models, make models LONG=1
	$(PY) -m verification.tla $(if $(LONG),--long --traces 1000)

clean: ## remove everything that make made
	rm -rf .venv .demo-venv build dist docs/_build docs/project .coverage .coverage.* htmlcov \
		verification/interop/redisson/target \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
