# The commands of Peakplan; README.md shows each at work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRITON := .venv-triton
TRITON_PYTHON ?= /usr/bin/python3
# An index with CPU builds of PyTorch (its "Get started" page names one): on Linux the public one has only CUDA's, several GB.
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile
PEAKPLAN := $(BIN)/python -m peakplan
DATA ?= ../shared/data
WORK ?= runs/qp-smollm2-135m
MODEL ?= models/qp-smollm2-135m
FROM ?= $(MODEL)
NEURON_PYTHON ?= $(BIN)/python
NXDI_VENV := .venv-nxdi
PEERS_VENV := .venv-peers
VLLM_VENV := .venv-vllm
KERNELS_VENV := .venv-kernels
CHECKOV_VENV := .venv-checkov
STACK_VENV := .venv-stack
LOCUST_VENV := .venv-locust
DOCS_VENV := .venv-docs
TYPESCRIPT := clients/typescript
AWSCLI_VENV := .venv-awscli
COMMA := ,
RATE ?= 20
SECONDS ?= 30
SIEGE_SECONDS ?= 600
FUZZ_SECONDS ?= 3600
ORDER ?=
SIEGE_FIGURE ?= docs/figures/siege.json

FLEET ?= dev

# Bytecode is kept, even where the shell says otherwise: each of the tests' many processes would compile PyTorch or the CDK anew.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode

.PHONY: help serve client-types dist lock triton bench-peers bench-batching bench-neighbour bench-neuron-loop bench-triton compile kernels kernels-check neuron-conformance neuron-day test test-rest test-all check format train eval first-answer gallery eval-precisions bench bench-costs load load-figures export import vllm clean synth diff deploy release rollback destroy drift bootstrap certificate bake preflight access cell-out cell-in alarms dashboards cost schema checkov aws-cli finetune bench-retrieval bench-answers siege fuzz sbom sign sign-check site rehearse rehearse-figures rehearse-search rehearse-validate rehearse-live stack bench-vllm tutorials bench-omission

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -t -s "$$(printf '\t')"

serve: $(VENV)/service.stamp ## serve the planner on 127.0.0.1:8080 (PORT= and HOST= move it)
	@exec $(PEAKPLAN) serve

# Two runs beside each other, one a core: CDK keeps one Node process from its import on, which did not outlive ten minutes of
# other tests, so what imports it has a run of its own. What that one says comes at the end.
TESTS = @said=$$(mktemp); $(BIN)/python -m pytest $(ORDER) -m "$(1)" tests/infra tests/ami >"$$said" 2>&1 & fleet=$$!; \
	trap 'kill $$fleet' INT TERM; failed=0; \
	$(BIN)/python -m pytest $(ORDER) -m "$(1)" --ignore tests/infra --ignore tests/ami --ignore tests/conformance || failed=1; \
	wait $$fleet || failed=1; cat "$$said"; rm "$$said"; exit $$failed

test: $(VENV)/test.stamp $(VENV)/cdk.stamp ## the tests that show within minutes whether everything works; ORDER=--random-order: in any order
	$(call TESTS,not slow)

test-rest: $(VENV)/test.stamp $(VENV)/cdk.stamp $(TYPESCRIPT)/node_modules/stamp ## what `make test` leaves out: images, Triton, training, faults, every fleet
	$(call TESTS,slow)

test-all: ## every test: make test, then make test-rest
	@failed=0; $(MAKE) test || failed=1; $(MAKE) test-rest || failed=1; exit $$failed

check: $(VENV)/test.stamp ## lint, types, imports, stale figures and tables
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m rehearsal.tools.readme --check
	$(BIN)/python -m rehearsal.tools.first_answer --check
	$(BIN)/python -m rehearsal.tools.gallery --check
	$(BIN)/python -m infra.fleet.alarm_table --check
	$(BIN)/python -m rehearsal.stack.rehearse --twin docs/figures/stack.json --check

format: $(VENV)/test.stamp ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A base of one's own has a work folder and a model of its own name: nothing of the shipped one is touched.
TRAINED = $(if $(BASE),$(or $(OUTPUT),models/$(notdir $(BASE:%/=%))),$(MODEL))

train: $(VENV)/test.stamp ## make a model from DATA=../shared/data (restartable; hours on a CPU; SCALE=0.01 rehearses it; BASE=a checkpoint)
	$(PEAKPLAN) train --data $(DATA) --work $(if $(BASE),runs/$(notdir $(TRAINED)),$(WORK)) --output $(TRAINED) $(if $(BASE),--base "$(BASE)") $(if $(SCALE),--scale $(SCALE)) $(if $(VOCABULARY),--vocabulary "$(VOCABULARY)")

finetune: $(VENV)/test.stamp ## go on from the model FROM= with rows of your own, DATA=my.jsonl, into OUTPUT=models/mine
	@$(PEAKPLAN) finetune "$(DATA)" --from "$(FROM)" --output "$(OUTPUT)" $(if $(VOCABULARY),--vocabulary "$(VOCABULARY)") $(OPTIONS)

eval: $(VENV)/test.stamp ## quality on dev questions of DATA into docs/figures/quality.json
	$(BIN)/python -m rehearsal.bench.quality --data $(DATA) --model $(MODEL)
	$(BIN)/python -m rehearsal.bench.conversations --figure --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme

first-answer: $(VENV)/service.stamp ## the answer that README begins with, from the shipped model, into docs/figures/first_answer.json
	$(BIN)/python -m rehearsal.tools.first_answer
	$(BIN)/python -m rehearsal.tools.readme

gallery: $(VENV)/service.stamp ## docs/gallery.md: sixty shopper questions and the shipped model's plans of them
	$(BIN)/python -m rehearsal.tools.gallery
	$(BIN)/python -m rehearsal.tools.readme

eval-precisions: $(VENV)/test.stamp ## quality in int8, bfloat16 and float32 side by side into docs/figures/precision.json
	$(BIN)/python -m rehearsal.bench.precision --data $(DATA) --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme

bench: $(VENV)/test.stamp ## speed beside greedy decoding and Hugging Face's generate into docs/figures/decoding.json
	$(PEAKPLAN) bench --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme
	@echo "Other engines beside it: make bench-peers (installs them into $(PEERS_VENV), 0.7 GB; minutes)"

bench-costs: $(VENV)/test.stamp ## what the dearest question costs outside the model into docs/figures/question_cost.json; fails above the budget
	$(BIN)/python -m rehearsal.bench.question_cost
	$(BIN)/python -m rehearsal.tools.readme

bench-peers: $(VENV)/test.stamp $(PEERS_VENV)/stamp ## llama.cpp, ONNX Runtime, OpenVINO and CTranslate2 beside ours into docs/figures/peers.json
	$(BIN)/python -m rehearsal.bench.peers --model $(MODEL) --python $(PEERS_VENV)/bin/python
	$(BIN)/python -m rehearsal.tools.readme

bench-vllm: $(VENV)/test.stamp $(VLLM_VENV)/stamp ## vLLM itself on this processor beside ours into docs/figures/vllm.json (installs it: 0.6 GB to download, 3 GB)
	$(BIN)/python -m rehearsal.bench.vllm --model $(MODEL) --python $(VLLM_VENV)/bin/python
	$(BIN)/python -m rehearsal.tools.readme

bench-batching: $(VENV)/test.stamp ## plans a second and p99 by batch size into docs/figures/batching.json, which no page shows
	$(BIN)/python -m rehearsal.bench.batching --model $(MODEL)

bench-neighbour: $(VENV)/test.stamp ## plans a second beside a neighbour that eats memory bandwidth into docs/figures/neighbour.json
	$(BIN)/python -m rehearsal.bench.neighbour --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme

bench-omission: $(VENV)/test.stamp $(LOCUST_VENV)/stamp ## our load generator and Locust before a server that stalls on purpose, into docs/figures/omission.json (two minutes)
	$(BIN)/python -m rehearsal.omission --python $(LOCUST_VENV)/bin/python
	$(BIN)/python -m rehearsal.tools.readme

bench-neuron-loop: $(VENV)/test.stamp ## the Neuron engine's loop over an emulated graph into docs/figures/neuron_loop.json
	$(BIN)/python -m rehearsal.bench.neuron_loop --model $(MODEL) --questions 1000 --compare
	$(BIN)/python -m rehearsal.tools.readme

bench-retrieval: $(VENV)/test.stamp ## what a search finds with plans beside raw words into docs/figures/retrieval.json
	$(BIN)/python -m rehearsal.bench.retrieval --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme

bench-answers: $(VENV)/test.stamp ## the time to the first three options, and whether they meet what was asked, into docs/figures/answers.json
	$(BIN)/python -m rehearsal.answers
	$(BIN)/python -m rehearsal.tools.readme

triton: $(TRITON)/stamp ## tritonserver into .venv-triton (Linux on x86-64; TRITON_PYTHON= a Python with its shared library)

bench-triton: $(VENV)/test.stamp $(TRITON)/stamp ## what Triton adds, and how it recovers, into docs/figures/triton.json
	$(BIN)/python -m rehearsal.triton --model $(MODEL)
	$(BIN)/python -m rehearsal.tools.readme

compile: $(VENV)/service.stamp ## MODEL for inf2 or trn1 into OUTPUT; OPTIONS="--chip trn1"; NEURON_PYTHON= one with the Neuron SDK
	@$(NEURON_PYTHON) -m service.engines.neuron compile --model "$(MODEL)" --output "$(OUTPUT)" $(OPTIONS)

neuron-conformance: $(NXDI_VENV)/stamp ## our loop over the real NxDI source, NXDI=<its checkout>:<neuronx-distributed's>, on a CPU
	PEAKPLAN_NXDI_SOURCE="$(NXDI)" $(NXDI_VENV)/bin/python -m pytest tests/conformance/neuron
	PEAKPLAN_NXDI_SOURCE="$(NXDI)" $(NXDI_VENV)/bin/python -m rehearsal.bench.neuron

neuron-day: ## on an inf2 or trn1, in the service's container: compile, compare, time steps and plans, boot, advise; again: goes on; OPTIONS="--chip trn1 --fleet my.yaml"
	rehearsal/bench/neuron_day/on-host.sh $(OPTIONS)

kernels: $(KERNELS_VENV)/stamp ## the kernel libraries of every processor from their sources; commit what changes
	$(KERNELS_VENV)/bin/python -m service.decoding.native.build
	$(KERNELS_VENV)/bin/python -m rehearsal.twin.native.library

kernels-check: $(KERNELS_VENV)/stamp ## whether the committed kernel libraries are what their sources make
	$(KERNELS_VENV)/bin/python -m service.decoding.native.build --check
	$(KERNELS_VENV)/bin/python -m rehearsal.twin.native.library --check

export: $(VENV)/service.stamp ## MODEL as a Hugging Face checkpoint into OUTPUT, heads in FORMAT=fasterdecoding|tgi-v1|tgi-v2|nxdi|vllm
	@$(BIN)/python -m service.weights export --format "$(FORMAT)" --model "$(MODEL)" --output "$(OUTPUT)"

import: $(VENV)/service.stamp ## a Llama, Mistral, Qwen or SmolLM CHECKPOINT=, its HEADS= (any layout) and EAGLE= as a model folder, OUTPUT=
	@$(BIN)/python -m service.weights import --checkpoint "$(CHECKPOINT)" --output "$(OUTPUT)" \
	  $(if $(HEADS),--heads "$(HEADS)") $(if $(EAGLE),--eagle "$(EAGLE)") $(if $(TREE),--tree "$(TREE)") $(if $(VOCABULARY),--vocabulary "$(VOCABULARY)")

synth: $(VENV)/cdk.stamp ## the CloudFormation of FLEET=dev|prime-day|my/fleet.yaml into cdk.out; offline, no account
	$(PEAKPLAN) fleet synth $(FLEET)

checkov: $(CHECKOV_VENV)/stamp synth ## what checkov finds in the CloudFormation of FLEET and nobody accepted; installs it (0.2 GB)
	$(CHECKOV_VENV)/bin/checkov --file cdk.out/*.template.json --framework cloudformation --compact --quiet --skip-download

aws-cli: $(AWSCLI_VENV)/stamp ## the AWS CLI, with which tests run the commands of docs/runbooks; installs it (0.1 GB)

diff: $(VENV)/cdk.stamp ## what a deploy of FLEET would change (needs AWS credentials)
	$(PEAKPLAN) fleet diff $(FLEET)

rehearse: $(VENV)/test.stamp $(VENV)/fleet.stamp ## does FLEET carry TRAFFIC= (a trace or a CSV file) through SCENARIO=all|zone-lost|...; PEAK=1.2 SEEDS=5 HOSTS=84 TIMES=measured
	@$(PEAKPLAN) rehearse run $(FLEET) $(REHEARSED) $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(HOSTS),--hosts $(HOSTS))

rehearse-figures: $(VENV)/test.stamp $(VENV)/fleet.stamp ## rehearse the fleets that ship, SEEDS=1 unless given, and write the verdicts into docs/event-day.md (some 15 minutes)
	for fleet in dev prime-day prime-day-small mistral-7b; do $(PEAKPLAN) rehearse run $$fleet --seeds $(or $(SEEDS),1) --output runs/rehearsal/$$fleet || [ $$? = 1 ] || exit 2; done
	$(BIN)/python -m rehearsal.verdicts $(foreach fleet,dev prime-day prime-day-small mistral-7b,runs/rehearsal/$(fleet)/rehearsal.json)
	$(BIN)/python -m rehearsal.tools.readme

rehearse-search: $(VENV)/test.stamp $(VENV)/fleet.stamp ## the cheapest fleets like FLEET that carry TRAFFIC= at PEAK=1.1, ranked, with what breaks each (some 3 minutes)
	@$(PEAKPLAN) rehearse search $(FLEET) $(REHEARSED)

rehearse-validate: $(VENV)/test.stamp $(VENV)/fleet.stamp ## the twin against the live service, side by side (7 minutes, an idle machine)
	@$(PEAKPLAN) rehearse validate $(if $(SCALE),--scale $(SCALE))

stack: $(VENV)/test.stamp $(VENV)/postgres.stamp $(STACK_VENV)/stamp ## HOSTS= (1) hosts in each of two cells, Envoy, caches, Prometheus, Alertmanager, PostgreSQL here until Ctrl-C; RECORDED=1: light hosts (docs/stack.md)
	@$(BIN)/python -m rehearsal.stack $(if $(HOSTS),--hosts $(HOSTS)) $(if $(RECORDED),--recorded)

rehearse-live: $(VENV)/test.stamp $(VENV)/fleet.stamp $(STACK_VENV)/stamp ## SCENARIO=all|surge,cell-lost,... on eight light hosts behind Envoy, the twin beside them, into docs/figures/stack.json (half an hour, an idle machine; RUNS=3 times that; OPTIONS="--hurry 15 --seconds 62": an eighth less); BROKEN=health-checks|deadline|alert must fail
	$(BIN)/python -m rehearsal.stack.rehearse $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(HOSTS),--hosts $(HOSTS)) $(if $(RUNS),--runs $(RUNS)) $(OPTIONS) $(if $(BROKEN),--broken $(BROKEN),--output docs/figures/stack.json)
	$(if $(BROKEN),,$(BIN)/python -m rehearsal.tools.readme)

REHEARSED = $(if $(TRAFFIC),--traffic "$(TRAFFIC)") $(if $(PEAK),--peak $(PEAK)) $(if $(TIMES),--times $(TIMES))

deploy: $(VENV)/cdk.stamp $(VENV)/test.stamp ## the newest release to every cell of FLEET, rehearsed first (FORCE="reason" all the same); the account's state machine goes from cell to cell and stops where one is hurt; again: goes on (needs AWS credentials)
	$(PEAKPLAN) fleet preflight $(FLEET)
	$(PEAKPLAN) fleet deploy $(FLEET) $(if $(TRAFFIC),--traffic "$(TRAFFIC)") $(if $(FORCE),--force "$(FORCE)") $(if $(TAKE_OVER),--take-over) $(if $(RETIRE),--retire)

release: $(VENV)/cdk.stamp $(VENV)/test.stamp ## as make deploy, but ends once the state machine has it (needs AWS credentials)
	$(PEAKPLAN) fleet preflight $(FLEET)
	$(PEAKPLAN) fleet deploy $(FLEET) --detach $(if $(TRAFFIC),--traffic "$(TRAFFIC)") $(if $(FORCE),--force "$(FORCE)") $(if $(TAKE_OVER),--take-over)

rollback: $(VENV)/fleet.stamp ## every cell of FLEET back to the release before, or to RELEASE=ami-...; at once, without a bake
	$(PEAKPLAN) fleet rollback $(FLEET) $(if $(RELEASE),--release $(RELEASE))

destroy: $(VENV)/fleet.stamp ## delete every stack of FLEET, once its name was typed (NAME= where nobody can be asked); says what it kept (needs AWS credentials)
	@$(PEAKPLAN) fleet destroy $(FLEET) $(if $(NAME),--name "$(NAME)")

drift: $(VENV)/fleet.stamp ## what of FLEET was changed by hand since the last deploy (needs AWS credentials)
	@$(PEAKPLAN) fleet drift $(FLEET)

bootstrap: $(VENV)/cdk.stamp ## an empty account and region for FLEET: the CDK's bootstrap stack, the base image's parameter (needs AWS credentials)
	$(PEAKPLAN) fleet bootstrap $(FLEET)

certificate: $(VENV)/fleet.stamp ## a certificate for FLEET by an authority of your own in certificates/, or its renewal (needs AWS credentials)
	$(PEAKPLAN) fleet certificate $(FLEET)

bake: $(VENV)/cdk.stamp ## a release of FLEET: the image pipeline, and a machine image of this checkout, in the account (needs AWS credentials)
	$(PEAKPLAN) fleet bake $(FLEET)

preflight: $(VENV)/fleet.stamp ## what FLEET needs that the account lacks: quotas, zones, certificate, image (needs AWS credentials)
	$(PEAKPLAN) fleet preflight $(FLEET)

access: $(VENV)/fleet.stamp ## let FLEET's callers in: accept their PrivateLink endpoints, authorise their VPCs for the private zone (needs AWS credentials)
	$(PEAKPLAN) fleet access $(FLEET)

cell-out: $(VENV)/cdk.stamp ## move CELL=cell-2 of FLEET out of service: its callers go to the others (REFUSE=1: it answers 503; FORCE=1: although they are too small)
	@$(PEAKPLAN) fleet cell out $(FLEET) $(CELL) $(if $(REFUSE),--refuse) $(if $(FORCE),--force)

cell-in: $(VENV)/cdk.stamp ## move CELL= of FLEET back into service
	@$(PEAKPLAN) fleet cell in $(FLEET) $(CELL)

alarms: $(VENV)/fleet.stamp ## docs/alarms.md, Prometheus rules and a Grafana dashboard from infra/fleet/alarms.py
	$(BIN)/python -m infra.fleet.alarm_table

dashboards: synth $(VENV)/test.stamp ## pictures of FLEET's dashboards with a rehearsal's data into docs/figures (FLEET=prime-day)
	$(BIN)/python -m rehearsal.dashboards $(FLEET) cdk.out

cost: $(VENV)/fleet.stamp ## what FLEET costs an hour and a million plans, with the arithmetic
	@$(PEAKPLAN) fleet cost $(FLEET)

vllm: $(VENV)/fleet.stamp ## how vLLM runs FLEET's model on its instances, and the gateway's settings before it
	@$(PEAKPLAN) fleet vllm $(FLEET)

schema: $(VENV)/fleet.stamp ## the JSON Schema that editors check fleet files with
	$(PEAKPLAN) fleet schema

load: $(VENV)/test.stamp ## open-loop load: RATE= requests a second for SECONDS=; URL= names a service that runs already; CASES= how many plans pass
	$(if $(CASES),$(BIN)/python -m rehearsal.load.passed $(CASES),$(PEAKPLAN) load --rate $(RATE) --seconds $(SECONDS) --data $(DATA) $(if $(URL),--url $(URL)))

load-figures: $(VENV)/test.stamp ## the service under load and faults into docs/figures/serving.json (15 minutes, an idle machine)
	$(BIN)/python -m rehearsal.load.figures --data $(DATA)
	$(BIN)/python -m rehearsal.signals # one of its hosts takes the times that were just measured
	$(BIN)/python -m rehearsal.tools.readme

fuzz: $(VENV)/fuzz.stamp ## search each target for FUZZ_SECONDS= (3600) for words that fail or cost most; tests/fuzz/corpus.jsonl keeps what it finds
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

siege: $(VENV)/test.stamp ## attack a service on loopback for SIEGE_SECONDS= (600) into docs/figures/siege.json; SIEGE_OPTIONS=--shared beside other work
	$(BIN)/python -m rehearsal.siege --seconds $(SIEGE_SECONDS) --output $(SIEGE_FIGURE) $(SIEGE_OPTIONS)
	$(BIN)/python -m rehearsal.tools.readme

dist: $(VENV)/test.stamp ## the service's and the client's wheel, the npm package, the container image (where buildah is; IMAGE_BASE= a base of yours), sources and SBOMs into dist, each the same bytes twice
	.ci/release dist

sign: $(VENV)/test.stamp ## sources, both wheels, the npm package, native libraries and SBOMs into dist, their digests signed with the SSH key KEY=; checks that kernels are what their sources make
	.ci/release make "$(KEY)"

sign-check: ## whether the release in DIST=dist is whole and signed by a key of SIGNERS=
	.ci/release check "$(SIGNERS)" "$(or $(DIST),dist)"

sbom: $(VENV)/test.stamp ## what is installed, by package, version, hash and licence, as CycloneDX 1.6 into sbom.json; the lock into sbom-lock.json
	$(BIN)/python -m rehearsal.tools.licences --check
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --mc-type application --output-reproducible --spec-version 1.6 --output-file sbom.json
	$(BIN)/cyclonedx-py requirements requirements-dev.txt --pyproject pyproject.toml --mc-type application --output-reproducible --spec-version 1.6 --output-file sbom-lock.json

client-types: $(VENV)/test.stamp $(TYPESCRIPT)/node_modules/stamp ## the types of clients/typescript from the OpenAPI document
	$(BIN)/python -m rehearsal.tools.client_types

site: $(DOCS_VENV)/stamp docs/website/node_modules/stamp ## the documents as a site in build/site, with search and diagrams, offline; installs MkDocs Material (0.1 GB)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet --config-file docs/website/mkdocs.yml

tutorials: $(VENV)/test.stamp $(TYPESCRIPT)/node_modules/stamp ## docs/tutorials followed to the letter in fresh folders, with the minutes each took; one trains a model
	PEAKPLAN_TUTORIALS=1 $(BIN)/python -m pytest tests/docs/test_tutorials.py --durations 0

clean: ## forget the virtual environment and what tools cached here
	rm -rf $(VENV) $(TRITON) $(NXDI_VENV) $(PEERS_VENV) $(VLLM_VENV) $(KERNELS_VENV) $(CHECKOV_VENV) $(STACK_VENV) $(LOCUST_VENV) $(DOCS_VENV) node_modules docs/website/node_modules $(TYPESCRIPT)/node_modules $(TYPESCRIPT)/dist cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis

lock: $(VENV)/test.stamp ## resolve pyproject.toml anew into requirements-dev.txt, requirements.txt and what images are made of
	$(call LOCK,--generate-hashes --no-emit-package torch --all-extras,requirements-dev.txt)
	$(call LOCK,--constraint requirements-dev.txt --extra service --extra torch --extra fleet,requirements.txt)
	$(call PART,--extra service --extra torch,requirements/service.txt)
	$(call PART,--extra postgres,requirements/postgres.txt)
	$(call PART,--extra service --extra triton --no-emit-package numpy,requirements/triton.txt)
	$(call PART,--extra replica --no-emit-package numpy,requirements/replica.txt)

# PyTorch's builds differ by machine and index, and their hashes with them: files with hashes leave it out, and requirements.txt,
# which names it, has no hashes.
LOCK = $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --no-annotate --no-emit-index-url \
  --no-emit-package peakplan --custom-compile-command "make lock" --quiet $(if $(UPGRADE),--upgrade) $(1) --output-file $(2)
PART = $(call LOCK,--generate-hashes --no-emit-package torch --constraint requirements-dev.txt $(1),$(2))

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Peakplan needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip==26.3
	@touch $@

# The command itself: pip adds one line that points to this checkout.
$(VENV)/command.stamp: pyproject.toml hatch_build.py $(VENV)/pip.stamp
	$(PIP) --quiet --no-deps --editable .
	@touch $@

# After the packages with hashes, which have all that PyTorch needs. What follows goes again: nothing reads it, 180 MB.
UNUSED := torch/include torch/test torch/bin/test_* torch/bin/*Test torch/bin/protoc* $(addsuffix /tests,sympy/* numpy/* networkx/*)
NO_MUSL := import sys, sysconfig; sys.exit("musl" in (sysconfig.get_config_var("SOABI") or "") and "PyTorch and llguidance have no wheels for \
this system\x27s C library, musl (Alpine): use the container image (docs/container.md) or a system with glibc")
$(VENV)/service.stamp: requirements/torch.txt requirements/service.txt $(VENV)/command.stamp
	@$(BIN)/python -c '$(NO_MUSL)'
	@echo "Installing what serving needs: $$(grep -c == requirements/service.txt) packages and PyTorch, about 300 MB to download (CPU build:"
	@echo "on Linux give TORCH_INDEX=, the address that PyTorch's Get started page shows for CPU; without it CUDA comes along, several GB)."
	$(PIP) --requirement requirements/service.txt
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --requirement requirements/torch.txt
	@rm -rf $(addprefix $(VENV)/lib/python3*/site-packages/,$(UNUSED))
	@touch $@

