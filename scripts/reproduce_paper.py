"""The paper's Table 1 or 4 with the paper's models and data, from nothing (make reproduce-table1 PROFILE=paper).

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

import torch
from huggingface_hub import HfApi, constants, snapshot_download
from omegaconf import DictConfig, OmegaConf

from ngram_trie.cli.overrides import composed
from ngram_trie.cli.shell import Parser
from ngram_trie.config import ConfigError, near
from ngram_trie.data.sources import cache_folder
from ngram_trie.files import CONFIGS, PROJECT, relative
from ngram_trie.targets.hub_errors import explain

RESULTS = PROJECT / "results" / "local"
MODELS = {1: ["vicuna_7b", "llama2_7b_chat", "llama3_8b_instruct"], 4: ["qwen2_7b_instruct"]}
DATASETS = ("spec_bench_summarization", "spec_bench_rag", "triviaqa", "hagrid")
SHAREGPT = "Aeala/ShareGPT_Vicuna_unfiltered"
#: The first questions of the validation split: as many as Spec-Bench has of each task, and two to warm up.
TRIVIAQA_QUESTIONS = 82
PROMPTS = 80
#: Gigabytes of the weights that methods bring along, for the plan.
PART_GB = {
    "double7/vicuna-68m": 0.2,
    "JackFram/llama-68m": 0.2,
    "FasterDecoding/medusa-vicuna-7b-v1.3": 1.5,
    "ankner/hydra-vicuna-7b-v1.3": 3.0,
    "AntMan/vicuna-v1.3-7b-space": 13.5,
}
#: Of a GPU's memory, what caches, masks and logits take, in gigabytes.
CACHE_GB = 4
#: Wikipedia's passages: how many, gigabytes to download, as text, as the table that `datasets` makes of it.
PASSAGES, PASSAGES_GB, TEXT_GB, TABLE_GB = 21_015_324, 4.7, 14.0, 14.0
#: The most that vectors and index take; `scripts.build_index` says so itself (data/retrieval/estimate.py).
INDEX_GB = 50.0
#: Only for telling beforehand how long it may take. Vicuna's recorded answers to Spec-Bench have about 200 tokens; most
#: methods emit 1.5 to 3 tokens a step; a stock module spends some 20 ms of host time on each; encoding is measured by
#: `scripts.build_index` before it starts.
ANSWER_TOKENS, ACCEPT_LENGTH, HOST_SECONDS, ENCODING_RATE = 200, 1.5, 0.02, 1000


@dataclass(frozen=True)
class Download:
    """Something to fetch; with `repository` and `revision` if the hub has it; `terms`: a licence to accept first."""

    name: str
    gigabytes: float
    repository: str = ""
    revision: str | None = None
    terms: str = ""

    @property
    def cached(self) -> bool:
        """Whether it lies in the hub's cache already."""
        for kind in ("model", "dataset"):
            try:
                snapshot_download(self.repository, repo_type=kind, revision=self.revision, local_files_only=True)
                return True
            except (OSError, ValueError):
                continue
        return False


