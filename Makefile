# The commands of Peakplan; README.md shows each at work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRITON := .venv-triton
TRITON_PYTHON ?= /usr/bin/python3
SERVICE_REQUIREMENTS := requirements.txt requirements-torch.txt requirements-service.txt
DATA ?= ../shared/data
WORK ?= runs/qp-smollm2-135m
MODEL ?= models/qp-smollm2-135m
NEURON_PYTHON ?= $(BIN)/python
NXDI_VENV := .venv-nxdi
RATE ?= 20
SECONDS ?= 30

# The allocator's defaults give big tensors back to the system at every training step, which costs a third of its time.
TRAINING_ENVIRONMENT := MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456

# The pinned CDK CLI, on the Node that Python's package brings: the machine needs none.
FLEET ?= dev
CDK := env PATH="$(CURDIR)/$(BIN):$$PATH" CDK_DISABLE_CLI_TELEMETRY=true node_modules/.bin/cdk --no-notices

.PHONY: help serve triton bench-triton compile neuron-conformance test test-fast check format train eval bench load load-figures export import vllm clean synth diff deploy rollback preflight access cell-out cell-in alarms cost schema

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | column -t -s "$$(printf '\t')"

serve: $(VENV)/service.stamp ## serve the planner on 127.0.0.1:8080 (PORT= and HOST= move it)
	@exec $(BIN)/python -m service

# CDK keeps one Node process from its import on, which did not outlive ten minutes of other tests: its own run apart.
test: $(VENV)/test.stamp $(VENV)/cdk.stamp ## every test, fast ones first
	$(BIN)/python -m pytest --ignore tests/infra --ignore tests/ami
	$(BIN)/python -m pytest tests/infra tests/ami

test-fast: $(VENV)/test.stamp ## every test that takes seconds
	$(BIN)/python -m pytest -m "not slow"

check: $(VENV)/test.stamp ## lint, types, stale figures
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.readme --check
	$(BIN)/python -m infra.fleet.alarm_table --check

format: $(VENV)/test.stamp ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

train: $(VENV)/training.stamp ## make a model from DATA=../shared/data (restartable; hours on a CPU)
	$(TRAINING_ENVIRONMENT) $(BIN)/python -m training --data $(DATA) --work $(WORK) --output $(MODEL)

eval: $(VENV)/training.stamp ## quality on dev questions of DATA into docs/figures/quality.json
	$(BIN)/python -m training.evaluate --data $(DATA) --model $(MODEL)
	$(BIN)/python -m benchmarks.readme

bench: $(VENV)/training.stamp ## speed beside greedy decoding and Hugging Face's generate into docs/figures/decoding.json
	$(BIN)/python -m benchmarks.decoding --model $(MODEL)
	$(BIN)/python -m benchmarks.readme

triton: $(TRITON)/stamp ## tritonserver into .venv-triton (Linux on x86-64; TRITON_PYTHON= a Python with its shared library)

bench-triton: $(VENV)/test.stamp $(TRITON)/stamp ## what Triton adds, and how it recovers, into docs/figures/triton.json
	$(BIN)/python -m benchmarks.triton --model $(MODEL)
	$(BIN)/python -m benchmarks.readme

compile: $(VENV)/service.stamp ## MODEL for inf2 or trn1 into OUTPUT; OPTIONS="--chip trn1"; NEURON_PYTHON= one with the Neuron SDK
	@$(NEURON_PYTHON) -m service.engines.neuron compile --model "$(MODEL)" --output "$(OUTPUT)" $(OPTIONS)

neuron-conformance: $(NXDI_VENV)/stamp ## our loop over the real NxDI source, NXDI=<its checkout>:<neuronx-distributed's>, on a CPU
	PEAKPLAN_NXDI_SOURCE="$(NXDI)" $(NXDI_VENV)/bin/python -m pytest tests/conformance/neuron
	PEAKPLAN_NXDI_SOURCE="$(NXDI)" $(NXDI_VENV)/bin/python -m benchmarks.neuron

export: $(VENV)/service.stamp ## MODEL as a Hugging Face checkpoint into OUTPUT, heads in FORMAT=fasterdecoding|tgi-v1|tgi-v2|nxdi|vllm
	@$(BIN)/python -m service.layouts export --format "$(FORMAT)" --model "$(MODEL)" --output "$(OUTPUT)"

import: $(VENV)/service.stamp ## a Llama or Mistral CHECKPOINT= and its HEADS= (any layout) as a model folder, OUTPUT=
	@$(BIN)/python -m service.layouts import --checkpoint "$(CHECKPOINT)" --output "$(OUTPUT)" \
	  $(if $(HEADS),--heads "$(HEADS)") $(if $(TREE),--tree "$(TREE)")

