# Everything a contributor or a first-time reader runs. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV  ?= .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PIP   := $(BIN)/python -m pip --disable-pip-version-check -qq

# The first Python on the PATH that really runs and is at least 3.11. A name may exist and still
# not work (a version manager's shim), so each candidate is tried. Override: make setup PYTHON=...
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## create .venv from the locked, hashed requirements; instant when nothing changed

# The lock names everything, so nothing is resolved (--no-deps): the pip of Python 3.11 otherwise takes
# the newest release of a package that another one asks for with an extra, and then refuses its hash.
# PySpark is built from source, with the locked setuptools, which therefore comes first.
$(STAMP): requirements/dev.lock pyproject.toml
	@if ! "$(PYTHON)" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "stirred needs Python 3.11 or newer with its venv module, and found none (tried: $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python))." >&2; \
		echo "Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 2; fi
	@if ! "$(BIN)/python" -c '' >/dev/null 2>&1; then \
		echo "setup: creating $(VENV) with $$("$(PYTHON)" --version)"; "$(PYTHON)" -m venv --clear "$(VENV)"; fi
	@echo "setup: installing the locked requirements"
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements/dev.lock >$(VENV)/builds-others.lock
	@$(PIP) install --no-deps --require-hashes -r $(VENV)/builds-others.lock
	@$(PIP) install --no-deps --no-build-isolation --require-hashes -r requirements/dev.lock
	@broken=$$($(BIN)/python -m pip check 2>/dev/null) || { echo "setup: the lock is not complete: $$broken" >&2; exit 1; }
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(MAKE) kernels
	@touch $@
	@echo "setup: done; try $(BIN)/stirred --help"

# Numba kernels are compiled once here, so that the first release does not pay for it.
.PHONY: kernels
kernels: ## compile the numba kernels ahead of their first use
	@echo "kernels: compiling"
	@$(BIN)/python -m tests.mechanisms.records.kernels.compile_kernels
	@$(BIN)/python -m stirred.mechanisms.topdown.solve.files

.PHONY: demo
demo: $(STAMP) ## swap Massachusetts 1940 as the paper does, and write build/demo/report.html
	@$(BIN)/python examples/massachusetts_1940.py --out build/demo

.PHONY: demo-topdown
demo-topdown: $(STAMP) ## TopDown records of a synthetic state, and build/demo-topdown/report.html with errors by level
	@$(BIN)/python examples/topdown_state.py --out build/demo-topdown

.PHONY: demo-census
demo-census: $(STAMP) ## the 2020 Census on one synthetic state, swapping beside it: build/demo-census/report.html
	@rm -rf build/demo-census
	@$(BIN)/stirred demo census-2020 --out build/demo-census

# HOUSEHOLDS=100000 for a quick look.
HOUSEHOLDS ?= 10000000
.PHONY: demo-spark
demo-spark: $(STAMP) java ## swap ten million synthetic households on a Spark cluster of this machine: build/demo-spark/report.html
	@$(BIN)/python examples/spark_cluster.py --out build/demo-spark --households $(HOUSEHOLDS)

# What tests run on beside Python comes from the system's packages: $(call installed,TARGET,PACKAGE,how to see that it is there).
define installed
@mkdir -p build; { $(3); } >/dev/null 2>&1 || { echo "$(1): installing $(2)"; \
	sudo=$$([ "$$(id -u)" = 0 ] || command -v sudo || true); \
	{ $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq $(2); } >build/$(1).log 2>&1 \
	|| { echo "$(1): could not install it; install '$(2)' by hand and run again" >&2; exit 2; }; }
endef

# Reports are looked at in a real browser. Debian and Ubuntu call the package chromium.
.PHONY: browser
browser: ## install a browser for the tests of the report, if there is none
	$(call installed,browser,chromium,command -v chromium)

