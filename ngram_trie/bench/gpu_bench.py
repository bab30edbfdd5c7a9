"""The whole measurement of a GPU in one call: `measure(Settings(...))`.

Imports neither Hydra nor plotting: a machine that is only measured may lack them.
"""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product, zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from transformers import AutoConfig, PreTrainedModel

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.bench import metrics, step_costs, teacher_forced
from ngram_trie.bench.measure import measure as measure_engine
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import PromptRecord, RecordWriter, RunManifest
from ngram_trie.bench.traces import Trace, read_traces, select
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import content_hash, first_line, write_atomically
from ngram_trie.targets.check import differences
from ngram_trie.targets.cuda_graph import CudaGraphTarget
from ngram_trie.targets.load import choose_device, random_model
from ngram_trie.targets.model import TargetModel


@dataclass
class Settings:
    """What to measure: the options of scripts/bench_gpu.py, which say what each is.

    Raises:
        ValueError: a value that is not allowed, or recorded answers that do not fit.
    """

    architecture: Path
    output: Path
    name: str | None
    traces: Path | None
    categories: list[str] | None
    limit_prompts: int | None
    budget: float
    device: str
    dtype: str
    contexts: Sequence[int]
    sizes: Sequence[int]
    nodes: int
    attention: Sequence[str]
    compile: bool | None
    rounds: int
    copy_mb: int
    recorded: list[Trace] = field(init=False)

    def __post_init__(self) -> None:
        self.device = str(choose_device(self.device))
        self.name, self.categories = self.name or self.architecture.name, self.categories or None
        self.contexts, self.sizes = sorted(set(self.contexts)), sorted({1, *self.sizes})
        if self.compile is None:
            self.compile = self.device.startswith("cuda")
        if not 2 <= self.nodes <= self.sizes[-1]:
            raise ValueError(f"--nodes={self.nodes}: at least 2 and at most the largest of --sizes, {self.sizes[-1]}")
        if self.traces and not self.traces.is_file():
            raise ValueError(f"--traces={self.traces}: no such file")
        if not (self.architecture / "config.json").is_file():
            raise ValueError(f"--architecture={self.architecture}: there is no config.json in the folder")
        self.recorded = read_traces(self.traces) if self.traces else []
        if self.recorded:
            known = {trace.prompt.dataset for trace in self.recorded}
            if unknown := sorted({*(self.categories or ())} - known):
                raise ValueError(f"--categories={unknown[0]}: {self.traces} has {', '.join(sorted(known))}")
            vocab_size = AutoConfig.from_pretrained(self.architecture).vocab_size
            teacher_forced.check_vocabulary(self.recorded, vocab_size, f"--traces={self.traces}")

    @property
    def middle(self) -> int:
        """The context next to 1,000."""
        return min(self.contexts, key=lambda context: abs(context - 1000))

    @property
    def longest(self) -> int:
        """Tokens of the longest recorded prompt with its answer."""
        return max((len(trace.prompt.ids) + len(trace.output_ids) for trace in self.recorded), default=0)

    @property
    def limit(self) -> int:
        """The context limit that everything fits into."""
        return max(*self.contexts, self.longest) + 64

    @property
    def model(self) -> dict[str, Any]:
        """The model in manifests."""
        return {"name": self.name, "weights": "random", "dtype": self.dtype, "context_limit": self.limit}

    def manifest(self, config: dict[str, Any], prompts: str) -> RunManifest:
        """Of a part of this call."""
        network = json.loads((self.architecture / "config.json").read_text(encoding="utf-8"))
        weights = f"random weights, {content_hash(network)}"
        return make_manifest(config, weights, prompts, self.device)


def methods(num_nodes: int) -> dict[str, Drafter]:
    """Drafters that see tokens only, with trees of at most `num_nodes` nodes, the root counted."""
    drafted = num_nodes - 1
    return {
        "vanilla": NoDraft(),
        "ngram_trie": NgramTrieDrafter(n=13, prefix_len=3, num_draft=drafted),
        "pld": PromptLookup(max_ngram=3, **PromptLookup.sized(drafted)),
        "suffix": SuffixDecoding(**SuffixDecoding.sized(drafted)),
        "blend": BlendDrafter(num_draft=drafted),
    }


