"""What a GPU makes of a network with random weights: bandwidth, ways to attend, steps (make bench-gpu).

Imports neither Hydra nor plotting: a machine that is only measured may lack them. Methods are measured by
engine=teacher_forced (docs/speed.md).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from transformers import PreTrainedModel
from typer import Option

from ngram_trie.bench import step_costs
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.cli.app import run
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import PROJECT, content_hash, first_line, write_atomically
from ngram_trie.targets.check import differences
from ngram_trie.targets.cuda_graph import ATTENTION, SIZES, CudaGraphTarget
from ngram_trie.targets.load import choose_device, random_model
from ngram_trie.targets.model import TargetModel


class Bench:
    """What was found so far, in one file that is written anew after every part.

    Attributes:
        found: part -> its results; "failed" holds the reason where a part has none.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path = path
        self.found: dict[str, Any] = {"failed": {}, **about}

    def part(self, name: str, call: Callable[[], Any]) -> Any:
        """Run a part; what breaks, such as a kernel that a device lacks, costs it alone. Its results, or None."""
        print(name, flush=True)
        try:
            self.found[name] = call()
        except Exception as error:
            self.found["failed"][name] = reason(error)
            print(f"  failed: {self.found['failed'][name]}", flush=True)
        gc.collect()
        text = json.dumps(self.found, indent=1, default=lambda value: value.tolist())
        write_atomically(self.path, text + "\n")
        return self.found.get(name)


def reason(error: Exception) -> str:
    """Why a part broke."""
    return f"{type(error).__name__}: {first_line(error)[:200]}"


def check_tokens(architecture: Path, device: str) -> dict[str, Any]:
    """In single precision, over two layers of the network: whether both backends answer with the same tokens, drafts
    and graphs in between.
    """
    # larger weights than usual, so that tokens vary
    small: dict[str, Any] = {"num_hidden_layers": 2, "initializer_range": 0.06, "max_position_embeddings": 512}
    model = random_model(str(architecture), "float32", device, **small)
    prompt = Prompt(np.random.default_rng(2).integers(5, min(200, model.config.vocab_size), 100))
    backends = {f"cuda_graph, {attention}": CudaGraphTarget(model, 31, 512, attention) for attention in ATTENTION}
    answers = {
        f"{name}, {type(drafter).__name__}": SpeculativeDecoder(target, drafter).generate(prompt, Stop(64)).output_ids
        for name, target in ({"stock": TargetModel(model, 31, 512)} | backends).items()
        for drafter in (NoDraft(), NgramTrieDrafter(n=4, prefix_len=1, num_draft=31, update_with_output=True))
    }
    expected = answers["stock, NoDraft"]
    return {"tokens": len(expected), "distinct": len(set(expected))} | {
        name: "identical" if answer == expected else "DIFFERENT" for name, answer in answers.items()
    }


def variants(model: PreTrainedModel, contexts: Sequence[int], sizes: Sequence[int], nodes: int) -> dict[str, Any]:
    """Forward seconds of every way to run a step, by context and size; the best is that of a plain step and one of
    `nodes` (padded) together, at the context next to 1,000. A way that does not run here is there with the reason.
    """
    padded, rng = min(size for size in sizes if size >= nodes), np.random.default_rng(0)
    sizes, middle = sorted({1, padded, sizes[-1]}), min(contexts, key=lambda context: abs(context - 1000))
    rows: dict[str, Any] = {}
    for compiled, attention in product(sorted({False, model.device.type == "cuda"}), ATTENTION):
        name = f"{attention}{', compiled' if compiled else ''}"
        try:
            target = CudaGraphTarget(model, sizes[-1] - 1, max(contexts) + 64, attention, compiled, sizes)
            rows[name] = {}
            for context in contexts:
                target.prefill(rng.integers(5, model.config.vocab_size, context))
                rows[name][context] = {size: target.forward_seconds(size) for size in sizes}
        except Exception as error:
            rows[name] = f"failed: {reason(error)}"
        gc.collect()  # the one before this one, its cache and graphs
        print(f"  {name}: {rows[name]}", flush=True)
    ran = {name: row[middle] for name, row in rows.items() if isinstance(row, dict)}
    if not ran:
        raise RuntimeError(f"no way to run a step: {rows}")
    return {"forward_seconds": rows, "best": min(ran, key=lambda name: ran[name][1] + ran[name][padded])}


def main(
    architecture: Annotated[Path, Option(help="folder with a config.json")] = PROJECT / "data/architectures/vicuna_7b",
    output: Annotated[Path, Option(help="folder for the results")] = PROJECT / "results/local/gpu",
    device: Annotated[str, Option(help="cuda, cpu or auto")] = "auto",
    dtype: Annotated[Literal["bfloat16", "float16", "float32"], Option()] = "bfloat16",
    contexts: Annotated[list[int], Option(min=1, help="cached tokens")] = [512, 1000, 2048, 8192],  # noqa: B006
    sizes: Annotated[list[int], Option(min=1, help="nodes of a step, the root counted")] = list(SIZES),  # noqa: B006
    nodes: Annotated[int, Option(min=2, help="of the step by which ways to attend are compared")] = 32,
    rounds: Annotated[int, Option(min=1, help="of six steps each, at every size and context")] = 5,
    copy_mb: Annotated[int, Option(min=1, help="megabytes of the copy that measures bandwidth")] = 4096,
) -> dict[str, Any]:
    """Measure a GPU: bandwidth, ways to attend, and steps by size and context on both backends.

    The network has random weights, made on the device. Each part is written to bench.json when it ends, the steps also
    as a curve for cost=measured (docs/speed.md). Repeat an option to give it several values.

      python -m scripts.bench_gpu --output results/local/h100 --contexts 512 --contexts 2048
    """
    contexts, sizes = sorted(set(contexts)), sorted({1, *sizes})
    if device == "auto" and not torch.cuda.is_available():
        raise ValueError("--device auto: torch sees no GPU here; --device cpu tries the measurement on the processor")
    device = str(choose_device(device))
    if nodes > sizes[-1]:
        raise ValueError(f"--nodes={nodes}: at most the largest of --sizes, {sizes[-1]}")
    if not (architecture / "config.json").is_file():
        raise ValueError(f"--architecture={architecture}: there is no config.json in the folder")
    limit, name = contexts[-1] + 64, architecture.name
    about = make_manifest(
        {"model": {"name": name, "weights": "random", "dtype": dtype}, "contexts": contexts, "sizes": sizes},
        f"random weights, {content_hash(json.loads((architecture / 'config.json').read_text(encoding='utf-8')))}",
        "random",
        device,
    )
    output.mkdir(parents=True, exist_ok=True)
    about.write(output / "manifest.json")
    bench = Bench(output / "bench.json", {"device": about.device, "model": name, "dtype": dtype, "nodes": nodes})
    bandwidth = bench.part("copy_bandwidth", lambda: step_costs.copy_bandwidth(device, copy_mb << 20))
    bench.part("tokens in fp32", lambda: check_tokens(architecture, device))
    model = random_model(str(architecture), dtype, device, max_position_embeddings=limit)
    stock = TargetModel(model, sizes[-1] - 1, limit)
    if not (best := bench.part("variants", lambda: variants(model, contexts, sizes, nodes))):
        return bench.found
    attention, _, compiled = best["best"].partition(", ")
    target = CudaGraphTarget(model, sizes[-1] - 1, limit, attention, bool(compiled), sizes)
    bench.part("against the stock backend", lambda: differences(target, stock, contexts[0], min(32, sizes[-1])))

    def steps() -> dict[str, Any]:
        found = step_costs.measure_steps(target, sizes, contexts, rounds)
        vanilla = found.wall[0]
        bytes_read = np.array([step_costs.step_bytes(target, context) for context in contexts])
        found.curve(f"{name} (random weights) in {dtype} on {about.device}").write(output / "calibration")
        about.write(output / "calibration" / "manifest.json")
        return asdict(found) | {
            "relative": found.wall / vanilla,
            "tokens_per_second": 1 / vanilla,
            "gigabytes_read": bytes_read / 1e9,
            "share_of_bandwidth": bytes_read / vanilla / bandwidth if bandwidth else None,
            "host_us": 1e6 * (found.wall - found.device),
        }

    def stock_steps() -> dict[str, Any]:
        chosen = [size for size in sizes if size in (1, 32, 64)]
        return {"sizes": chosen, "wall": step_costs.measure_steps(stock, chosen, contexts, rounds).wall}

    bench.part("steps", steps)
    bench.part("stock steps", stock_steps)
    print(f"written: {bench.path}")
    return bench.found


if __name__ == "__main__":
    run(main)