synth: $(VENV)/cdk.stamp ## the CloudFormation of FLEET=dev|prime-day|my/fleet.yaml into cdk.out; offline, no account
	$(CDK) synth --app "python app.py" --quiet --no-lookups --context fleet=$(FLEET)

diff: $(VENV)/cdk.stamp ## what a deploy of FLEET would change (needs AWS credentials)
	$(CDK) diff --app "python app.py" --context fleet=$(FLEET)

deploy: $(VENV)/cdk.stamp ## the newest release to every cell of FLEET, stopping where one is hurt; again: goes on (needs AWS credentials)
	$(BIN)/python -m infra.preflight $(FLEET)
	$(BIN)/python -m infra.rollout $(FLEET) -- $(CDK)

rollback: $(VENV)/service.stamp ## every cell of FLEET back to the release before, or to RELEASE=ami-...; at once, without a bake
	$(BIN)/python -m infra.rollback $(FLEET) $(if $(RELEASE),--release $(RELEASE))

preflight: $(VENV)/service.stamp ## what FLEET needs that the account lacks: quotas, zones, certificate, image (needs AWS credentials)
	$(BIN)/python -m infra.preflight $(FLEET)

access: $(VENV)/service.stamp ## let callers' VPCs of other accounts associate with the private zone of FLEET (needs AWS credentials)
	$(BIN)/python -m infra.zone_association $(FLEET)

cell-out: $(VENV)/cdk.stamp ## move CELL=cell-2 of FLEET out of service: its callers go to the others (REFUSE=1: it answers 503; FORCE=1: although they are too small)
	@$(BIN)/python -m infra.cells out $(FLEET) $(CELL) $(if $(REFUSE),--refuse) $(if $(FORCE),--force)

cell-in: $(VENV)/cdk.stamp ## move CELL= of FLEET back into service
	@$(BIN)/python -m infra.cells in $(FLEET) $(CELL)

alarms: $(VENV)/service.stamp ## docs/alarms.md, Prometheus rules and a Grafana dashboard from infra/fleet/alarms.py
	$(BIN)/python -m infra.fleet.alarm_table

cost: $(VENV)/service.stamp ## what FLEET costs an hour and a million plans, with the arithmetic
	@$(BIN)/python -m infra.fleet cost $(FLEET)

vllm: $(VENV)/service.stamp ## how vLLM runs FLEET's model on its instances, and the gateway's settings before it
	@$(BIN)/python -m infra.fleet vllm $(FLEET)

schema: $(VENV)/service.stamp ## the JSON Schema that editors check fleet files with
	$(BIN)/python -m infra.fleet schema

load: $(VENV)/load.stamp ## open-loop load: RATE= requests a second for SECONDS=; URL= names a service that runs already
	$(BIN)/python -m rehearsal.load --rate $(RATE) --seconds $(SECONDS) --data $(DATA) $(if $(URL),--url $(URL))

load-figures: $(VENV)/load.stamp ## the service under load and faults into docs/figures/serving.json (15 minutes, an idle machine)
	$(BIN)/python -m rehearsal.load.figures --data $(DATA)
	$(BIN)/python -m benchmarks.readme

clean: ## forget the virtual environment and what tools cached here
	rm -rf $(VENV) $(TRITON) $(NXDI_VENV) node_modules cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Peakplan needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip==26.3
	@touch $@

$(VENV)/service.stamp: $(SERVICE_REQUIREMENTS) $(VENV)/pip.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/training.stamp: requirements-training.txt $(SERVICE_REQUIREMENTS) $(VENV)/pip.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-training.txt
	@touch $@ $(VENV)/service.stamp

$(VENV)/load.stamp: requirements-load.txt $(SERVICE_REQUIREMENTS) $(VENV)/pip.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-load.txt
	@touch $@ $(VENV)/service.stamp

$(VENV)/test.stamp: requirements-load.txt requirements-test.txt requirements-training.txt $(SERVICE_REQUIREMENTS) $(VENV)/pip.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	@touch $@ $(VENV)/service.stamp $(VENV)/training.stamp

$(TRITON)/stamp: requirements-tritonserver.txt $(VENV)/service.stamp
	$(BIN)/python -m service.engines.triton.environment --python $(TRITON_PYTHON) $(TRITON)
	@touch $@

$(NXDI_VENV)/stamp: requirements-neuron-conformance.txt requirements-service.txt
	$(PYTHON) -m venv $(NXDI_VENV)
	$(NXDI_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-neuron-conformance.txt
	@touch $@

$(VENV)/cdk.stamp: package-lock.json $(VENV)/service.stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@
