# The developer's and the user's interface. `make help` says what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

INVENTORY ?= hostinventory.yaml
SWEEP ?= sweeps/quickstart.yaml
LIMIT ?=
RESUME ?=
MORE ?=
COLD ?=
ID ?=
HOST ?=
ROUNDS ?=
PYTHON ?= python3
PYTEST_ARGS ?=
WORKERS ?= auto
NAMES ?=
REGISTRY ?=
A ?=
B ?=
TRIALS ?=
SEED ?=
MINUTES ?= 15
DATABASE ?=
OUTPUT ?=
PAGE ?=
QUICK ?=
export PYTHON

BIN := .venv/bin
# the inventory of the lab hosts is written when they come up; no other is anybody's to make
LAB_INVENTORY := tests/lab/hostinventory.yaml
WANTED_LAB := $(filter $(LAB_INVENTORY),$(INVENTORY))
SELECTION = '$(SWEEP)' --inventory '$(INVENTORY)' $(if $(LIMIT),--limit '$(LIMIT)')
# one that somebody names: without it a campaign goes on with the inventory that it is stored with
GIVEN_INVENTORY = $(if $(filter file,$(origin INVENTORY)),,--inventory '$(INVENTORY)')
COMPILE := ../$(BIN)/uv pip compile --quiet --generate-hashes --no-header --python-version 3.11 --universal

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
	@echo "  NAMES='cpu cuda13' are the environments that the targets of images are about"
	@echo "  RESUME=1 goes on with the newest campaign of this plan, RESUME=0 starts anew; unset, an unfinished one goes on"
	@echo "  MORE=10m goes on with the newest campaign, finished or not, where intervals are widest"
	@echo "  COLD=1 makes anew what hosts have kept of earlier campaigns, so that making is measured"

.PHONY: cluster-sweep
cluster-sweep: venv $(WANTED_LAB) ## measure SWEEP on the hosts of INVENTORY and print the table
	@$(BIN)/taxmeter sweep run $(SELECTION) --resume $(RESUME_MODE) $(if $(MORE),--more '$(MORE)') $(if $(filter 1,$(COLD)),--cold)

.PHONY: plan
plan: venv $(WANTED_LAB) ## what cluster-sweep would do, without doing it
	@$(BIN)/taxmeter sweep plan $(SELECTION)

.PHONY: sweep-status sweep-stop sweep-drain sweep-resume
sweep-status: venv ## the campaign that runs, host by host
	@$(BIN)/taxmeter sweep status
sweep-stop: venv ## end it, from any terminal; what was measured stays
	@$(BIN)/taxmeter sweep stop
sweep-drain: venv ## no new tasks for HOST='h1 h2', or for all hosts; what runs ends by itself
	@$(BIN)/taxmeter sweep drain $(HOST)
sweep-resume: venv ## go on with campaign ID, or the newest unfinished one, from what the store knows
	@$(BIN)/taxmeter sweep resume $(if $(ID),'$(ID)') $(GIVEN_INVENTORY) $(if $(LIMIT),--limit '$(LIMIT)')

.PHONY: reproduce
reproduce: venv $(WANTED_LAB) ## run trial or campaign ID of the store again and compare; HOST= and ROUNDS= choose
	@test -n '$(ID)' || { echo "make reproduce needs ID=<trial or campaign>; make results lists campaigns"; exit 2; }
	@$(BIN)/taxmeter reproduce '$(ID)' --inventory '$(INVENTORY)' $(if $(HOST),--host '$(HOST)') \
	  $(if $(ROUNDS),--rounds '$(ROUNDS)')

.PHONY: results
results: venv ## what has been measured so far
	@$(BIN)/taxmeter results ls

.PHONY: report
report: ## a page about the newest campaign, or campaign ID; OUTPUT=report.html
	@requirements/sync report
	@$(BIN)/taxmeter report $(if $(ID),'$(ID)') $(if $(OUTPUT),--output '$(OUTPUT)')

.PHONY: paper
paper: $(WANTED_LAB) ## measure the paper's sweeps and draw its figures and tables into paper/; QUICK=1 within 20 minutes
	@requirements/sync report
	@$(BIN)/taxmeter paper --measure $(if $(filter-out 0,$(QUICK)),--quick) --inventory '$(INVENTORY)' \
	  $(if $(LIMIT),--limit '$(LIMIT)') --resume $(RESUME_MODE) $(if $(OUTPUT),--output '$(OUTPUT)')

.PHONY: images
images: venv ## build the images of docker/images.yaml on this machine's engine
	@$(BIN)/taxmeter images build $(NAMES)

.PHONY: images-list images-lock images-verify images-push images-pull images-diff
images-list: venv ## the environments, and what was built from them here
	@$(BIN)/taxmeter images list
images-lock: venv ## resolve the environments' *.in again and write their locks
	@$(BIN)/taxmeter images lock $(NAMES)
images-verify: venv ## prove that the engine has the images that were recorded
	@$(BIN)/taxmeter images verify $(NAMES)
images-push: venv ## push the images into REGISTRY=HOST[:PORT][/PREFIX]
	@test -n '$(REGISTRY)' || { echo "make images-push needs REGISTRY=HOST[:PORT][/PREFIX]"; exit 2; }
	@$(BIN)/taxmeter images push $(NAMES) --registry '$(REGISTRY)'
images-pull: venv ## pull the images by the digests that were recorded
	@$(BIN)/taxmeter images pull $(NAMES)
images-diff: venv ## in what the images A and B differ
	@test -n '$(A)' -a -n '$(B)' || { echo "make images-diff needs A=… and B=…: environments, references, ids or saved files"; exit 2; }
	@$(BIN)/taxmeter images diff '$(A)' '$(B)'