@dataclass(frozen=True)
class Step:
    """One command, and what it costs.

    Attributes:
        about: what it is for, in words.
        command: arguments for this Python.
        done: a file that exists once it has been carried out; None if the command itself knows.
        downloads: what it fetches.
        disk: what it writes beside that: folder -> gigabytes.
        hours: how long it may take.
        last: nothing later needs it.
    """

    about: str
    command: Sequence[str]
    done: Path | None = None
    downloads: Sequence[Download] = ()
    disk: Sequence[tuple[Path, float]] = ()
    hours: float = 0.0
    last: bool = False

    @property
    def is_done(self) -> bool:
        return bool(self.done and self.done.exists())


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("--table", type=int, choices=sorted(MODELS), default=1, help="of the paper")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of configs/model (default: the table's own)")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", default=list(DATASETS), help="to ask")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--fetch", nargs="+", metavar="REPOSITORY[@REVISION]", help="fetch these weights, no more")
    parser.add_argument(
        "overrides", nargs="*", metavar="FIELD=VALUE", help="settings of the runs; ~methods.NAME: without"
    )
    # settings apart, so that they may stand behind a list of names
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args([part for part in given if not is_override(part)])
    options.overrides = [part for part in given if is_override(part)]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        if options.fetch:
            fetch(options.fetch)
            return 0
        models = options.models or MODELS[options.table]
        steps = plan(options.table, models, options.datasets, options.overrides)
        print(describe(steps))
        if options.plan:
            return 0
        left = [step for step in steps if not step.is_done]
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
    return part.startswith("~") or ("=" in part and not part.startswith("-"))


def fetch(repositories: Sequence[str]) -> None:
    """Fetch weights, each of one kind only: safetensors where there are any, and none of the originals beside them.

    Raises:
        FileNotFoundError: the hub does not give one; the message says what to do.
    """
    for named in repositories:
        name, _, revision = named.partition("@")
        try:
            files = HfApi().list_repo_files(name, revision=revision or None)
            kinds = ["*.safetensors"] if any(f.endswith(".safetensors") for f in files) else ["*.bin", "*.pt"]
            patterns = [*kinds, "*.json", "*.model", "*.txt", "*.jinja"]
            snapshot_download(name, revision=revision or None, allow_patterns=patterns, ignore_patterns="original/*")
        except Exception as error:  # the hub client raises many kinds
            reason = explain(error, name, revision or None)
            if not Download(name, 0, name, revision or None).cached:
                raise FileNotFoundError(f"{name} cannot be fetched: {reason}") from error
            print(f"{name}: taken from the cache ({reason})", flush=True)


def carry_out(steps: Sequence[Step]) -> int:
    """Run the steps in order. What fails ends it, but one model's failed run leaves the others their turn.

    Returns:
        The status of the first failure, 0 if there is none.
    """
    failed = 0
    for step in steps:
        print(f"\n== {step.about}\n   {spell(step)}", flush=True)
        if status := subprocess.run([sys.executable, *step.command], cwd=PROJECT, check=False).returncode:
            print(f"error: {step.about}: failed; with its cause mended the same command goes on there", file=sys.stderr)
            failed = failed or status
            if not step.last:
                break
    return failed


def plan(table: int, models: Sequence[str], datasets: Sequence[str], overrides: Sequence[str] = ()) -> list[Step]:
    """All steps, in order, done or not: weights first, because a gate may stand before them; then data; then runs.

    Raises:
        ConfigError: an unknown model, data set or setting.
    """
    known = sorted(path.stem for path in (CONFIGS / "model").glob("*.yaml"))
    for name, names, what in [(m, known, "model") for m in models] + [(d, DATASETS, "data set") for d in datasets]:
        if name not in names:
            raise ConfigError(f"{what} {name}: {near(name, names)}")
    steps: list[Step] = []
    overrides = list(overrides)
    if "triviaqa" in datasets and not any(part.startswith("datasets.triviaqa.path=") for part in overrides):
        folder = RESULTS / "paper" / "triviaqa"
        steps += retrieval_steps(folder)
        overrides.append(f"datasets.triviaqa.path={folder / 'contexts.jsonl'}")
    weights: list[Step] = []
    for name in models:
        first, rest = model_steps(table, name, [data for data in DATASETS if data not in datasets], overrides)
        weights += first
        steps += rest
    return weights + steps


def retrieval_steps(output: Path) -> list[Step]:
    """TriviaQA's passages: an index over Wikipedia, then the questions' best five."""
    encoder, reranker = (
        OmegaConf.load(CONFIGS / group) for group in ("encoder/bge_m3.yaml", "reranker/bge_reranker_v2_m3.yaml")
    )
    folder = RESULTS / "retrieval" / "psgs_w100-bge_m3"
    # Once vectors are being written the passages are there; what is written of them needs no room any more.
    begun = (folder / "vectors" / "header.json").exists()
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e9 if begun else 0.0
    text = [] if begun else [(cache_folder(), TEXT_GB), (Path(constants.HF_HOME), TABLE_GB)]
    index = Step(
        "encode Wikipedia's 21 million passages and index them",
        ["-m", "scripts.build_index", f"folder={folder}"],
        output / "recall.csv",
        [
            *([] if begun else [Download("Wikipedia in passages", PASSAGES_GB)]),
            Download("BGE-M3", 2.3, encoder.path, encoder.revision),
        ],
        [*text, (RESULTS, max(0.0, INDEX_GB - written))],
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
    """What fetches a model's weights and its methods', and what runs it."""
    own = CONFIGS / "experiment" / f"table{table}_{name}.yaml"
    experiment = own.stem if own.exists() else f"table{table}_paper"
    removed = [f"~datasets.{data}" for data in without]
    wanted = [part for part in overrides if not any(part.startswith(f"datasets.{data}.") for data in without)]
    command = [f"experiment={experiment}", f"model={name}", *removed, *wanted]
    config = composed(command)
    about = f"Table {table} of {name}"
    weights = weights_of(config)
    if "space" in config.methods and 0 < gpu_gb() < sum(part.gigabytes for part in weights) + CACHE_GB:
        command.append("~methods.space")
        config = composed(command)
        weights = weights_of(config)
        about += f" without SPACE, whose own model does not fit beside it on a GPU of {gpu_gb():.0f} GB"
    first = []
    if weights:
        names = [f"{part.repository}@{part.revision}" if part.revision else part.repository for part in weights]
        first = [
            Step(f"fetch the weights for {name}", ["-m", "scripts.reproduce_paper", "--fetch", *names], None, weights)
        ]
    steps = []
    if "rest" in config.methods:
        datastore = Path(config.methods.rest.datastore)
        tokenizer = config.model.path if Path(config.model.path).is_dir() else name
        steps.append(
            Step(
                f"REST's datastore of ShareGPT for {name} (without: ~methods.rest)",
                [
                    *("-m", "scripts.build_datastore", "--dataset", SHAREGPT),
                    *("--tokenizer", tokenizer, "--output", str(datastore)),
                ],
                datastore / "header.json",
                [Download("ShareGPT", 0.7, SHAREGPT)],
                [(RESULTS, 1.0)],
                hours=0.3,
            )
        )
    kinds = len(config.noise.kinds) if config.noise else 0
    answers = PROMPTS * len(config.datasets) * (1 + kinds) * (len(config.methods) + 1)
    hours = answers * answer_seconds(float(config.model.download_gb)) / 3600
    steps.append(Step(about, ["-m", "scripts.run", *command], disk=[(RESULTS, 0.2)], hours=hours, last=True))
    return first, steps


def weights_of(config: DictConfig) -> list[Download]:
    """What a run loads from the hub: its model, and what its methods bring along; what lies in a folder is not."""
    model = config.model
    terms = f"gated: accept the {model.licence} at https://huggingface.co/{model.path}" if model.gated else ""
    parts = [Download(model.path, float(model.download_gb), model.path, model.revision, terms)]
    for method in config.methods.values():
        for field in ("draft_model", "heads", "model"):
            if path := method.get(field):
                parts.append(Download(path, PART_GB.get(path, 0.5), path, method.revision))
    return [part for part in parts if not Path(part.repository).is_dir()]


def answer_seconds(weights_gb: float) -> float:
    """About how long one answer takes here: each step reads the weights once."""
    bandwidth = 1e12
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        # DDR: two transfers a clock; kHz and bits. Absent in some builds of torch.
        clock, width = getattr(properties, "memory_clock_rate", 0), getattr(properties, "memory_bus_width", 0)
        bandwidth = 2 * clock * 1e3 * width / 8 or bandwidth
    return ANSWER_TOKENS / ACCEPT_LENGTH * max(HOST_SECONDS, weights_gb * 1e9 / bandwidth)


def gpu_gb() -> float:
    """Memory of the GPU, 0 where there is none."""
    return torch.cuda.get_device_properties(0).total_memory / 1e9 if torch.cuda.is_available() else 0.0


def spell(step: Step) -> str:
    """The command as one would type it, paths of the project relative to it."""
    return " ".join(["python", *(part.replace(f"{PROJECT}/", "") for part in step.command)])


def describe(steps: Sequence[Step]) -> str:
    """What will be done, a step a paragraph, and the sums."""
    lines = ["What will be done; sizes and times are estimates, and every step goes on where it was stopped."]
    left = [step for step in steps if not step.is_done]
    for number, step in enumerate(steps, 1):
        if step not in left:
            lines.append(f"{number}. {step.about}: done ({relative(str(step.done))})")
            continue
        lines.append(f"{number}. {step.about}" + (f": about {duration(step.hours)}" if step.hours else ""))
        lines.append(f"   {spell(step)}")
        for part in step.downloads:
            there = "in the cache" if part.repository and part.cached else "to download"
            lines.append(f"   {part.name}: {part.gigabytes:.1f} GB, {there}{f'; {part.terms}' if part.terms else ''}")
    downloads, written = sum(room for _, room in fetched(left)), sum(room for step in left for _, room in step.disk)
    lines.append(
        f"In all: {downloads:.1f} GB to download, {written:.1f} GB of indexes and results "
        f"({shutil.disk_usage(PROJECT).free / 1e9:.0f} GB are free), "
        f"about {duration(sum(step.hours for step in left))} on {device_name()}."
    )
    return "\n".join(lines)


def duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"


def device_name() -> str:
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "a GPU (there is none here)"


def fetched(steps: Sequence[Step]) -> list[tuple[Path, float]]:
    """What is still to be downloaded, each thing once: the folder it goes to and its gigabytes."""
    parts = {(part.repository, part.name): part for step in steps for part in step.downloads}
    return [
        (Path(constants.HF_HUB_CACHE) if part.repository else cache_folder(), part.gigabytes)
        for part in parts.values()
        if not (part.repository and part.cached)
    ]


def check(steps: Sequence[Step], on_cpu: bool) -> None:
    """Raises:
    ConfigError: no GPU, or not enough disk; before anything is fetched.
    """
    if not torch.cuda.is_available() and not on_cpu:
        raise ConfigError(
            "torch sees no GPU here, and models of this size take days without: run it where there is one, or take "
            "`make reproduce-table1` for the embedded model; with model.device=cpu it runs all the same"
        )
    needs: dict[int, tuple[Path, float]] = {}  # by disk
    for folder, room in [*fetched(steps), *(part for step in steps for part in step.disk)]:
        folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        first, needed = needs.get(folder.stat().st_dev, (folder, 0.0))
        needs[folder.stat().st_dev] = (first, needed + room)
    for folder, needed in needs.values():
        free = shutil.disk_usage(folder).free / 1e9
        if needed > free:
            raise ConfigError(
                f"{needed:.0f} GB are needed on the disk of {folder}, {free:.0f} GB are free: make room, put caches on "
                "another disk (HF_HOME, NGRAM_TRIE_DATA), or do without TriviaQA's index: --datasets "
                "spec_bench_summarization spec_bench_rag hagrid"
            )


if __name__ == "__main__":
    sys.exit(main())
