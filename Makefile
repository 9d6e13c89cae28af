# What people do weekly. All other commands are `peakplan`'s: .venv/bin/peakplan --help lists them.
PYTHON ?= $(firstword $(wildcard .venv/bin/python) python3)
BIN := .venv/bin
PEAKPLAN := $(BIN)/python -m peakplan
# Installs what a command needs, once (TORCH_INDEX= an index with CPU builds of PyTorch: the public one has CUDA's on Linux).
HAVE := @$(PYTHON) peakplan/environment.py
DATA ?= ../shared/data
WORK ?= runs/qp-smollm2-135m
MODEL ?= models/qp-smollm2-135m
FROM ?= $(MODEL)
FLEET ?= dev
RATE ?= 20
SECONDS ?= 30
SIEGE_SECONDS ?= 600
SIEGE_FIGURE ?= docs/figures/siege.json
ORDER ?=
# Bytecode is kept, even where the shell says otherwise: each of the tests' many processes would compile PyTorch or the CDK anew.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.venv/bytecode
# Two runs beside each other, one a core: CDK keeps one Node process from its import on, which did not outlive ten minutes of
# other tests, so what imports it has a run of its own, and training's tests follow it. What those say comes at the end.
BESIDE := tests/infra tests/ami tests/training
PYTEST = $(BIN)/python -m pytest $(ORDER) -m "$(1)"
TESTS = @said=$$(mktemp); (failed=0; $(PYTEST) tests/infra tests/ami || failed=1; $(PYTEST) tests/training || failed=1; exit $$failed) >"$$said" 2>&1 & beside=$$!; \
	trap 'pkill -P $$beside || kill $$beside' INT TERM; failed=0; \
	$(PYTEST) $(BESIDE:%=--ignore %) --ignore tests/conformance || failed=1; \
	wait $$beside || failed=1; cat "$$said"; rm "$$said"; exit $$failed
# A base of one's own has a work folder and a model of its own name: nothing of the shipped one is touched.
TRAINED = $(if $(BASE),$(or $(OUTPUT),models/$(notdir $(BASE:%/=%))),$(MODEL))
# $(call OPTION,--option,VARIABLE): the option, where the variable is given.
OPTION = $(if $($(2)),$(1) "$($(2))")
DEPLOY = $(PEAKPLAN) fleet deploy $(FLEET) $(call OPTION,--traffic,TRAFFIC) $(call OPTION,--force,FORCE) $(if $(TAKE_OVER),--take-over)

.PHONY: help serve test test-rest test-all check format train finetune eval bench load siege rehearse stack synth diff deploy release rollback destroy preflight site dist clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -t -s "$$(printf '\t')"

serve: ## serve the planner on 127.0.0.1:8080 (PORT= and HOST= move it)
	$(HAVE) service
	@exec $(PEAKPLAN) serve

test: ## the tests that show within minutes whether everything works; ORDER=--random-order: in any order
	$(HAVE) test cdk
	$(call TESTS,not slow)

test-rest: ## what `make test` leaves out: images, Triton, training, faults, every fleet
	$(HAVE) test cdk typescript
	$(call TESTS,slow)

test-all: ## every test: make test, then make test-rest
	@failed=0; $(MAKE) test || failed=1; $(MAKE) test-rest || failed=1; exit $$failed

check: ## lint, spelling, types, imports, stale figures and tables
	$(HAVE) test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PEAKPLAN) tools check

format: ## let ruff format and fix what it can
	$(HAVE) test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

train: ## make a model from DATA=../shared/data (restartable; hours on a CPU; SCALE=0.01 rehearses it; BASE=a checkpoint)
	$(HAVE) test
	$(PEAKPLAN) train --data $(DATA) --work $(if $(BASE),runs/$(notdir $(TRAINED)),$(WORK)) --output $(TRAINED) $(call OPTION,--base,BASE) $(call OPTION,--scale,SCALE) $(call OPTION,--vocabulary,VOCABULARY)

finetune: ## go on from the model FROM= with rows of your own, DATA=my.jsonl, into OUTPUT=models/mine
	$(HAVE) test
	@$(PEAKPLAN) finetune "$(DATA)" --from "$(FROM)" --output "$(OUTPUT)" $(call OPTION,--vocabulary,VOCABULARY) $(OPTIONS)

