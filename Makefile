# `make help` lists what there is. Every target makes its own virtual environment first (.venv, one time).
PYTHON ?= python3
VENV   ?= .venv
OUTPUT ?= results/local/table1
RUN    := $(VENV)/bin/python
# Without a GPU the CPU build of torch is taken, from PyTorch's own index where it can be reached; the CUDA build is
# gigabytes larger.
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)

.DEFAULT_GOAL := help
.PHONY: help setup reproduce-table1 report bench-drafting train-embedded prompts test lint format clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Make the virtual environment (done by every other target)

# torch comes first and alone, so that only it is looked up in the other index; the rest finds it installed.
$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
		|| { echo "error: Python 3.11 or 3.12 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); give another: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --no-deps --constraint constraints.txt \
		$(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) torch
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

reproduce-table1: setup ## Table 1 on the embedded profile: measure, print, write to OUTPUT (about 10 minutes)
	$(RUN) -m scripts.run experiment=table1 output=$(OUTPUT)

report: setup ## Derive tables and figure again from the records in OUTPUT
	$(RUN) -m scripts.report $(OUTPUT)

bench-drafting: setup ## Time indexing and drafting of every drafter, beside a plain Python trie
	$(RUN) -m scripts.bench_drafting results/local/bench_drafting.csv

train-embedded: setup ## Train the embedded model from nothing into results/local/embedded_model
	$(RUN) -m scripts.train_embedded

prompts: setup ## Write the bundled test prompts again
	$(RUN) -m scripts.make_prompts

test: lint ## Lint, then run the tests
	$(RUN) -m pytest

lint: setup ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: setup ## Format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## Remove the virtual environment and local results
	rm -rf $(VENV) results/local