# The packages of requirements.txt, checked by hash; PyTorch, which has none, is left to the service.
$(VENV)/fleet.stamp: requirements.txt requirements-dev.txt $(VENV)/command.stamp
	@echo "Installing what a fleet needs: the CDK and its Node; about 250 MB to download."
	@awk 'NR == FNR { split($$1, pin, "=="); named[pin[1]]; next } /^[^ ]/ { split($$1, pin, "=="); ours = pin[1] in named } ours' \
	  requirements.txt requirements-dev.txt > $(VENV)/fleet.txt
	$(PIP) --requirement $(VENV)/fleet.txt
	@touch $@

# psycopg, which no other command's environment has: its licence is for whoever wants it (rehearsal/tools/licences.py).
$(VENV)/postgres.stamp: requirements/postgres.txt $(VENV)/pip.stamp
	$(PIP) --quiet --requirement requirements/postgres.txt
	@touch $@

$(VENV)/test.stamp: requirements-dev.txt $(VENV)/service.stamp
	@echo "Installing what the tests need: $$(grep -c == requirements-dev.txt) packages; about 500 MB to download."
	$(PIP) --quiet --requirement requirements-dev.txt
	@touch $@ $(VENV)/fleet.stamp

$(VENV)/fuzz.stamp: pyproject.toml $(VENV)/test.stamp
	$(PIP) --quiet --group fuzz
	@touch $@

