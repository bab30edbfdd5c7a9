"""The whole measurement of a GPU in one call (make bench-gpu)

  python -m scripts.bench_gpu --traces FILE --output results/h200

A network with random weights, made on the device, takes nothing along. In this order: the memory's copy bandwidth; the
static backend against the stock one on the same weights; which way of attending is fastest; steps by size and context,
with their share of the bandwidth; the stock backend's steps; and real drafts over recorded answers, whose tokens are
forced. Every part is written as it ends; what no longer fits into --budget is left out and said.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain, zip_longest
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import AutoConfig, PreTrainedModel

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.baselines.suffix_decoding import SuffixDecoding
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.engines import forced, provenance, step_costs
from ngram_trie.engines.traces import Trace, read_traces, select
from ngram_trie.files import content_hash, first_line
from ngram_trie.metrics import speedup, to_frame
from ngram_trie.prompt import Prompt
from ngram_trie.records import RecordWriter, RunManifest, read_records
from ngram_trie.targets.check import differences
from ngram_trie.targets.load import choose_device, random_model
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.static import SIZES, StaticTarget

PROJECT = Path(__file__).parents[1]
#: What a trie's step is expected to cost at most, relative to a step of one token (`targets`).
STEP_TARGETS = {32: 1.10, 64: 1.15}


def methods(num_nodes: int) -> dict[str, Drafter]:
    """Drafters that see tokens only, with trees of at most `num_nodes` nodes, the root counted."""
    drafted = num_nodes - 1
    return {
        "vanilla": NoDraft(),
        "ngram_trie": NgramTrieDrafter(n=13, prefix_len=3, num_draft=drafted),
        "pld": PromptLookup(max_ngram=3, num_draft=min(10, drafted)),
        "suffix": SuffixDecoding(num_draft=drafted),
        "blend": BlendDrafter(num_draft=drafted),
    }


class Bench:
    """What was found so far, in one file that is written anew after every part.

    Attributes:
        found: part -> its results; "left out" and "failed" say of a part why it has none.
    """

    def __init__(self, folder: Path, budget: float, device: torch.device) -> None:
        self.folder, self.device = folder, device
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
                self.found["failed"][name] = f"{type(error).__name__}: {first_line(error)[:200]}"
                print(f"  failed: {self.found['failed'][name]}", flush=True)
        self.found.setdefault("seconds", {})[name] = round(perf_counter() - started, 1)
        gc.collect()
        self.write()
        return self.found.get(name)

    def write(self) -> None:
        text = json.dumps(self.found, indent=1, default=lambda value: value.tolist())
        (self.folder / "bench.json").write_text(text + "\n", encoding="utf-8")


def check_tokens(options: argparse.Namespace) -> dict[str, Any]:
    """In single precision, over two layers of the network: whether both backends answer with the same tokens, drafts
    and graphs in between.
    """
    # larger weights than usual, so that tokens vary
    small: dict[str, Any] = {"num_hidden_layers": 2, "initializer_range": 0.06, "max_position_embeddings": 512}
    model = random_model(options.architecture, "float32", options.device, **small)
    ids = np.random.default_rng(2).integers(5, min(200, model.config.vocab_size), 100)
    backends: dict[str, TargetModel] = {"stock": TargetModel(model, 31, 512)}
    for attention in options.attention:
        backends[f"static, {attention}"] = StaticTarget(model, 31, 512, attention)
    answers = {}
    for name, target in backends.items():
        for drafter in (NoDraft(), NgramTrieDrafter(n=4, prefix_len=1, num_draft=31, update_with_output=True)):
            result = SpeculativeDecoder(target, drafter).generate(Prompt(ids), Stop(64))
            answers[f"{name}, {type(drafter).__name__}"] = result.output_ids
    expected = answers["stock, NoDraft"]
    return {"tokens": len(expected), "distinct": len(set(expected))} | {
        name: "identical" if answer == expected else "DIFFERENT" for name, answer in answers.items()
    }


def variants(model: PreTrainedModel, options: argparse.Namespace, run: Bench) -> dict[str, Any]:
    """Forward seconds of every way to run a step, by context and size; the best is that of a plain step and one of
    `--nodes` (padded) together, at the context next to 1,000. A way that does not run here is left out with the reason.
    """
    nodes = min(size for size in options.sizes if size >= options.nodes)
    sizes, rng = sorted({1, nodes, options.sizes[-1]}), np.random.default_rng(0)
    rows: dict[str, Any] = {}
    ways = [(attention, compiled) for compiled in {False, options.compile} for attention in options.attention]
    for attention, compiled in sorted(ways, key=lambda way: way[1]):
        name = f"{attention}{', compiled' if compiled else ''}"
        if rows and run.left() < options.budget / 2:
            rows[name] = "left out: too little time"
            continue
        try:
            target = StaticTarget(model, sizes[-1] - 1, options.limit, attention, compiled, sizes)
            taken: dict[int, dict[int, float]] = {}
            for context in options.contexts:
                target.prefill(rng.integers(5, model.config.vocab_size, context))
                taken[context] = {size: target.forward_seconds(size) for size in sizes}
            rows[name] = taken
        except Exception as error:
            rows[name] = f"failed: {type(error).__name__}: {first_line(error)[:200]}"
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


def forced_run(target: StaticTarget, options: argparse.Namespace, run: Bench, stock: TargetModel) -> dict[str, Any]:
    """Real forwards and real drafts over recorded answers. A few prompts are answered by the stock backend, too."""
    ordered = round_robin(select(read_traces(options.traces), options.categories))
    ordered = ordered[: options.limit_prompts] if options.limit_prompts else ordered
    target.capture([size for size in target.sizes if size <= target.padded(options.nodes)], options.longest)
    folder = run.folder / "forced"
    folder.mkdir(exist_ok=True)
    drafters = methods(options.nodes)
    settings: dict[str, Any] = {
        "engine": {"name": "forced", "backend": "static", "variant": run.found["variants"]["best"],
                   "traces": options.traces.name, "categories": None, "max_draft": options.nodes - 1},
        "model": model_settings(options), "measure": {"repeats": 1}, "grid": None, "paper_tables": [],
        "methods": {name: {"name": name, "num_draft": getattr(drafter, "num_draft", 0)}
                    for name, drafter in drafters.items()},
    }  # fmt: skip
    about = manifest(settings, options, content_hash([trace.prompt.ids.tolist() for trace in ordered]))
    about.write(folder / "manifest.json")
    name = forced.title(f"{options.name} (random weights)", options.traces.name)
    path, ends = folder / "records.jsonl", run.left() - 0.2 * run.left() - 5
    started = perf_counter()
    with RecordWriter(path, about.run) as writer:
        forced.measure(
            about.run, name, drafters, {"all": ordered}, target, writer, 1, lambda: perf_counter() - started > ends
        )
    over_stock = run.part("stock vanilla", lambda: stock_vanilla(path, ordered, stock, run, ends / 4))
    ratio = over_stock["ratio"] if over_stock else None
    return {"title": name, "methods": by_method(path, ratio)}


def stock_vanilla(path: Path, ordered: Sequence[Trace], stock: TargetModel, run: Bench, ends: float) -> dict[str, Any]:
    """How much slower vanilla is over the stock backend, the denominator that a user of transformers starts from: over
    as many of the prompts that were answered, in their order, as fit into `ends` seconds.
    """
    vanilla = {record.key[1:4]: record for record in read_records(path) if record.method == "vanilla"}
    stock_seconds, static_seconds, count, started = 0.0, 0.0, 0, perf_counter()
    forced.warm_up([NoDraft()], ordered, stock, 32)
    for trace in ordered:
        record = vanilla.get(trace.key)
        if run.left() < 5 or perf_counter() - started > ends or record is None:
            break
        if record.seconds:
            result: Any = forced.answer(NoDraft(), trace, stock)
            stock_seconds, static_seconds = stock_seconds + result.seconds.total, static_seconds + record.seconds.total
            count += 1
    return {"prompts": count, "ratio": stock_seconds / static_seconds if count else None}


def by_method(path: Path, over_stock: float | None) -> dict[str, dict[str, Any]]:
    """What each method came to over the prompts that all have answered."""
    records = [record for record in read_records(path) if record.seconds]
    names = list(dict.fromkeys(record.method for record in records))
    keys = [{record.key[1:] for record in records if record.method == name} for name in names]
    common = set.intersection(*keys) if keys else set()
    records = [record for record in records if record.key[1:] in common]
    frame, rows, decoding = to_frame(records), {}, {}
    for name in names:
        own = [record for record in records if record.method == name]
        seconds = [record.seconds for record in own if record.seconds]
        emitted, steps = sum(sum(r.accept_lengths) for r in own), sum(len(r.accept_lengths) for r in own)
        decoding[name] = sum(s.total - s.prefill - s.index for s in seconds) / max(emitted, 1)
        ratio, low, high = speedup(frame, name) if name != "vanilla" else (1.0, 1.0, 1.0)
        rows[name] = {
            "prompts": len(own),
            "accept_length": emitted / max(steps, 1),
            "tokens_per_second": sum(len(r.output_ids) for r in own) / sum(s.total for s in seconds),
            "speedup": ratio,
            "speedup_low": low,
            "speedup_high": high,
            "speedup_decoding_alone": decoding["vanilla"] / decoding[name],
            "speedup_over_stock_vanilla": ratio * over_stock if over_stock else None,
            "draft_us_per_step": 1e6 * sum(s.draft for s in seconds) / max(steps, 1),
            "build_us_per_step": 1e6 * sum(s.build for s in seconds) / max(steps, 1),
            "commit_us_per_step": 1e6 * sum(s.commit for s in seconds) / max(steps, 1),
            "loop_us_per_step": 1e6
            * sum(s.total - s.prefill - s.index - s.draft - s.verify - s.commit for s in seconds)
            / max(steps, 1),
            "index_ms": 1e3 * sum(s.index for s in seconds) / len(own),
            "prefill_ms": 1e3 * sum(s.prefill for s in seconds) / len(own),
            "mean_nodes": 1 + sum(sum(r.tree_sizes) for r in own) / max(steps, 1),
        }
    return rows


def targets(found: dict[str, Any], steps: step_costs.Steps, column: int) -> dict[str, Any]:
    """What was aimed at (issue "Speed on a GPU"), what came out, and whether it was met."""
    rows: dict[str, tuple[float, str, bool]] = {}
    if "steps" in found and found["steps"]["share_of_bandwidth"]:
        share = found["steps"]["share_of_bandwidth"][column]
        rows["vanilla's share of the copy bandwidth"] = (share, ">= 0.80", share >= 0.80)
    for size, most in STEP_TARGETS.items():
        if size in steps.sizes:
            ratio = float(steps.wall[steps.sizes.index(size), column] / steps.wall[0, column])
            rows[f"a step of {size} nodes over one of 1"] = (ratio, f"<= {most:.2f}", ratio <= most)
    trie = (found.get("forced") or {}).get("methods", {}).get("ngram_trie")
    if trie:
        largest = steps.sizes.index(min(size for size in steps.sizes if size >= found["nodes"]))
        forward = 1e6 * float(steps.device[largest, column])
        step = 1e6 * float(steps.wall[largest, column]) + trie["draft_us_per_step"] + trie["loop_us_per_step"]
        rows["everything but the forward, of a trie's step"] = (1 - forward / step, "<= 0.05", forward / step >= 0.95)
        for name, field in (("", "speedup"), (", decoding alone", "speedup_decoding_alone")):
            ratio = trie[field] / trie["accept_length"]
            rows[f"the trie's speedup over its accept length{name}"] = (ratio, ">= 0.90", ratio >= 0.90)
    return {name: {"found": value, "target": aim, "met": met} for name, (value, aim, met) in rows.items()}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, in order; returns what was found."""
    device = torch.device(options.device)
    for old in ("forced", "calibration"):  # of an earlier call: a part that is left out now must not seem to be there
        shutil.rmtree(options.output / old, ignore_errors=True)
    options.output.mkdir(parents=True, exist_ok=True)
    run = Bench(options.output, options.budget, device)
    settings = {"model": model_settings(options), "contexts": options.contexts, "sizes": options.sizes}
    about = manifest(settings, options, "random")
    about.write(options.output / "manifest.json")
    run.found |= {"device": about.device, "model": options.name, "dtype": options.dtype, "nodes": options.nodes}
    bandwidth = run.part("copy_bandwidth", lambda: step_costs.copy_bandwidth(device, options.copy_mb << 20))
    run.part("tokens in fp32", lambda: check_tokens(options))
    model = random_model(options.architecture, options.dtype, options.device, max_position_embeddings=options.limit)
    stock = TargetModel(model, options.sizes[-1] - 1, options.limit)
    best = run.part("variants", lambda: variants(model, options, run))
    if not best:
        return run.found
    attention, _, compiled = best["best"].partition(", ")
    target = StaticTarget(model, options.sizes[-1] - 1, options.limit, attention, bool(compiled), options.sizes)
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

    def static_cache_steps() -> dict[str, Any]:
        seconds = [step_costs.static_cache_seconds(model, context, options.limit) for context in options.contexts]
        return {"capacity": options.limit, "seconds": seconds, "over_static": np.array(seconds) / steps.wall[0]}

    run.part("stock modules over StaticCache", static_cache_steps, needs=0.1 * options.budget)
    if options.traces:
        run.part("forced", lambda: forced_run(target, options, run, stock), needs=0.1 * options.budget)
    else:
        run.found["left out"]["forced"] = "no --traces were given"
    run.found["targets"] = targets(run.found, steps, options.contexts.index(options.middle))
    run.write()
    return run.found


