"""The paper's Table 1 or 4 with the paper's models and data, from nothing: make reproduce-table1 PROFILE=paper

  python -m scripts.reproduce_paper --models vicuna_7b            everything that Table 1 needs, then Table 1
  python -m scripts.reproduce_paper --models vicuna_7b --plan     only say what that is
  python -m scripts.reproduce_paper --table 4                     Table 4, on Qwen2-7B-Instruct as published
  python -m scripts.reproduce_paper --datasets spec_bench_summarization spec_bench_rag      no retrieval, no Hagrid
  python -m scripts.reproduce_paper model.path=FOLDER datasets.hagrid.path=FILE ~methods.rest      settings of the runs

It prints what will be downloaded, how much disk that takes and how long it may take, then works through the steps. Each
is a command that can be given by hand; what is done is skipped, and one that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, snapshot_download
from omegaconf import OmegaConf

from ngram_trie.config import CONFIGS, PROJECT, ConfigError, near, relative

RESULTS = PROJECT / "results" / "local"
#: Written when all questions have their passages.
RETRIEVED = RESULTS / "triviaqa" / "recall.csv"
MODELS = {1: ["vicuna_7b", "llama2_7b_chat", "llama3_8b_instruct"], 4: ["qwen2_7b_instruct"]}
SPACE = "AntMan/vicuna-v1.3-7b-space"
#: Of a GPU's memory, what caches, masks and logits take.
CACHE_GB = 4
DATASETS = ("spec_bench_summarization", "spec_bench_rag", "triviaqa", "hagrid")
#: The first questions of the validation split; as many as Spec-Bench has of each task, and two to warm up.
TRIVIAQA_QUESTIONS = 82
PROMPTS = 80
#: Only for telling beforehand how long it may take. Vicuna's recorded answers to Spec-Bench have about 200 tokens; most
#: methods emit 1.5 to 3 tokens a step; a stock module spends some 20 ms of host time on each.
ANSWER_TOKENS, ACCEPT_LENGTH, HOST_SECONDS = 200, 1.5, 0.02
#: Passages a second and GPU; `scripts.build_index` measures it before it starts.
ENCODING_RATE = 1000
PASSAGES = 21_015_324


@dataclass(frozen=True)
class Step:
    """One command, and what it costs.

    Attributes:
        about: what it is for, in words.
        command: arguments for this Python.
        done: a file that exists once it has been carried out; None if the command itself knows.
        downloads: what it fetches -> gigabytes.
        disk_gb: what it writes beside that.
        hours: how long it may take.
        optional: the table comes without it, and says so.
        last: nothing later needs it.
    """

    about: str
    command: Sequence[str]
    done: Path | None = None
    downloads: tuple[tuple[str, float], ...] = ()
    disk_gb: float = 0.0
    hours: float = 0.0
    optional: bool = False
    last: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=sorted(MODELS), default=1, help="default: %(default)s")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of configs/model; the table's own unless given")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", default=list(DATASETS), help="default: all four")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="settings of the runs; ~methods.NAME leaves one out"
    )
    # apart, so that they may stand behind a list of names
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args([part for part in given if not is_override(part)])
    options.overrides = [part for part in given if is_override(part)]
    try:
        steps = plan(options.table, options.models or MODELS[options.table], options.datasets, options.overrides)
        left = [step for step in steps if not (step.done and step.done.exists())]
        print(describe(steps))
        if options.plan:
            return 0
        check(left, on_cpu="model.device=cpu" in options.overrides)
        return carry_out(left)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def is_override(part: str) -> bool:
    """Whether an argument is a setting of the runs: FIELD=VALUE, or ~methods.NAME to leave a method out."""
    return "=" in part or part.startswith("~")


def carry_out(steps: Sequence[Step]) -> int:
    """Run the steps in order. What fails ends it, but one model's failure (a gate, say) leaves the others their turn.

    Returns:
        The status of the first failure, 0 if there is none.
    """
    failed = 0
    for step in steps:
        print(f"\n== {step.about}\n   {spell(step)}", flush=True)
        status = subprocess.run([sys.executable, *step.command], cwd=PROJECT, check=False).returncode
        if status and step.optional:
            print(f"warning: {step.about}: failed; the table comes without it", file=sys.stderr)
        elif status:
            print(f"error: {step.about} stopped; the same command goes on from there", file=sys.stderr)
            failed = failed or status
            if not step.last:
                break
    return failed


def plan(table: int, models: Sequence[str], datasets: Sequence[str], overrides: Sequence[str] = ()) -> list[Step]:
    """All steps, in order, done or not.

    Raises:
        ConfigError: an unknown model or data set, with the nearest names.
    """
    known = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml"))
    for name, names, what in [(m, known, "model") for m in models] + [(d, DATASETS, "data set") for d in datasets]:
        if name not in names:
            raise ConfigError(f"{what} {name}: {near(name, names)}")
    steps: list[Step] = []
    if "triviaqa" in datasets and not any("datasets.triviaqa.path=" in override for override in overrides):
        steps += retrieval_steps()
    for name in models:
        steps += model_steps(table, name, datasets, overrides)
    return steps


def retrieval_steps() -> list[Step]:
    """TriviaQA's passages: an index over Wikipedia, then the questions' best five."""
    gpus = max(1, torch.cuda.device_count())
    index = Step(
        "encode Wikipedia's 21 million passages and index them",
        ["-m", "scripts.build_index"],
        RETRIEVED,
        (("Wikipedia in passages", 4.7), ("BAAI/bge-m3", 2.3)),
        disk_gb=14 + 14 + PASSAGES * 1024 * 2 / 1e9 + PASSAGES * 72 / 1e9,  # text, its table, vectors, index
        hours=PASSAGES / ENCODING_RATE / gpus / 3600,
    )
    search = Step(
        "find and rerank the passages of TriviaQA's questions",
        ["-m", "scripts.retrieve", f"questions.limit={TRIVIAQA_QUESTIONS}"],
        RETRIEVED,
        (("TriviaQA's questions", 0.3), ("BAAI/bge-reranker-v2-m3", 2.3)),
        hours=0.2,
    )
    return [index, search]


def model_steps(table: int, name: str, datasets: Sequence[str], overrides: Sequence[str]) -> list[Step]:
    """What one model needs, and its runs."""
    model: Any = OmegaConf.load(CONFIGS / "model" / f"{name}.yaml")
    for override in overrides:  # for the plan's sake: what is given as a folder is not downloaded
        key, _, value = override.partition("=")
        if key.startswith("model."):
            OmegaConf.update(model, key.removeprefix("model."), value)
    own = CONFIGS / "experiment" / f"table{table}_{name}.yaml"
    experiment = own.stem if own.exists() else f"table{table}_paper"
    downloads = [(str(model.path), float(model.download_gb))] if not Path(model.path).is_dir() else []
    steps = []
    if table == 1 and "~methods.rest" not in overrides:
        datastore = RESULTS / f"datastore_{model.name}"
        sharegpt = "Aeala/ShareGPT_Vicuna_unfiltered"
        steps.append(
            Step(
                f"REST's datastore of ShareGPT for {name}",
                [
                    *("-m", "scripts.build_datastore", "--dataset", sharegpt, "--output", str(datastore)),
                    *("--tokenizer", name if downloads else str(model.path)),
                ],
                datastore / "header.json",
                ((sharegpt, 0.7),),
                disk_gb=1.0,
                hours=0.3,
                optional=True,
            )
        )
    removed = [f"~datasets.{data}" for data in DATASETS if data not in datasets]
    about = f"Table {table} of {name}"
    parts = part_downloads(experiment)
    if SPACE in dict(parts) and 0 < gpu_gb() < model.download_gb + sum(dict(parts).values()) + CACHE_GB:
        removed.append("~methods.space")
        parts.remove((SPACE, dict(parts)[SPACE]))
        about += f" without SPACE, whose own model does not fit beside it on a GPU of {gpu_gb():.0f} GB"
    steps.append(
        Step(
            about,
            ["-m", "scripts.run", f"experiment={experiment}", f"model={name}", *removed, *overrides],
            downloads=tuple(downloads + parts),
            disk_gb=0.2,
            last=True,
            hours=num_answers(table, experiment, len(datasets)) * answer_seconds(float(model.download_gb)) / 3600,
        )
    )
    return steps


def part_downloads(experiment: str) -> list[tuple[str, float]]:
    """The weights that an experiment's methods bring along."""
    sizes = {
        "double7/vicuna-68m": 0.2,
        "JackFram/llama-68m": 0.2,
        "FasterDecoding/medusa-vicuna-7b-v1.3": 1.5,
        "ankner/hydra-vicuna-7b-v1.3": 3.0,
        SPACE: 13.5,
    }
    text = (CONFIGS / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8")
    return [(name, size) for name, size in sizes.items() if name in text]


def num_answers(table: int, experiment: str, num_datasets: int) -> int:
    """Prompts times methods, vanilla among them."""
    texts = [
        (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
        for name in {experiment, f"table{table}_paper"}
    ]
    methods = 1 + sum(text.count("/method@methods.") for text in texts)
    return PROMPTS * num_datasets * methods * (3 if table == 4 else 1)


def answer_seconds(weights_gb: float) -> float:
    """About how long one answer takes here: each step reads the weights once."""
    bandwidth = 1e12
    if torch.cuda.is_available():
        properties: Any = torch.cuda.get_device_properties(0)
        # DDR: two transfers a clock; kHz and bits. Absent in some builds of torch.
        clock, width = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
        bandwidth = 2 * clock * 1e3 * width / 8 or bandwidth
    return ANSWER_TOKENS / ACCEPT_LENGTH * max(HOST_SECONDS, weights_gb * 1e9 / bandwidth)


def gpu_gb() -> float:
    """Memory of the GPU, 0 where there is none."""
    return torch.cuda.get_device_properties(0).total_memory / 1e9 if torch.cuda.is_available() else 0.0


def is_cached(name: str) -> bool:
    """Whether the hub's repository `name` lies in the cache already."""
    for kind in ("model", "dataset"):
        try:
            snapshot_download(name, repo_type=kind, local_files_only=True)
            return True
        except (OSError, ValueError):
            continue
    return False


def spell(step: Step) -> str:
    """The command as one would type it, paths of the project relative to it."""
    return " ".join(["python", *(part.replace(f"{PROJECT}/", "") for part in step.command)])


def describe(steps: Sequence[Step]) -> str:
    """What will be done, a step a paragraph, and the sums."""
    lines = ["What will be done; sizes and times are estimates, and every step goes on where it was stopped."]
    fetched: dict[str, float] = {}
    disk = hours = 0.0
    for number, step in enumerate(steps, 1):
        if step.done and step.done.exists():
            lines.append(f"{number}. {step.about}: done ({relative(str(step.done))})")
            continue
        lines.append(f"{number}. {step.about}: about {duration(step.hours)}")
        lines.append(f"   {spell(step)}")
        for what, size in step.downloads:
            there = "in the cache" if "/" in what and is_cached(what) else "to download"
            lines.append(f"   {what}: {size:.1f} GB, {there}")
            if there == "to download":
                fetched[what] = size
        disk += step.disk_gb
        hours += step.hours
    free = shutil.disk_usage(PROJECT).free / 1e9
    lines.append(
        f"In all: {sum(fetched.values()):.1f} GB to download to {constants.HF_HUB_CACHE}, {disk:.1f} GB of results and "
        f"indexes ({free:.0f} GB are free), about {duration(hours)} on {device_name()}."
    )
    return "\n".join(lines)


def duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"


def device_name() -> str:
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "a GPU (there is none here)"


def check(steps: Sequence[Step], on_cpu: bool) -> None:
    """Raises:
    ConfigError: no GPU, or not enough disk; before anything is fetched.
    """
    if not torch.cuda.is_available() and not on_cpu:
        raise ConfigError(
            "torch sees no GPU here, and models of this size take days without: run it where there is one, or take "
            "`make reproduce-table1` for the embedded model; with model.device=cpu it runs all the same"
        )
    fetched = {what: size for step in steps for what, size in step.downloads if not ("/" in what and is_cached(what))}
    cache = Path(constants.HF_HUB_CACHE)
    cache = next(folder for folder in (cache, *cache.parents) if folder.exists())
    needs = {cache: sum(fetched.values())}
    needs[PROJECT] = needs.get(PROJECT, 0.0) + sum(step.disk_gb for step in steps)
    if cache.stat().st_dev == PROJECT.stat().st_dev:
        needs = {PROJECT: sum(needs.values())}
    for folder, needed in needs.items():
        free = shutil.disk_usage(folder).free / 1e9
        if needed > free:
            raise ConfigError(
                f"{needed:.0f} GB are needed on the disk of {folder}, {free:.0f} GB are free: make room, set HF_HOME "
                "to another disk, or leave data sets out (--datasets spec_bench_summarization spec_bench_rag)"
            )


if __name__ == "__main__":
    sys.exit(main())