$(TRITON)/stamp: requirements/tritonserver.txt $(VENV)/service.stamp
	$(BIN)/python -m service.engines.triton.environment --python $(TRITON_PYTHON) $(TRITON)
	@touch $@

# $(call APART,folder,group,more): an environment with a dependency group of pyproject.toml. Its own pip is too old for groups.
APART = $(PYTHON) -m venv $(1) && $(BIN)/python -m pip --quiet --disable-pip-version-check --python $(1)/bin/python install --group $(2) $(3)

$(NXDI_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(NXDI_VENV),neuron-conformance,$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable .[service$(COMMA)plots])
	@touch $@

# Whatever of them does not install is listed in the figure. PEAKPLAN_KERNEL=avx2 wants a llama.cpp held to that, too.
$(PEERS_VENV)/stamp: pyproject.toml | $(VENV)/service.stamp
	$(PYTHON) -m venv $(PEERS_VENV)
	$(BIN)/python -m rehearsal.bench.peers.environment $(PEERS_VENV)
	@touch $@

$(VLLM_VENV)/stamp: pyproject.toml | $(VENV)/service.stamp
	$(PYTHON) -m venv $(VLLM_VENV)
	$(BIN)/python -m rehearsal.bench.vllm.environment $(VLLM_VENV)
	@touch $@

