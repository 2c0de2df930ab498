# The developer's and the user's interface. `make help` says what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

INVENTORY ?= hostinventory.yaml
SWEEP ?= sweeps/quickstart.yaml
LIMIT ?=
RESUME ?=
PYTHON ?= python3
PYTEST_ARGS ?=
# Where torch for processors is published. A site whose pip settings name a place of their own for it sets this to nothing.
LOCK_TORCH ?= --extra-index-url https://download.pytorch.org/whl/cpu
export PYTHON

BIN := .venv/bin
SELECTION = '$(SWEEP)' --inventory '$(INVENTORY)' $(if $(LIMIT),--limit '$(LIMIT)')
COMPILE := uv pip compile --quiet --generate-hashes --no-header --python-version
# what a machine with glibc 2.28 can run: every base of docker/images.yaml has a newer one
FOR_IMAGES := --python-platform x86_64-manylinux_2_28

ifneq ($(filter-out 0 1,$(RESUME)),)
$(error RESUME is $(RESUME), expected 1 (always go on), 0 (start anew) or nothing (decide by the plan))
endif
RESUME_MODE := $(if $(RESUME),$(if $(filter 1,$(RESUME)),always,never),auto)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  INVENTORY=$(INVENTORY)  SWEEP=$(SWEEP)"
	@echo "  LIMIT=PATTERN uses those hosts only, such as 'a100-*:!a100-07'"
	@echo "  RESUME=1 goes on with the newest campaign of this plan, RESUME=0 starts anew; unset, an unfinished one goes on"

.PHONY: cluster-sweep
cluster-sweep: venv ## measure SWEEP on the hosts of INVENTORY and print the table
	@$(BIN)/taxmeter sweep run $(SELECTION) --resume $(RESUME_MODE)

.PHONY: plan
plan: venv ## what cluster-sweep would do, without doing it
	@$(BIN)/taxmeter sweep plan $(SELECTION)

.PHONY: results
results: venv ## what has been measured so far
	@$(BIN)/taxmeter results ls

.PHONY: images
images: venv ## build the images of docker/images.yaml on this machine's engine
	@$(BIN)/taxmeter images build

.PHONY: venv
venv: ## set up .venv for running (the other targets do so themselves)
	@requirements/sync base

.PHONY: venv-dev
venv-dev:
	@requirements/sync dev

.PHONY: test
test: check ## all checks and tests; what this machine cannot run is skipped with its reason
	@$(BIN)/pytest $(PYTEST_ARGS)

.PHONY: check
check: venv-dev ## format, lint, types and import rules
	@$(BIN)/ruff format --quiet --check . || { echo "run: make fmt"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >.taxmeter/lint-imports.log || { cat .taxmeter/lint-imports.log; exit 1; }

.PHONY: fmt
fmt: venv-dev ## format the code and mend what the linter can mend
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

# torch for processors is fetched before uv runs, since uv would take from its index whatever else that has, other builds too.
.PHONY: lock
lock: ## resolve every *.in again and write the locks (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }
	cd requirements && $(COMPILE) 3.11 --universal base.in --output-file base.lock
	cd requirements && $(COMPILE) 3.11 --universal dev.in --constraint base.lock --output-file dev.lock
	$(PYTHON) -m pip download --quiet --no-deps --only-binary :all: --implementation cp --python-version 3.11 \
	  --platform manylinux_2_28_x86_64 $(LOCK_TORCH) --dest docker/wheels $$(grep '^torch==' docker/environments/cpu.in)
	cd docker/environments && $(COMPILE) 3.11 $(FOR_IMAGES) --find-links ../wheels cpu.in --output-file cpu.lock
	cd docker/environments && $(COMPILE) 3.9 $(FOR_IMAGES) cpu-2022.in --output-file cpu-2022.lock

.PHONY: clean
clean: ## remove all that can be made again; results stay
	@rm -rf .venv .taxmeter .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	@find docker/wheels -mindepth 1 ! -name .gitkeep -delete
	@find orchestrator runners tests -name __pycache__ -type d -prune -exec rm -rf {} +