# The ledger is tested on a real server, which every test run starts for itself in a temporary folder.
.PHONY: postgres
postgres: ## install a PostgreSQL server for the tests of the ledger, if there is none
	$(call installed,postgres,postgresql,command -v initdb || ls /usr/lib/postgresql/*/bin/initdb)

# Spark is tested on a real cluster of this machine, which every test run starts for itself. It needs Java 17 or 21.
.PHONY: java
java: ## install Java for the tests of the Spark engine, if there is none
	$(call installed,java,openjdk-17-jre-headless,"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(17|21)')

.PHONY: test
test: lint types browser postgres java pytest ## lint, types, unit tests, doctests and the examples in the documentation

.PHONY: lint
lint: $(STAMP) ## ruff: rules and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "lint: run 'make format'" >&2; exit 1; }
	@echo "lint: ok"

.PHONY: format
format: $(STAMP) ## let ruff fix what it can
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

.PHONY: types
types: $(STAMP) ## mypy
	@$(BIN)/mypy --no-error-summary
	@echo "types: ok"

# ARGS narrows the run: make pytest ARGS="tests/spec -k budget". `-m ""` runs the slow ones too.
.PHONY: pytest
pytest: $(STAMP) ## the tests alone, on all cores
	@$(BIN)/python -m pytest -q -n auto $(ARGS)

.PHONY: snapshots
snapshots: $(STAMP) ## write the outputs that tests keep as text again; read the change with git diff
	@STIRRED_SNAPSHOTS=write $(BIN)/python -m pytest -q -n auto $(or $(ARGS),$$(grep -rl same_as_kept tests --include='test_*.py'))

.PHONY: coverage
coverage: $(STAMP) browser postgres java ## what the tests run of each package, and build/coverage/index.html line by line
	@$(BIN)/python -m pytest -q -n auto --cov --cov-report=json:build/coverage.json --cov-report=html:build/coverage $(ARGS)
	@$(BIN)/python tests/coverage_by_package.py build/coverage.json

.PHONY: audit
audit: $(STAMP) browser postgres java ## the long audits and statistical tests, marked slow, and all properties on all their examples
	@STIRRED_TESTS=deep $(BIN)/python -m pytest -q -n auto -m "slow or hypothesis"

.PHONY: docs
docs: $(STAMP) ## build the documentation into build/docs; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "docs: build/docs/index.html"

# MILLIONS="0.2" for a quick look; it is not part of `make bench`, which runs without Java.
MILLIONS ?= 10 50
.PHONY: bench-spark
bench-spark: $(STAMP) java ## measure swapping on a Spark cluster of this machine beside the local engine
	@$(BIN)/python benchmarks/bench_spark.py --millions $(MILLIONS) --write

# Every section of benchmarks/RESULTS.md is written by one of these. The largest nation takes 12 GB and some minutes:
# make bench NATION="1 10" leaves it out.
NATION ?= 1 10 50 140
.PHONY: bench
bench: bench-swap bench-family bench-ledger bench-growth bench-noise bench-safetab bench-microdata bench-risk ## measure everything anew, into benchmarks/RESULTS.md

.PHONY: bench-swap
bench-swap: $(STAMP) ## measure swapping beside its floors, up to national size
	@$(BIN)/python benchmarks/bench_swap.py --nation $(NATION) --write

.PHONY: bench-family
bench-family: $(STAMP) ## measure the swapping family beside permutation swapping, into benchmarks/RESULTS.md
	@$(BIN)/python benchmarks/bench_family.py --write

.PHONY: bench-ledger
bench-ledger: $(STAMP) ## measure how the ledger grows
	@$(BIN)/python benchmarks/bench_ledger.py --write

.PHONY: bench-growth
bench-growth: $(STAMP) ## measure and draw how time and memory grow for swapping and the audit
	@$(BIN)/python benchmarks/bench_growth.py --write

# OpenDP is compared with if it is installed: .venv/bin/pip install opendp. No lock names it.
.PHONY: bench-safetab
bench-safetab: $(STAMP) ## measure SafeTab-P on a domain of the nation's size
	@$(BIN)/python benchmarks/bench_safetab.py --write

.PHONY: bench-risk
bench-risk: $(STAMP) ## measure uniqueness beside one group_by, and a county reconstructed
	@$(BIN)/python benchmarks/bench_risk.py --write

.PHONY: bench-attacks
bench-attacks: $(STAMP) ## attack swaps and TopDown on a synthetic county, beside published figures
	@$(BIN)/python benchmarks/bench_attacks.py

.PHONY: bench-noise
bench-noise: $(STAMP) ## measure exact noise beside OpenDP and numpy
	@$(BIN)/python benchmarks/bench_noise.py --write

# PIQP is compared with if it is installed: .venv/bin/pip install piqp. No lock names it. THOUSANDS="3 30" leaves out the state.
THOUSANDS ?= 3 30 300
.PHONY: bench-microdata
bench-microdata: $(STAMP) ## measure TopDown microdata: accuracy of the arms on frozen noise, and speed up to a state
	@$(BIN)/python benchmarks/bench_microdata.py --blocks $(THOUSANDS) --write

# Needs `uv` on the PATH (or UV=...). Resolves for every supported Python and platform at once.
UV ?= uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
EXTRAS := report databases postgres labelled spark
.PHONY: lock
lock: ## resolve requirements/*.lock anew from pyproject.toml (needs uv)
	@command -v "$(UV)" >/dev/null || { echo "lock: needs uv (pip install uv), or name it: make lock UV=/path/to/uv" >&2; exit 2; }
	@$(COMPILE) --group dev pyproject.toml -o requirements/dev.lock
	@$(COMPILE) --constraint requirements/dev.lock pyproject.toml -o requirements/core.lock
	@for extra in $(EXTRAS); do \
		$(COMPILE) --constraint requirements/dev.lock --extra "$$extra" pyproject.toml -o "requirements/$$extra.lock"; done
	@echo "lock: $$(grep -c == requirements/core.lock) pins in core.lock, $$(grep -c == requirements/dev.lock) in dev.lock"

.PHONY: dist
dist: $(STAMP) ## build the wheel and the sdist into dist/, without the network
	@$(BIN)/python -m hatchling build -d dist

.PHONY: clean
clean: ## remove the environment, build products and caches
	@rm -rf "$(VENV)" build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests docs examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