$(PEERS_VENV)/avx2.stamp: $(PEERS_VENV)/stamp
	$(BIN)/python -m rehearsal.bench.peers.environment --avx2 $(PEERS_VENV)
	@touch $@

ifeq ($(PEAKPLAN_KERNEL),avx2)
bench-peers: $(PEERS_VENV)/avx2.stamp
endif

$(KERNELS_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(KERNELS_VENV),kernels)
	@touch $@

$(STACK_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(STACK_VENV),stack)
	@touch $@

$(LOCUST_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(LOCUST_VENV),locust)
	@touch $@

$(DOCS_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(DOCS_VENV),docs)
	@touch $@

$(AWSCLI_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(AWSCLI_VENV),awscli)
	@touch $@

$(CHECKOV_VENV)/stamp: pyproject.toml $(VENV)/pip.stamp
	$(call APART,$(CHECKOV_VENV),checkov)
	@touch $@

# The compiler of @peakplan/client, and what writes its types: nobody who uses the package needs them.
$(TYPESCRIPT)/node_modules/stamp: $(TYPESCRIPT)/package-lock.json $(VENV)/fleet.stamp
	@cd $(TYPESCRIPT) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@

# What draws the site's diagrams.
docs/website/node_modules/stamp: docs/website/package-lock.json $(VENV)/fleet.stamp
	@cd docs/website && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@

$(VENV)/cdk.stamp: package-lock.json $(VENV)/fleet.stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@
