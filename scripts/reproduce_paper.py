"""The paper's Table 1 or 4 with the paper's models and data, from nothing (make reproduce-table1 PROFILE=paper)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from omegaconf import DictConfig, OmegaConf

from ngram_trie.cli.app import name_in, one_of, run
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.plan import CACHE_GB, Download, Step, carry_out, check_room, describe, fetch, gpu_gb
from ngram_trie.config import ConfigError
from ngram_trie.data.sources import cache_folder
from ngram_trie.files import CONFIGS, PROJECT

RESULTS = PROJECT / "results" / "local"
MODELS = {1: ["vicuna_7b", "llama2_7b_chat", "llama3_8b_instruct"], 4: ["qwen2_7b_instruct"]}
DATASETS = ["spec_bench_summarization", "spec_bench_rag", "triviaqa", "hagrid"]
SHAREGPT = "Aeala/ShareGPT_Vicuna_unfiltered"
#: The first questions of the validation split: as many as Spec-Bench has of each task, and two to warm up.
TRIVIAQA_QUESTIONS = 82
PROMPTS = 80
#: Gigabytes of the weights that methods bring along.
PART_GB = {
    "double7/vicuna-68m": 0.2,
    "JackFram/llama-68m": 0.2,
    "FasterDecoding/medusa-vicuna-7b-v1.3": 1.5,
    "ankner/hydra-vicuna-7b-v1.3": 3.0,
    "AntMan/vicuna-v1.3-7b-space": 13.5,
}
#: Wikipedia's passages: how many, gigabytes to download, as text (twice: the text, and the table of `datasets`).
PASSAGES, PASSAGES_GB, TEXT_GB = 21_015_324, 4.7, 28.0
#: The most that vectors and index take (data/retrieval/estimate.py).
INDEX_GB = 50.0
#: For estimates of time only: tokens of an answer, tokens a step, a step's host seconds, bytes a second of a GPU's
#: memory, passages encoded a second.
ANSWER_TOKENS, ACCEPT_LENGTH, HOST_SECONDS, BANDWIDTH, ENCODING_RATE = 200, 1.5, 0.02, 1e12, 1000


def main(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="settings of the runs; ~methods.NAME leaves a method out"),
    ] = None,
    table: Annotated[int, typer.Option(callback=one_of([1, 4]), help="1 or 4")] = 1,
    models: Annotated[
        list[str] | None, typer.Option(callback=name_in("model"), help="of configs/model; the table's own by default")
    ] = None,
    datasets: Annotated[list[str], typer.Option(callback=one_of(DATASETS), help="to measure on")] = DATASETS,
    plan_only: Annotated[bool, typer.Option("--plan", help="print the steps and do nothing")] = False,
    weights: Annotated[
        list[str] | None,
        typer.Option("--fetch", metavar="REPOSITORY[@REVISION]", help="only download these weights"),
    ] = None,
) -> None:
    """The paper's Table 1 or 4 with the paper's models and data, from nothing (make reproduce-table1 PROFILE=paper).

      python -m scripts.reproduce_paper --models vicuna_7b
      python -m scripts.reproduce_paper --models vicuna_7b --models llama2_7b_chat --plan
      python -m scripts.reproduce_paper --table 4
      python -m scripts.reproduce_paper --datasets spec_bench_summarization --datasets spec_bench_rag
      python -m scripts.reproduce_paper model.path=FOLDER datasets.hagrid.path=FILE ~methods.rest

    It prints the steps with their downloads, disk space and time, then runs them. Each step is a command that you can
    also give by hand. Finished steps are skipped, and an interrupted one is resumed. --models, --datasets and --fetch
    may be repeated.
    """
    if weights:
        fetch(weights)
        return
    steps = plan(table, models or MODELS[table], datasets, overrides or [])
    print(describe(steps))
    if plan_only:
        return
    if not torch.cuda.is_available() and "model.device=cpu" not in (overrides or []):
        raise ConfigError(
            "torch sees no GPU here, and models of this size take days without: run it where there is one, or take "
            "`make reproduce-table1` for the embedded model; with model.device=cpu it runs all the same"
        )
    left = [step for step in steps if not step.is_done]
    check_room(left)
    sys.exit(carry_out(left))


def plan(table: int, models: Sequence[str], datasets: Sequence[str], overrides: Sequence[str] = ()) -> list[Step]:
    """All steps, in order, done or not: weights first, because a gate may stand before them; then data; then runs.

    Raises:
        ConfigError: an unknown setting.
    """
    given, steps = list(overrides), []
    if "triviaqa" in datasets and not any(part.startswith("datasets.triviaqa.path=") for part in given):
        folder = RESULTS / "paper" / "triviaqa"
        steps = retrieval_steps(folder)
        given.append(f"datasets.triviaqa.path={folder / 'contexts.jsonl'}")
    without = [name for name in DATASETS if name not in datasets]
    per_model = [model_steps(table, name, without, given) for name in models]
    return [step for first, _ in per_model for step in first] + steps + [step for _, rest in per_model for step in rest]


def retrieval_steps(output: Path) -> list[Step]:
    """TriviaQA's passages: an index over Wikipedia, then the questions' best five."""
    encoder: Any = OmegaConf.load(CONFIGS / "encoder" / "bge_m3.yaml")
    reranker: Any = OmegaConf.load(CONFIGS / "reranker" / "bge_reranker_v2_m3.yaml")
    folder = RESULTS / "retrieval" / "psgs_w100-bge_m3"
    # Once vectors are being written the passages are there; what is written of them needs no room any more.
    begun = (folder / "vectors" / "header.json").exists()
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9 if begun else 0.0
    index = Step(
        "encode Wikipedia's 21 million passages and index them",
        ["-m", "scripts.build_index", f"folder={folder}"],
        output / "recall.csv",
        [
            *([] if begun else [Download("Wikipedia in passages", PASSAGES_GB)]),
            Download("BGE-M3", 2.3, encoder.path, encoder.revision),
        ],
        [*([] if begun else [(cache_folder(), TEXT_GB)]), (RESULTS, max(0.0, INDEX_GB - written))],
        hours=PASSAGES / ENCODING_RATE / max(1, torch.cuda.device_count()) / 3600,
    )
    search = Step(
        "find and rerank the passages of TriviaQA's questions",
        ["-m", "scripts.retrieve", f"folder={folder}", f"questions.limit={TRIVIAQA_QUESTIONS}", f"output={output}"],
        output / "recall.csv",
        [Download("TriviaQA's questions", 0.3), Download("its reranker", 2.3, reranker.path, reranker.revision)],
        hours=0.3,
    )
    return [index, search]


def model_steps(
    table: int, name: str, without: Sequence[str], overrides: Sequence[str]
) -> tuple[list[Step], list[Step]]:
    """What downloads a model's weights and its methods', and what runs it."""
    own = CONFIGS / "experiment" / f"table{table}_{name}.yaml"
    wanted = [part for part in overrides if not any(part.startswith(f"datasets.{data}.") for data in without)]
    experiment = own.stem if own.exists() else f"table{table}_paper"
    command = [f"experiment={experiment}", f"model={name}", *(f"~datasets.{data}" for data in without), *wanted]
    config = composed(command)
    about, weights = f"Table {table} of {name}", weights_of(config)
    if "space" in config.methods and 0 < gpu_gb() < sum(part.gigabytes for part in weights) + CACHE_GB:
        command.append("~methods.space")
        config = composed(command)
        weights = weights_of(config)
        about += f" without SPACE, whose own model does not fit beside it on a GPU of {gpu_gb():.0f} GB"
    first, steps = [], []
    if weights:
        names = [f"{part.repository}@{part.revision}" if part.revision else part.repository for part in weights]
        options = [word for named in names for word in ("--fetch", named)]
        first = [Step(f"fetch the weights for {name}", ["-m", "scripts.reproduce_paper", *options], None, weights)]
    if "rest" in config.methods:
        datastore = Path(config.methods.rest.datastore)
        tokenizer = config.model.path if Path(config.model.path).is_dir() else name
        made = ["--dataset", SHAREGPT, "--tokenizer", tokenizer, "--output", str(datastore)]
        steps = [
            Step(
                f"REST's datastore of ShareGPT for {name} (without: ~methods.rest)",
                ["-m", "scripts.build_datastore", *made],
                datastore / "header.json",
                [Download("ShareGPT", 0.7, SHAREGPT)],
                [(RESULTS, 1.0)],
                hours=0.3,
            )
        ]
    kinds = len(config.noise.kinds) if config.noise else 0
    answers = PROMPTS * len(config.datasets) * (1 + kinds) * (len(config.methods) + 1)
    # each step reads the weights once
    seconds = ANSWER_TOKENS / ACCEPT_LENGTH * max(HOST_SECONDS, config.model.download_gb * 1e9 / BANDWIDTH)
    run_it = Step(
        about, ["-m", "scripts.run", *command], disk=[(RESULTS, 0.2)], hours=answers * seconds / 3600, last=True
    )
    return first, [*steps, run_it]


def weights_of(config: DictConfig) -> list[Download]:
    """What a run loads from the hub: its model, and what its methods bring along; folders are not."""
    model = config.model
    terms = f"gated: accept the {model.licence} at https://huggingface.co/{model.path}" if model.gated else ""
    parts = [Download(model.path, float(model.download_gb), model.path, model.revision, terms)]
    for method in config.methods.values():
        for field in ("draft_model", "heads", "model"):
            if path := method.get(field):
                parts.append(Download(path, PART_GB.get(path, 0.5), path, method.revision))
    return [part for part in parts if not Path(part.repository).is_dir()]


if __name__ == "__main__":
    run(main)