def model_settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"name": options.name, "weights": "random", "dtype": options.dtype, "context_limit": options.limit}


def manifest(settings: dict[str, Any], options: argparse.Namespace, prompts: str) -> RunManifest:
    """Of a part of this call. A copy without git does not know its commit: --commit tells it."""
    device, environment = torch.device(options.device), {}
    name = f"{provenance.cpu_name()}, {torch.get_num_threads()} threads"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        environment = {"cuda": str(torch.version.cuda), "driver": provenance.driver() or "unknown"}
    if options.commit:
        environment["commit, as given"] = options.commit
    network = content_hash(json.loads((Path(options.architecture) / "config.json").read_text(encoding="utf-8")))
    weights = f"random weights, {network}"
    return provenance.make_manifest(settings, weights, prompts, name, torch.get_num_threads(), environment)


def summary(found: dict[str, Any]) -> str:
    """The findings as text; all of it, with what was left out, is in step_costs.json."""
    lines = [f"{found['model']} (random weights) in {found['dtype']} on {found['device']}"]
    if "copy_bandwidth" in found:
        lines.append(f"copy bandwidth: {found['copy_bandwidth'] / 1e9:.0f} GB/s, read and written")
    for part in ("tokens in fp32", "against the stock backend"):
        if part in found:
            lines.append(f"{part}: {found[part]}")
    if "variants" in found:
        lines.append(f"fastest way to attend: {found['variants']['best']}")
    if steps := found.get("steps"):
        plain = pd.DataFrame({
            "context": steps["contexts"], "vanilla tokens/s": steps["tokens_per_second"],
            "share of bandwidth": steps["share_of_bandwidth"] or np.nan, "step ms": 1e3 * steps["wall"][0],
            "forward ms": 1e3 * steps["device"][0], "prefill ms": 1e3 * steps["prefill"],
        })  # fmt: skip
        relative = pd.DataFrame(steps["relative"], pd.Index(steps["sizes"], name="nodes"), steps["contexts"])
        lines += [plain.round(3).to_string(index=False), "time of a step over a step of one token, by context:"]
        lines.append(relative.round(3).to_string())
    if stock := found.get("stock steps"):
        lines.append(
            f"stock backend's plain step over this one's, by context: {np.round(stock['vanilla_over_stock'], 2)}"
        )
    if cached := found.get("stock modules over StaticCache"):
        ratios = np.round(cached["over_static"], 2)
        lines.append(f"stock modules over StaticCache of {cached['capacity']} rows, no graph, the same ratio: {ratios}")
    if forced_part := found.get("forced"):
        lines += [forced_part["title"], pd.DataFrame(forced_part["methods"]).T.round(3).to_string()]
    for name, row in found.get("targets", {}).items():
        lines.append(f"{'met   ' if row['met'] else 'MISSED'} {name}: {row['found']:.3f} ({row['target']})")
    for kind in ("failed", "left out"):
        lines += [f"{kind}: {name}: {why}" for name, why in found[kind].items()]
    return "\n".join(lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--architecture", default=str(PROJECT / "data/architectures/vicuna_7b"), help="folder with a config.json")
    add("--name", help="the network's name in tables (default: the folder's)")
    add("--output", type=Path, default=PROJECT / "results/local/gpu", help="folder (default: results/local/gpu)")
    add("--traces", type=Path, help="recorded answers in this vocabulary; without them no method is measured")
    add("--categories", nargs="+", help="of the recorded answers; all by default")
    add("--limit-prompts", type=int, help="of the recorded answers, one category after the other; all by default")
    add("--budget", type=float, default=480.0, help="seconds for everything (default: %(default)s)")
    add("--device", default="auto", help="cuda, cpu or auto")
    add("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    add("--contexts", type=int, nargs="+", default=[512, 1000, 2048, 8192], help="cached tokens")
    add("--sizes", type=int, nargs="+", default=list(SIZES), help="nodes of a step, the root counted")
    add("--nodes", type=int, default=32, help="largest tree of the methods, the root counted (default: %(default)s)")
    add("--attention", nargs="+", default=["whole", "split"], help="ways to attend that are tried")
    add("--compile", action=argparse.BooleanOptionalAction, help="also try compiled kernels; default: on a GPU")
    add("--rounds", type=int, default=5, help="of six steps each, at every size and context")
    add("--copy-mb", type=int, default=4096, help="megabytes of the copy that measures bandwidth")
    add("--commit", help="the project's commit, for the manifest, where this copy has no git")
    options = parser.parse_args(arguments)
    options.device = str(choose_device(options.device))
    options.name = options.name or Path(options.architecture).name
    options.contexts, options.sizes = sorted(set(options.contexts)), sorted({1, *options.sizes})
    options.middle = min(options.contexts, key=lambda context: abs(context - 1000))
    if options.compile is None:
        options.compile = options.device.startswith("cuda")
    if options.nodes > options.sizes[-1] or min(options.contexts) < 1 or options.nodes < 2:
        raise ValueError(f"--nodes={options.nodes}: at least 2 and at most the largest of --sizes, {options.sizes[-1]}")
    if options.traces and not options.traces.is_file():
        raise ValueError(f"--traces={options.traces}: no such file")
    if not (Path(options.architecture) / "config.json").is_file():
        raise ValueError(f"--architecture={options.architecture}: there is no config.json in the folder")
    recorded = read_traces(options.traces) if options.traces else []
    if recorded:
        known = {trace.prompt.dataset for trace in recorded}
        if unknown := sorted({*(options.categories or ())} - known):
            raise ValueError(f"--categories={unknown[0]}: {options.traces} has {', '.join(sorted(known))}")
        network = json.loads((Path(options.architecture) / "config.json").read_text(encoding="utf-8"))
        vocab_size = AutoConfig.for_model(**network).vocab_size
        forced.check_vocabulary(recorded, vocab_size, f"--traces={options.traces}")
    options.longest = max((len(trace.prompt.ids) + len(trace.output_ids) for trace in recorded), default=0)
    options.limit = max(*options.contexts, options.longest) + 64
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        print(summary(measure(parse(arguments))))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
