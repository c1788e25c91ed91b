# `make help` lists the targets. Everything runs in .venv, built once from the lock; the stamp says that it is up to date.

PYTHON ?= python3
SEEDS ?= 20000
DATAGRAMS ?= 20000000
MINUTES ?= 10
KILLS ?= 60
S3_KILLS ?= 40
CUTS ?= 300
SEED ?= 1
RATE ?= 5000
PEERS ?= 200
BIN := .venv/bin
STAMP := .venv/.installed
SETUP_LOG := build/setup.log
ARCHIVE := build/spark.jsa
PIP := $(BIN)/python -m pip install --disable-pip-version-check
PYTEST = FAIRWAY_PURE=1 PYTHONHASHSEED=$(SEED) $(BIN)/python -m pytest --seed $(SEED) --durations=25
# What `check` runs by itself.
CHECKED = --ignore tests/test_layering.py --ignore tests/test_randomness.py
.DEFAULT_GOAL := help

.PHONY: help setup demo test test-all native test-native check style types checked bench bench-native soak scale soak-net soak-gateway torture fuzz lock clean

help: ## Show this.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Build .venv from the lock.

# What a step is called, then its command, whose own output goes to the log.
define step
@echo "$(1)"
@mkdir -p build && { $(2); } >> $(SETUP_LOG) 2>&1 || { echo "failed: $(CURDIR)/$(SETUP_LOG) says why" >&2; exit 1; }
endef

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairway needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@rm -f $(SETUP_LOG)
	$(call step,making .venv,test -x $(BIN)/python || $(PYTHON) -m venv .venv)
	$(call step,installing what requirements/dev.txt names,$(PIP) --require-hashes -r requirements/dev.txt)
	$(call step,installing Fairway,$(PIP) --no-deps --no-build-isolation --editable .)
	@touch $@

demo: $(STAMP) ## All of Fairway in two minutes; ends with the path of a page to open.
	@$(BIN)/python scripts/require.py java
	FAIRWAY_PURE=1 $(BIN)/fairway demo

$(ARCHIVE): $(STAMP)
	@$(BIN)/python scripts/require.py java
	$(call step,archiving the classes of Spark,rm -f $@ && $(BIN)/python -m tests.lake.archive $@)

test: checked ## All checks, then the tests, in an order that SEED decides.
	@$(BIN)/python scripts/require.py java tshark chromium strace
	$(PYTEST) -m "not long" $(CHECKED)

test-all: checked ## The same with the tests of the measuring tools and the long kill runs.
	@$(BIN)/python scripts/require.py java tshark chromium strace
	ODD_SEEDS=5 $(PYTEST) $(CHECKED)

native: $(STAMP) ## Compile the machines in place; FAIRWAY_PURE=1 runs the sources all the same.
	@$(BIN)/python scripts/require.py cc
	$(call step,compiling (some minutes),$(BIN)/python setup.py build_ext --inplace --parallel 2)
	@$(BIN)/fairway --version | grep compiled

test-native: native ## The conformance suite, the vectors, sockets and 500 swarm seeds on the compiled machines.
	$(BIN)/python -m pytest -q -m "not long" tests/conformance tests/protocols/test_vectors.py tests/test_pure.py tests/sim/test_frozen.py tests/net tests/acceptance
	$(BIN)/python scripts/soak.py --seeds 500

check: style types ## Format, lint, types, layering, seeds.

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -q -n 0 tests/test_layering.py tests/test_randomness.py

types: $(STAMP)
	$(BIN)/mypy

# The types take one core; the other makes the archive and checks the rest.
checked: $(STAMP)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types $(ARCHIVE) style

bench: $(STAMP) ## Measure this machine: interpreted and, where there is a C compiler, compiled.
	FAIRWAY_PURE=1 $(BIN)/fairway bench columns
	FAIRWAY_PURE=1 $(BIN)/fairway bench simulator
	FAIRWAY_PURE=1 $(BIN)/fairway bench transport --out out/bench/interpreted
	@if command -v cc > /dev/null; then $(MAKE) bench-native; else echo "no C compiler: not measured compiled"; fi

bench-native: native ## Measure the compiled form alone.
	$(BIN)/fairway bench simulator
	$(BIN)/fairway bench transport --out out/bench/compiled

soak: $(STAMP) ## Swarms of simulated runs: SEEDS of them over the four protocols.
	$(BIN)/python scripts/soak.py --seeds $(SEEDS)

scale: $(STAMP) ## On real sockets: 1 GB and 1,000,000 messages over a bad link, 10,000 sessions, a flood of calls.
	$(BIN)/python -m benchmarks.scale exact crowd flood

soak-net: $(STAMP) ## On real sockets: MINUTES of conversations that come and go.
	$(BIN)/python -m benchmarks.scale soak --minutes $(MINUTES)

soak-gateway: $(STAMP) ## A gateway and a stream under RATE messages a second from PEERS peers, for MINUTES.
	$(BIN)/python -m benchmarks.gateway.soak --minutes $(MINUTES) --rate $(RATE) --peers $(PEERS)

torture: $(STAMP) ## Kill gateway and stream KILLS times on a disk and S3_KILLS times on S3, then cut the power CUTS times.
	@$(BIN)/python scripts/require.py java strace
	$(BIN)/python -m tests.torture --kills $(KILLS) --seed $(SEED) --out build/torture-$$(date +%s)
	$(BIN)/python -m tests.torture --kills $(S3_KILLS) --s3 --seed $(SEED) --out build/torture-s3-$$(date +%s)
	$(BIN)/python -m tests.torture --cuts $(CUTS) --seed $(SEED) --out build/powercut-$$(date +%s)

fuzz: $(STAMP) ## Random and mutated datagrams through each machine: DATAGRAMS of them.
	$(BIN)/python -m tests.fuzz --datagrams $(DATAGRAMS)

lock: $(STAMP) ## Write the locks anew.
	scripts/lock.sh

clean: ## Remove what was built.
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} +