.PHONY: lab lab-down lab-status
lab: venv ## three hosts as containers of this machine; NAMES='cpu' gives them images at once (tests/lab/README.md)
	@$(BIN)/python -m tests.lab up $(NAMES)
lab-down: venv ## remove the lab hosts and all that is theirs
	@$(BIN)/python -m tests.lab down
lab-status: venv
	@$(BIN)/python -m tests.lab status
$(LAB_INVENTORY):
	@$(MAKE) lab NAMES=

.PHONY: cluster-up cluster-status cluster-down
cluster-up: venv $(WANTED_LAB) ## a Ray cluster on the hosts of INVENTORY (docs/cluster.md); a sweep can use it
	@$(BIN)/taxmeter cluster up --inventory '$(INVENTORY)' $(if $(LIMIT),--limit '$(LIMIT)')
cluster-status: venv ## how each of its hosts is
	@$(BIN)/taxmeter cluster status
cluster-down: venv ## take it down again; nobody else's containers are touched
	@$(BIN)/taxmeter cluster down

.PHONY: venv
venv: ## set up .venv for running (the other targets do so themselves)
	@requirements/sync base

.PHONY: venv-dev
venv-dev:
	@requirements/sync dev

# What needs an engine, an environment of gigabytes, a browser or a service, or takes long by itself.
HEAVY := engine or lab or cluster or environment or browser or s3 or quiet or slow or long or gpu
PARALLEL := -n $(WORKERS) --maxprocesses 8

.PHONY: test test-all test-long mutations
test: check ## all checks, and the tests of minutes: no engine, no environment, no browser; one sweep through Ray
	@$(BIN)/pytest $(PARALLEL) -m 'smoke or not ($(HEAVY))' $(PYTEST_ARGS)
test-all: check ## all checks and tests; what this machine cannot run is skipped with its reason
	@$(BIN)/pytest $(PARALLEL) -m 'not quiet' $(PYTEST_ARGS)
	@$(BIN)/pytest -m quiet $(PYTEST_ARGS)
test-long: venv-dev ## the tests that take minutes each: lab hosts, other clusters, killed nodes; then the mutations
	@TAXMETER_LONG=1 $(BIN)/pytest -m long $(PYTEST_ARGS)
	@$(MAKE) mutations
mutations: venv-dev ## faults seeded into a copy of the product, one at a time: do the tests find each?
	@$(BIN)/python -m tests.mutations

.PHONY: chaos
chaos: venv-dev ## MINUTES of random faults on three lab hosts, from SEED: is anything lost, there twice or left?
	@test -n '$(SEED)' || { echo "make chaos needs SEED=<number>"; exit 2; }
	@$(BIN)/python -m tests.chaos --seed '$(SEED)' --minutes '$(MINUTES)'

.PHONY: sbom audit
sbom: venv-dev ## bills of materials (CycloneDX) of .venv and of the images built here, into .taxmeter/sbom
	@$(BIN)/python -m tests.sbom write .taxmeter/sbom
audit: venv-dev ## what the vulnerability database DATABASE (records of OSV) knows of what these bills list
	@$(BIN)/python -m tests.sbom audit .taxmeter/sbom $(if $(DATABASE),--database '$(DATABASE)')

.PHONY: gpu-check
gpu-check: venv ## eight checks of this machine's GPU (docs/gpu.md), with GPU_PYTHON or in the image of cuda13; QUICK=1
	@docker/gpu-check '$(or $(OUTPUT),.taxmeter/gpu-check)' $(if $(filter-out 0,$(QUICK)),--quick)

.PHONY: bench
bench: venv ## how fast taxmeter itself is: commands, plan, driver, store; OUTPUT= a file of JSON, PAGE= one of Markdown
	@$(BIN)/python -m benchmarks.performance $(if $(OUTPUT),--output '$(OUTPUT)') $(if $(PAGE),--page '$(PAGE)')

.PHONY: soak
soak: venv-dev ## 20,000 null trials through Ray and the store: memory, descriptors and threads; TRIALS=, OUTPUT= a directory
	@$(BIN)/python -m benchmarks.soak $(if $(TRIALS),--trials '$(TRIALS)') $(if $(OUTPUT),--output '$(OUTPUT)')

.PHONY: bench-store
bench-store: venv ## measure the store against this machine's limits; TRIALS=, OUTPUT= a page of Markdown
	@$(BIN)/python -m benchmarks.store $(if $(TRIALS),--trials '$(TRIALS)') $(if $(OUTPUT),--output '$(OUTPUT)')

.PHONY: bench-statistics
bench-statistics: venv ## simulate campaigns: do intervals and verdicts hold? OUTPUT= a page of Markdown
	@$(BIN)/python -m benchmarks.simulation $(if $(OUTPUT),--output '$(OUTPUT)')

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

.PHONY: lock
lock: venv ## resolve every *.in again and write the locks
	cd requirements && $(COMPILE) base.in --output-file base.lock
	cd requirements && $(COMPILE) report.in --constraint base.lock --output-file report.lock
	cd requirements && $(COMPILE) dev.in --constraint report.lock --output-file dev.lock
	cd requirements && $(COMPILE) s3-server.in --output-file s3-server.lock
	cd requirements && $(COMPILE) audit.in --output-file audit.lock
	$(BIN)/taxmeter images lock

.PHONY: clean
clean: ## remove all that can be made again; results stay
	@rm -rf $(LAB_INVENTORY) .venv .taxmeter .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	@find docker/wheels -mindepth 1 ! -name .gitkeep -delete
	@find orchestrator runners tests -name __pycache__ -type d -prune -exec rm -rf {} +
