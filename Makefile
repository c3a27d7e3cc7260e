# Every target makes what it needs first; `make` alone lists the targets. Everything else is a
# program: tests/README.md lists them.

PY = .venv/bin/python
READY = .venv/ready
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
# Linted, formatted and type-checked alike.
CODE = src testkit tests verification conftest.py benchmarks examples docs/conf.py
# How many processes run the tests: more than there are cores, because most of them wait.
CORES ?= $(shell nproc)
JOBS ?= $(shell expr 2 '*' $(CORES))
# How the tests are shared out: each process takes a half, and then tests from the other one.
TOGETHER = -p tests.skips -n $(JOBS) --dist worksteal
# What `make test` alone covers completely.
COVERED = src/leaselock/_core/*,src/leaselock/_drivers/*,src/leaselock/_backends/redlock/*

.DEFAULT_GOAL = help
.PHONY: help demo dev env servers lint types contracts checks check test verify release-checks format docs bench release clean
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

demo: .demo-venv/ready ## several processes, one lock, one of them killed: nothing is lost
	@.demo-venv/bin/python examples/demo.py

.demo-venv/ready: pyproject.toml scripts/venv
	@scripts/venv .demo-venv
	@echo "installing leaselock into .demo-venv"
	@.demo-venv/bin/python $(PIP_INSTALL) --editable .
	@touch $@

dev: ## make .venv with what tests of the core and the linters need; the other targets add the rest
	@scripts/venv .venv
	@$(PY) $(PIP_INSTALL) 'pip>=25.1'
	@$(PY) $(PIP_INSTALL) --group dev --editable '.[all]'

servers: ## install the servers that the tests start, with the system's package manager
	@scripts/servers --ask

env: $(READY)

$(READY): pyproject.toml scripts/venv
	@scripts/venv .venv
	@echo "installing leaselock and the development tools into .venv"
	@# Dependency groups are understood from pip 25.1 on.
	@$(PY) $(PIP_INSTALL) 'pip>=25.1'
	@$(PY) $(PIP_INSTALL) --group test --group lint --editable '.[all]'
	@touch $@

# A group of packages that one target needs: .venv/docs, .venv/package, .venv/bench.
.venv/%: pyproject.toml $(READY)
	@echo "installing the packages of the group $* into .venv"
	@$(PY) $(PIP_INSTALL) --group $*
	@touch $@

# Side by side; each shows its output when it is done.
checks: $(READY)
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint types contracts

lint: $(READY)
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) scripts/generate --check
	$(PY) scripts/tables --check

# The package for the systems of its users, too.
types: $(READY)
	$(PY) -m mypy
	$(PY) -m mypy --platform win32 src
	$(PY) -m mypy --platform darwin src

contracts: $(READY)
	.venv/bin/lint-imports --no-logo

# Each test is in exactly one of the tiers `test`, `verify` and `release-checks`: tests/tiers.py.
check: checks ## lint, types, import rules, and the tests of `make test` that need no server
	$(PY) -m pytest --tier check $(TOGETHER) -q

test: checks ## the first tier: lint, types, import rules, deterministic tests, coverage
	@scripts/servers
	@rm -f .coverage .coverage.*
	$(PY) -m pytest --tier test $(TOGETHER) -rfE --cov --cov-report=
	$(PY) -m coverage report --skip-covered --show-missing \
		--include='$(COVERED)' --fail-under=100

verify: $(READY) ## the second tier: measured, statistical, long, with many servers
	@scripts/servers
	$(PY) -m tests.verify --tier verify $(TOGETHER)

release-checks: $(READY) .venv/package ## the third: the whole conformance matrix, TLA+, other programs, containers, two releases
	@scripts/servers
	$(PY) scripts/audit
	$(PY) scripts/package
	$(PY) -m tests.verify --tier release-checks $(TOGETHER)

format: $(READY) ## let ruff arrange the code; write the classes for threads, the tables, the manual page
	$(PY) -m ruff check --fix-only $(CODE)
	$(PY) -m ruff format $(CODE)
	$(PY) scripts/generate
	$(PY) scripts/tables
	$(PY) -m leaselock help --man > docs/reference/leaselock.1

docs: .venv/docs ## the documentation as a site, in docs/_build; warnings are errors
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "open docs/_build/index.html"

bench: .venv/bench ## measure, next to the peers: make bench, make bench QUICK=1, make bench NAMES="readers semaphore"
	@$(PY) -m benchmarks.foreign
	$(PY) -m benchmarks $(NAMES) $(if $(QUICK),--quick) \
		--into $(if $(QUICK)$(NAMES),build/benchmarks,docs/benchmarks)

release: ## say what a release would do, and what is missing: scripts/release has the options
	@scripts/release

clean: ## remove everything that make made
	rm -rf .venv .demo-venv build dist docs/_build docs/project .coverage .coverage.* htmlcov \
		verification/interop/redisson/target \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
