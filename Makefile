# The front door. Every target makes what it needs first; `make` alone says what there is.

PY = .venv/bin/python
READY = .venv/ready
BENCH_READY = .venv/peers
DEMO_READY = .demo-venv/ready
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
# Linted, formatted and type-checked alike.
CODE = src tests benchmarks examples
# How many processes run the tests, and how many seeds the simulation tries.
JOBS ?= $(CORES)
N ?= 20000
CORES ?= $(shell nproc)
SECONDS ?= 28.5
# How the tests are shared out: each process takes a half, and then tests from the other one.
TOGETHER = -p tests.skips -n $(JOBS) --dist worksteal
# What `make test` alone covers completely.
COVERED = src/leaselock/core/*,src/leaselock/drivers/*

.DEFAULT_GOAL = help
.PHONY: lua check verify chaos hazards controls conformance help env test lint types contracts format demo bench interop race fuzz audit simulate explore clean
.DELETE_ON_ERROR:

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

env: $(READY) ## make .venv with everything that the tests need

$(READY): pyproject.toml scripts/venv
	@scripts/venv .venv
	@echo "installing leaselock and the development tools into .venv"
	@# Dependency groups are understood from pip 25.1 on.
	@$(PY) $(PIP_INSTALL) 'pip>=25.1'
	@$(PY) $(PIP_INSTALL) --group test --group lint --editable '.[all]'
	@touch $@

# Each test is in exactly one of the tiers `test` and `verify`: tests/tiers.py.
test: lint types contracts ## lint, types, contracts, deterministic tests, coverage
	@scripts/servers
	@rm -f .coverage .coverage.*
	$(PY) -m pytest --tier test $(TOGETHER) -rfE --cov --cov-report=
	$(PY) -m coverage report --skip-covered --show-missing \
		--include='$(COVERED)' --fail-under=100

verify: $(READY) ## all other tests: measured, statistical, long, with many servers
	@scripts/servers
	$(PY) -m tests.verify $(TOGETHER)

check: lint types contracts ## what needs no server: lint, types, contracts, fast tests
	$(PY) -m pytest --tier check $(TOGETHER) -q

lint: $(READY) ## ruff: rules and format
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)

types: $(READY) ## mypy, strict
	$(PY) -m mypy

contracts: $(READY) ## who may import whom
	.venv/bin/lint-imports --no-logo

format: $(READY) ## let ruff arrange the code
	$(PY) -m ruff check --fix-only $(CODE)
	$(PY) -m ruff format $(CODE)

demo: $(DEMO_READY) ## several processes, one lock, one of them killed: nothing is lost
	@.demo-venv/bin/python examples/demo.py

$(DEMO_READY): pyproject.toml scripts/venv
	@scripts/venv .demo-venv
	@echo "installing leaselock into .demo-venv"
	@.demo-venv/bin/python $(PIP_INSTALL) --editable .
	@touch $@

bench: $(READY) $(BENCH_READY) ## measure, next to the peers: make bench, make bench QUICK=1
	@$(PY) -m benchmarks.foreign
	$(PY) -m benchmarks $(if $(QUICK),--quick --into build/benchmarks,--into docs/benchmarks)

$(BENCH_READY): pyproject.toml $(READY)
	@echo "installing the peers into .venv"
	@$(PY) $(PIP_INSTALL) --group bench
	@touch $@

conformance: $(READY) ## the whole suite on every store, in threads and in asyncio
	LEASELOCK_CONFORMANCE=all $(PY) -m pytest $(TOGETHER) tests/conformance

interop: $(READY) ## a minute beside Redisson, Curator and kazoo on one lock
	LEASELOCK_INTEROP_SECONDS=60 $(PY) -m pytest --timeout 300 tests/interop

race: $(READY) ## 20 processes, 500 optimistic writes each, of one row: none lost
	LEASELOCK_INCREMENTS=500 $(PY) -m pytest -qs tests/sql/test_race.py

chaos: $(READY) ## storms on private servers: make chaos SECONDS=60
	$(PY) -m tests.storms --seconds $(SECONDS)

hazards: $(READY) ## play every hazard on every way of locking, and write its page
	@scripts/servers
	$(PY) -m tests.hazards --markdown docs/explanation/hazard-table.md \
		--picture docs/explanation/hazard-table.svg

controls: $(READY) $(BENCH_READY) ## find the known defects of others, and write their page
	@scripts/servers
	LEASELOCK_CONTROLS=docs/explanation/controls.md $(PY) -m pytest -p tests.skips tests/controls

lua: $(READY) ## write out the Redis scripts, for redis-cli --eval: build/scripts
	@$(PY) -m leaselock.backends.redis.scripts build/scripts

fuzz: $(READY) ## whatever anybody may write, as inputs of every parser: make fuzz SECONDS=600
	$(PY) -m tests.fuzz --seconds $(SECONDS)

audit: $(READY) ## is any package that is installed here known to be vulnerable?
	@$(PY) scripts/audit

simulate: $(READY) ## every protocol, N seeds in all: make simulate N=1000000
	$(PY) -m tests.simulation.seeds --seeds $(N) --jobs $(CORES)

explore: $(READY) ## every way in which two or three processes can meet, to a bound
	$(PY) -m tests.simulation.explore

clean: ## remove everything that make made
	rm -rf .venv .demo-venv build dist .coverage .coverage.* htmlcov \
		tests/interop/redisson/target \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
