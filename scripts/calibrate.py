"""Measure what steps cost on this machine (make calibrate).

  python -m scripts.calibrate model=embedded output=FOLDER

Writes curve.json and curve.csv (seconds of a verification step over drafted nodes and cached tokens, and of a prefill),
drafters.csv (each drafter's own time) and a manifest.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie import config as configuration
from ngram_trie.cli import shell
from ngram_trie.cost import CostCurve
from ngram_trie.decoding import verify_greedy
from ngram_trie.engines import live
from ngram_trie.files import content_hash
from ngram_trie.targets import choose
from ngram_trie.targets.check import binary_tree
from ngram_trie.targets.model import TargetModel
from scripts.bench_drafting import drafting_costs
from scripts.run import run_target, settle

NODES = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8192)
ROUNDS, STEPS = 12, 6


def measure_curve(target: TargetModel, name: str, rounds: int = ROUNDS, steps: int = STEPS) -> CostCurve:
    """The cost curve of `target`: medians over all steps of all rounds. The order is drawn anew in every round, so that
    a machine that slows down for a while slows no size more than another.
    """
    vocab_size = target.model.config.vocab_size
    nodes = [n for n in NODES if n <= target.max_draft]
    longest = target.context_limit - steps - 1
    contexts = sorted({c for c in CONTEXTS if c < longest} | {min(longest, CONTEXTS[-1])})
    rng = np.random.default_rng(0)
    laps = np.empty((len(nodes), len(contexts), rounds, steps))
    prefills = np.empty((len(contexts), rounds))
    with tqdm(total=laps[..., 0].size, unit="point", desc="calibrate", mininterval=1) as progress:
        for turn in range(-1, rounds):  # the first warms up; the last overwrites what it wrote
            for column in rng.permutation(len(contexts)):
                context = contexts[column]
                target.synchronize()
                started = perf_counter()
                target.prefill(rng.integers(5, vocab_size, context))
                prefills[column, turn] = perf_counter() - started
                for row in rng.permutation(len(nodes)):
                    target.commit(context - 1, [0])  # back to the prompt alone
                    for step in range(steps):
                        tree = binary_tree(nodes[row], rng, vocab_size)
                        started = perf_counter()
                        verify_greedy(tree, target.verify(tree))
                        target.commit(context + step, [0])
                        laps[row, column, turn, step] = perf_counter() - started
                    progress.update(turn >= 0)
    return CostCurve(
        name,
        nodes,
        contexts,
        np.median(laps, axis=(2, 3)).tolist(),
        contexts,
        np.median(prefills, axis=1).tolist(),
    )


def calibrate(config: DictConfig) -> Path:
    """Load, measure, write; returns the folder."""
    configuration.check_values(config)
    settle(config)
    folder = Path(config.output or configuration.PROJECT / "results" / "local" / "calibration")
    manifest = live.device_manifest(
        {"model": configuration.resolve(config)["model"], "engine": configuration.resolve(config)["engine"]},
        choose.identity(config.model),
        content_hash([NODES, CONTEXTS, ROUNDS, STEPS]),
        torch.device(config.model.device),
    )
    target = run_target(config)
    curve = measure_curve(target, f"{choose.name(config.model)} in {config.model.dtype} on {manifest.device}")
    curve.write(folder)
    drafting_costs().to_csv(folder / "drafters.csv", float_format="%.4g")
    manifest.write(folder / "manifest.json")
    print(curve.frame().pivot(index="nodes", columns="context", values="relative").round(2).to_string())
    print(f"\nTime of a step that verifies so many nodes, relative to a plain step, by cached tokens.\n{curve.name}")
    return folder


def cli() -> None:
    """What the shell calls."""
    shell.hydra_app(calibrate, __doc__, interrupted="nothing was written")


if __name__ == "__main__":
    cli()