def reason(error: Exception) -> str:
    """Why a part broke."""
    return f"{type(error).__name__}: {first_line(error)[:200]}"


class Bench:
    """What was found so far, in one file that is written anew after every part.

    Attributes:
        found: part -> its results; "left out" and "failed" hold the reason where a part has none.
    """

    def __init__(self, folder: Path, budget: float) -> None:
        self.folder = folder
        self._ends = perf_counter() + budget
        self.found: dict[str, Any] = {"left out": {}, "failed": {}}

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self._ends - perf_counter()

    def part(self, name: str, call: Callable[[], Any], needs: float = 0.0) -> Any:
        """Run a part if `needs` seconds are left; what breaks costs this part alone. Returns its results or None."""
        started = perf_counter()
        if self.left() < needs:
            self.found["left out"][name] = f"{self.left():.0f} s were left, it needs about {needs:.0f} s"
        else:
            print(f"[{self.left():.0f} s left] {name}", flush=True)
            try:
                self.found[name] = call()
            except Exception as error:  # a kernel that a device lacks, memory: the other parts go on
                self.found["failed"][name] = reason(error)
                print(f"  failed: {self.found['failed'][name]}", flush=True)
        self.found.setdefault("seconds", {})[name] = round(perf_counter() - started, 1)
        gc.collect()
        self.write()
        return self.found.get(name)

    def write(self) -> None:
        text = json.dumps(self.found, indent=1, default=lambda value: value.tolist())
        write_atomically(self.folder / "bench.json", text + "\n")


def check_tokens(options: Settings) -> dict[str, Any]:
    """In single precision, over two layers of the network: whether both backends answer with the same tokens, drafts
    and graphs in between.
    """
    # larger weights than usual, so that tokens vary
    small: dict[str, Any] = {"num_hidden_layers": 2, "initializer_range": 0.06, "max_position_embeddings": 512}
    model = random_model(str(options.architecture), "float32", options.device, **small)
    prompt = Prompt(np.random.default_rng(2).integers(5, min(200, model.config.vocab_size), 100))
    backends = {f"static, {attention}": CudaGraphTarget(model, 31, 512, attention) for attention in options.attention}
    answers = {
        f"{name}, {type(drafter).__name__}": SpeculativeDecoder(target, drafter).generate(prompt, Stop(64)).output_ids
        for name, target in ({"stock": TargetModel(model, 31, 512)} | backends).items()
        for drafter in (NoDraft(), NgramTrieDrafter(n=4, prefix_len=1, num_draft=31, update_with_output=True))
    }
    expected = answers["stock, NoDraft"]
    return {"tokens": len(expected), "distinct": len(set(expected))} | {
        name: "identical" if answer == expected else "DIFFERENT" for name, answer in answers.items()
    }


def variants(model: PreTrainedModel, options: Settings, run: Bench) -> dict[str, Any]:
    """Forward seconds of every way to run a step, by context and size; the best is that of a plain step and one of
    `--nodes` (padded) together, at the context next to 1,000. A way that does not run here is left out with the reason.
    """
    nodes = min(size for size in options.sizes if size >= options.nodes)
    sizes, rng = sorted({1, nodes, options.sizes[-1]}), np.random.default_rng(0)
    rows: dict[str, Any] = {}
    for compiled, attention in product(sorted({False, bool(options.compile)}), options.attention):
        name = f"{attention}{', compiled' if compiled else ''}"
        if rows and run.left() < options.budget / 2:
            rows[name] = "left out: too little time"
            continue
        try:
            target = CudaGraphTarget(model, sizes[-1] - 1, options.limit, attention, compiled, sizes)
            rows[name] = {}
            for context in options.contexts:
                target.prefill(rng.integers(5, model.config.vocab_size, context))
                rows[name][context] = {size: target.forward_seconds(size) for size in sizes}
        except Exception as error:
            rows[name] = f"failed: {reason(error)}"
        gc.collect()  # the one before this one, its cache and graphs
        print(f"  {name}: {rows[name]}", flush=True)
    ran = {name: row[options.middle] for name, row in rows.items() if isinstance(row, dict)}
    if not ran:
        raise RuntimeError(f"no way to run a step: {rows}")
    best = min(ran, key=lambda name: ran[name][1] + ran[name][nodes])
    return {"forward_seconds": rows, "best": best}


def round_robin(categories: dict[str, list[Trace]]) -> list[Trace]:
    """One of each category, then the next of each, so that wherever time ends all have had their share."""
    return [trace for trace in chain.from_iterable(zip_longest(*categories.values())) if trace]


def forced_run(target: CudaGraphTarget, options: Settings, run: Bench, stock: TargetModel) -> dict[str, Any]:
    """Real forwards and real drafts over recorded answers. A few prompts are also answered by the stock backend."""
    assert options.traces
    ordered = round_robin(select(options.recorded, options.categories))[: options.limit_prompts]
    target.capture([size for size in target.sizes if size <= target.padded(options.nodes)], options.longest)
    folder = run.folder / "teacher_forced"
    folder.mkdir(exist_ok=True)
    drafters = methods(options.nodes)
    settings: dict[str, Any] = {
        "engine": {"name": "teacher_forced", "backend": "cuda_graph", "variant": run.found["variants"]["best"],
                   "traces": options.traces.name, "categories": None, "max_draft": options.nodes - 1},
        "model": options.model, "measure": {"repeats": 1}, "grid": None, "paper_tables": [],
        "methods": {name: {"name": name, "num_draft": getattr(drafter, "num_draft", 0)}
                    for name, drafter in drafters.items()},
    }  # fmt: skip
    about = options.manifest(settings, content_hash([trace.prompt.ids.tolist() for trace in ordered]))
    about.write(folder / "manifest.json")
    name = teacher_forced.title(f"{options.name} (random weights)", options.traces.name)
    engine = teacher_forced.TeacherForced(
        about, name, drafters, {trace.key: trace for trace in ordered}, [], 1, lambda: target
    )
    seconds = 0.8 * run.left() - 5
    ends = perf_counter() + seconds
    with RecordWriter(folder / "records.jsonl", about.run) as writer:
        measure_engine(engine, writer, lambda: perf_counter() > ends)
    records = list(writer.records.values())
    over_stock = run.part("stock vanilla", lambda: stock_vanilla(records, ordered, stock, run, seconds / 4))
    return {"title": name, "methods": by_method(records, over_stock["ratio"] if over_stock else None)}


def stock_vanilla(
    records: Iterable[PromptRecord], ordered: Sequence[Trace], stock: TargetModel, run: Bench, seconds: float
) -> dict[str, Any]:
    """How much slower vanilla is over the stock backend, the denominator that a user of transformers starts from: over
    as many of the prompts that were answered, in their order, as fit into `seconds`.
    """
    vanilla = {record.key.item: record for record in records if record.method == "vanilla"}
    pairs: list[tuple[float, float]] = []
    started = perf_counter()
    teacher_forced.warm_up([NoDraft()], ordered, stock, 32)
    for trace in ordered:
        record = vanilla.get(trace.key)
        if run.left() < 5 or perf_counter() - started > seconds or record is None:
            break
        if record.seconds:
            result: Any = teacher_forced.answer(NoDraft(), trace, stock)
            pairs.append((result.seconds.total, record.seconds.total))
    over, under = np.sum(pairs, axis=0) if pairs else (0, 1)
    return {"prompts": len(pairs), "ratio": over / under or None}


def by_method(records: Iterable[PromptRecord], over_stock: float | None) -> dict[str, dict[str, Any]]:
    """The project's metrics of each method, over the prompts that all have answered."""
    frame = metrics.answered(metrics.to_frame(records))
    frame = frame[frame.groupby(metrics.PROMPT).method.transform("nunique") == frame.method.nunique()]
    vanilla = metrics.decode_tokens_per_second(frame[frame.method == "vanilla"])
    rows = {}
    for name, part in frame.groupby("method", sort=False):
        ratio, low, high = metrics.speedup(frame, str(name))
        us = {phase: 1e3 * metrics.milliseconds_per_step(part, [phase]) for phase in ("draft", "build", "commit")}
        rows[name] = {
            "prompts": metrics.num_prompts(part),
            "accept_length": metrics.accept_length(part),
            "tokens_per_second": metrics.tokens_per_second(part),
            "speedup": ratio,
            "speedup_low": low,
            "speedup_high": high,
            "speedup_decoding_alone": metrics.decode_tokens_per_second(part) / vanilla,
            "speedup_over_stock_vanilla": ratio * over_stock if over_stock else None,
            **{f"{phase}_us_per_step": taken for phase, taken in us.items()},
            "loop_us_per_step": metrics.ratio_of(1e6 * part.seconds.sum(), metrics.num_steps(part))
            - 1e3 * metrics.milliseconds_per_step(part, metrics.PHASES),
            "index_ms": metrics.index_ms(part),
            "prefill_ms": 1e3 * part.prefill_seconds.mean(),
            "mean_nodes": 1 + metrics.draft_nodes(part),
        }
    return rows


def measure(options: Settings) -> dict[str, Any]:
    """Everything, in order; returns what was found."""
    for old in (
        "teacher_forced",
        "calibration",
    ):  # of an earlier call: a part that is left out now must not seem to be there
        shutil.rmtree(options.output / old, ignore_errors=True)
    options.output.mkdir(parents=True, exist_ok=True)
    run = Bench(options.output, options.budget)
    settings = {"model": options.model, "contexts": options.contexts, "sizes": options.sizes}
    about = options.manifest(settings, "random")
    about.write(options.output / "manifest.json")
    run.found |= {"device": about.device, "model": options.name, "dtype": options.dtype, "nodes": options.nodes}
    bandwidth = run.part("copy_bandwidth", lambda: step_costs.copy_bandwidth(options.device, options.copy_mb << 20))
    run.part("tokens in fp32", lambda: check_tokens(options))
    model = random_model(
        str(options.architecture), options.dtype, options.device, max_position_embeddings=options.limit
    )
    stock = TargetModel(model, options.sizes[-1] - 1, options.limit)
    best = run.part("variants", lambda: variants(model, options, run))
    if not best:
        return run.found
    attention, _, compiled = best["best"].partition(", ")
    target = CudaGraphTarget(model, options.sizes[-1] - 1, options.limit, attention, bool(compiled), options.sizes)
    compared = min(32, options.sizes[-1])
    run.part("against the stock backend", lambda: differences(target, stock, options.contexts[0], compared))

    def step_table() -> dict[str, Any]:
        steps = step_costs.measure_steps(target, options.sizes, options.contexts, options.rounds)
        vanilla = steps.wall[0]
        bytes_read = [step_costs.step_bytes(target, context) for context in options.contexts]
        rates = [count / seconds for count, seconds in zip(bytes_read, vanilla, strict=True)]
        folder = options.output / "calibration"
        steps.curve(f"{options.name} (random weights) in {options.dtype} on {about.device}").write(folder)
        about.write(folder / "manifest.json")
        return asdict(steps) | {
            "relative": steps.wall / vanilla,
            "tokens_per_second": 1 / vanilla,
            "gigabytes_read": [count / 1e9 for count in bytes_read],
            "share_of_bandwidth": [rate / bandwidth for rate in rates] if bandwidth else None,
            "host_us": 1e6 * (steps.wall - steps.device),
        }

    if run.part("steps", step_table) is None:
        return run.found
    steps = step_costs.Steps(*(run.found["steps"][name] for name in ("sizes", "contexts", "wall", "device", "prefill")))

    def stock_steps() -> dict[str, Any]:
        sizes = [size for size in options.sizes if size in (1, 32, 64)] or options.sizes[:1]
        found = step_costs.measure_steps(stock, sizes, options.contexts, options.rounds)
        return {"sizes": sizes, "wall": found.wall, "vanilla_over_stock": found.wall[0] / steps.wall[0]}

    run.part("stock steps", stock_steps, needs=0.1 * options.budget)

    if options.traces:
        run.part("teacher_forced", lambda: forced_run(target, options, run, stock), needs=0.1 * options.budget)
    else:
        run.found["left out"]["teacher_forced"] = "no --traces were given"
    run.write()
    return run.found
