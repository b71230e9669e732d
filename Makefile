PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TESSERA_VLLM_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tessera-vllm

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-vllm lint format docs proto requirements bench clean

help:  ## Say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 16

venv: $(STAMP)  ## Make .venv with everything, hashes checked

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python {v[0]}.{v[1]} is too old, 3.11 or newer is needed: make PYTHON=python3.12 venv")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: $(STAMP)  ## Four emulated servers, Tessera and Envoy, the same traffic by round robin and by Tessera
	$(BIN)/tessera demo $(ARGS)

test: $(STAMP)  ## Everything that a change must pass
	$(BIN)/python -m pytest -m "not slow and not vllm" $(ARGS)

test-slow: $(STAMP)  ## The long runs: more examples, longer fuzzing, the whole published table, inference-perf
	HYPOTHESIS_PROFILE=deep TESSERA_INFERENCE_PERF_RESULT=bench/results/inference_perf.json TESSERA_LEARNING_RESULT=bench/results/learning.json $(BIN)/python -m pytest -m "not vllm" $(ARGS)

test-vllm: $(STAMP)  ## Against a real vLLM on the CPU, which it installs in TESSERA_VLLM_DIR (3.5 GB)
	$(BIN)/python tools/real_vllm/install.py $(TESSERA_VLLM_DIR)
	TESSERA_VLLM_DIR=$(TESSERA_VLLM_DIR) TESSERA_VLLM_RESULT=bench/results/vllm.json $(BIN)/python -m pytest -m vllm tests/vllm $(ARGS)

lint: $(STAMP)  ## ruff, mypy, the arrows, the limits
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_limits.py

format: $(STAMP)  ## Let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## Write docs/plugins anew from the plugins themselves
	$(BIN)/python tools/plugin_docs.py docs/plugins

proto: $(STAMP)  ## Generate the protobuf stubs anew
	$(BIN)/python tools/generate_protos.py

requirements: $(STAMP)  ## Resolve the dependencies anew (needs uv)
	uv lock --quiet --upgrade
	uv export --quiet --format requirements.txt --no-header --no-emit-project --all-extras --all-groups > requirements.txt
	rm uv.lock

bench: $(STAMP)  ## Measure, and write bench/results
	$(BIN)/python bench/run.py

clean:  ## Remove what was made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
