# `make help` says what each target does. The work is in scripts/.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build demo test test-v2 test-v2-short check proof bench compat containment fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/berm, one static binary with everything in it
	@scripts/build.sh

demo: ## build, then an honest program and one that tries to walk out
	@scripts/demo.sh

test: ## every test, with counts and the reason of each skip
	@scripts/test.sh

test-v2: ## real sandboxes in emulated machines with cgroup v2: suite, caps, users (half an hour)
	@scripts/v2rig.sh full

test-v2-short: ## the part of them that takes minutes: the jail, and kinds of hosts
	@scripts/v2rig.sh short

check: ## vet, formatting, static analysis, race detector, house rules, clean diff
	@scripts/check.sh

proof: ## the long ones: 1,000 runs, 100 kills, full attack and bench runs
	@BERM_PROOF=1 scripts/test.sh
	@scripts/bench.sh

bench: ## the figures of docs/specification.md, measured on this host
	@scripts/bench.sh

compat: ## everyday programs, natively and inside: docs/compatibility.md (an hour)
	@scripts/compat.sh

containment: ## attack Berm and the sandboxes of others: docs/containment.md (half an hour)
	@scripts/containment.sh

fuzz: ## each fuzz target for a while (FUZZTIME=10s)
	@scripts/fuzz.sh

clean: ## remove what the other targets made
	@scripts/clean.sh
