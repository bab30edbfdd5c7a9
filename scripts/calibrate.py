"""Measure what steps cost on this machine (make calibrate).

  python -m scripts.calibrate model=tiny output=FOLDER
  python -m scripts.calibrate model=smollm2_135m engine.max_draft=64 model.context_limit=2048 measure.repeats=1

For a large model measure less, as the second command does.

Writes curve.json and curve.csv (seconds of a verification step by drafted nodes and cached tokens, and of a prefill)
and a manifest.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from ngram_trie.bench import config as configuration
from ngram_trie.bench import models
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.prepare import load_target, settle
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import seal
from ngram_trie.bench.step_costs import measure_steps, room_for
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.store.files import content_hash
from ngram_trie.targets.model import TargetModel

NODES = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8192)
#: Rounds for each of `measure.repeats`, and steps at every point in a round.
ROUNDS, STEPS = 4, 6


def measure_curve(target: TargetModel, name: str, rounds: int = 3 * ROUNDS, steps: int = STEPS) -> CostCurve:
    """The cost curve of `target`, over the NODES and CONTEXTS that it has room for."""
    sizes = [n + 1 for n in NODES if n <= target.max_draft]
    longest = target.context_limit - room_for(sizes[-1] - 1)
    contexts = sorted({c for c in CONTEXTS if c < longest} | {min(longest, CONTEXTS[-1])})
    return measure_steps(target, sizes, contexts, rounds, steps).curve(name)


def calibrate(config: DictConfig) -> Path:
    """Load, measure, write; returns the folder."""
    configuration.check_values(config)
    settle(config)
    folder = Path(config.output or configuration.PROJECT / "results" / "local" / "calibration")
    resolved = configuration.resolve(config)
    manifest = make_manifest(
        {"model": resolved["model"], "engine": resolved["engine"]},
        models.identity(config.model),
        content_hash([NODES, CONTEXTS, config.measure.repeats * ROUNDS, STEPS]),
        config.model.device,
    )
    name = f"{models.name(config.model)} in {config.model.dtype} on {manifest.device}"
    curve = measure_curve(load_target(config), name, config.measure.repeats * ROUNDS)
    curve.write(folder)
    manifest.write(folder / "manifest.json")
    seal(folder)
    print(curve.frame().pivot(index="nodes", columns="context", values="relative").round(2).to_string())
    print(f"\nTime of a step that verifies this many nodes, relative to a plain step, by cached tokens.\n{curve.name}")
    return folder


if __name__ == "__main__":
    hydra_app(calibrate, __doc__, interrupted="without manifest.json the folder is not complete")
