"""The whole measurement of a GPU in one call (make bench-gpu)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import torch
from typer import Option

from ngram_trie.bench.gpu_bench import Settings, measure
from ngram_trie.cli.app import run
from ngram_trie.store.files import PROJECT
from ngram_trie.targets.cuda_graph import ATTENTION, SIZES


def main(
    architecture: Annotated[Path, Option(help="folder with a config.json")] = PROJECT / "data/architectures/vicuna_7b",
    name: Annotated[str | None, Option(help="the network's name in tables; the folder's by default")] = None,
    output: Annotated[Path, Option(help="folder for the results")] = PROJECT / "results/local/gpu",
    traces: Annotated[
        Path | None, Option(help="recorded answers in this vocabulary; without this, no method is measured")
    ] = None,
    categories: Annotated[list[str] | None, Option(help="of the recorded answers; all by default")] = None,
    limit_prompts: Annotated[
        int | None, Option(min=1, help="of the recorded answers, one category after the other; all by default")
    ] = None,
    budget: Annotated[float, Option(help="seconds for everything")] = 480.0,
    device: Annotated[str, Option(help="cuda, cpu or auto")] = "auto",
    dtype: Annotated[Literal["bfloat16", "float16", "float32"], Option()] = "bfloat16",
    contexts: Annotated[list[int], Option(min=1, help="cached tokens")] = [512, 1000, 2048, 8192],  # noqa: B006
    sizes: Annotated[list[int], Option(min=1, help="nodes of a step, the root counted")] = list(SIZES),  # noqa: B006
    nodes: Annotated[int, Option(min=2, help="largest tree of the methods, the root counted")] = 32,
    attention: Annotated[list[str], Option(help="ways to attend that are tried")] = list(ATTENTION),  # noqa: B006
    compile: Annotated[bool | None, Option(help="also try compiled kernels; by default on a GPU")] = None,
    rounds: Annotated[int, Option(min=1, help="of six steps each, at every size and context")] = 5,
    copy_mb: Annotated[int, Option(min=1, help="megabytes of the copy that measures bandwidth")] = 4096,
) -> None:
    """Measure a GPU in one run: bandwidth, steps by size and context, and forced runs over recorded answers.

    The network has random weights, made on the device. Each part is written when it ends; parts that no longer fit into
    --budget are left out and listed (docs/speed.md). Repeat an option to give it several values.

      python -m scripts.bench_gpu --traces FILE --output results/local/h100 --contexts 512 --contexts 2048
    """
    settings = Settings(**locals())
    if device == "auto" and not torch.cuda.is_available():
        raise ValueError("--device auto: torch sees no GPU here; --device cpu tries the measurement on the processor")
    measure(settings)
    print(f"written: {settings.output / 'bench.json'}")


if __name__ == "__main__":
    run(main)