eval: ## quality on dev questions of DATA into docs/figures/quality.json
	$(HAVE) test
	$(PEAKPLAN) eval --data $(DATA) --model $(MODEL)
	$(PEAKPLAN) bench conversations --figure --model $(MODEL)

bench: ## speed beside greedy decoding and Hugging Face's generate into docs/figures/decoding.json
	$(HAVE) test
	$(PEAKPLAN) bench decoding --model $(MODEL)

load: ## open-loop load: RATE= requests a second for SECONDS=; URL= names a service that runs already
	$(HAVE) test
	$(PEAKPLAN) load --rate $(RATE) --seconds $(SECONDS) --data $(DATA) $(call OPTION,--url,URL)

siege: ## attack a service on loopback for SIEGE_SECONDS= (600) into docs/figures/siege.json; SIEGE_OPTIONS=--shared beside other work
	$(HAVE) test
	$(PEAKPLAN) bench siege --seconds $(SIEGE_SECONDS) --output $(SIEGE_FIGURE) $(SIEGE_OPTIONS)

rehearse: ## does FLEET carry TRAFFIC= (a trace or a CSV file) through SCENARIO=all|zone-lost|...; PEAK=1.2 SEEDS=5 HOSTS=84 TIMES=measured
	$(HAVE) test
	@$(PEAKPLAN) rehearse run $(FLEET) $(call OPTION,--traffic,TRAFFIC) $(call OPTION,--peak,PEAK) $(call OPTION,--times,TIMES) $(call OPTION,--scenario,SCENARIO) $(call OPTION,--seeds,SEEDS) $(call OPTION,--hosts,HOSTS)

stack: ## HOSTS= (1) hosts in each of two cells, Envoy, caches, Prometheus, Alertmanager, PostgreSQL here until Ctrl-C; RECORDED=1: light hosts (docs/stack.md)
	$(HAVE) stack
	@$(BIN)/python -m rehearsal.stack $(call OPTION,--hosts,HOSTS) $(if $(RECORDED),--recorded)

synth: ## the CloudFormation of FLEET=dev|prime-day|my/fleet.yaml into cdk.out; offline, no account
	$(HAVE) cdk
	$(PEAKPLAN) fleet synth $(FLEET)

diff: ## what a deploy of FLEET would change (needs AWS credentials)
	$(HAVE) cdk
	$(PEAKPLAN) fleet diff $(FLEET)

deploy: ## the newest release to every cell of FLEET, rehearsed first (FORCE="reason" all the same); the account's state machine goes from cell to cell and stops where one is hurt; again: goes on (needs AWS credentials)
	$(HAVE) test cdk
	$(PEAKPLAN) fleet preflight $(FLEET)
	$(DEPLOY) $(if $(RETIRE),--retire)

release: ## as make deploy, but ends once the state machine has it (needs AWS credentials)
	$(HAVE) test cdk
	$(PEAKPLAN) fleet preflight $(FLEET)
	$(DEPLOY) --detach

rollback: ## every cell of FLEET back to the release before, or to RELEASE=ami-...; at once, without a bake
	$(HAVE) fleet
	$(PEAKPLAN) fleet rollback $(FLEET) $(call OPTION,--release,RELEASE)

destroy: ## delete every stack of FLEET, once its name was typed (NAME= where nobody can be asked); says what it kept (needs AWS credentials)
	$(HAVE) fleet
	@$(PEAKPLAN) fleet destroy $(FLEET) $(call OPTION,--name,NAME)

preflight: ## what FLEET needs that the account lacks: quotas, zones, certificate, image (needs AWS credentials)
	$(HAVE) fleet
	$(PEAKPLAN) fleet preflight $(FLEET)

site: ## the documents as a site in build/site, with search and diagrams, offline
	$(HAVE) site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file docs/website/mkdocs.yml

dist: ## wheels, the npm package, the container image (where buildah is; IMAGE_BASE= a base of yours), sources and SBOMs into dist, each the same bytes twice
	$(HAVE) test typescript
	.ci/release dist

clean: ## forget the virtual environments and what tools cached here
	rm -rf .venv .venv-triton .venv-checkov .venv-peers node_modules docs/website/node_modules clients/typescript/node_modules clients/typescript/dist
	rm -rf cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis
