"""Measure what steps cost on this machine: python -m scripts.calibrate model=embedded output=FOLDER (make calibrate)

Writes curve.json and curve.csv (seconds of a verification step over drafted nodes and cached tokens, and of a prefill),
drafters.csv (each drafter's own time) and a manifest. Sizes are measured in turn, round after round, through the
decoding loop itself, so that a machine that slows down meanwhile slows them all alike.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hydra
import numpy as np
import torch
from omegaconf import DictConfig
from tqdm import tqdm

from ngram_trie import config as configuration
from ngram_trie import runner
from ngram_trie.cost import CostCurve
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, Prompt
from ngram_trie.records import content_hash
from ngram_trie.target import TargetModel, choose_device, fingerprint, load_model
from ngram_trie.tree import DraftTree
from scripts.bench_drafting import drafting_costs

NODES = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (64, 256, 512, 1024, 2048, 4096, 8192)
ROUNDS, STEPS = 5, 12


class Binary(Drafter):
    """Drafts a full binary tree of random tokens of the given size: something to verify, hardly ever right."""

    def __init__(self, num_draft: int, vocab_size: int) -> None:
        self.num_draft, self.vocab_size = num_draft, vocab_size
        self.rng = np.random.default_rng(0)

    def start(self, prompt: Prompt) -> None:
        self.last = int(prompt.ids[-1])

    def observe(self, new_ids: Sequence[int]) -> None:
        self.last = int(new_ids[-1])

    def propose(self, budget: int) -> DraftTree:
        nodes = np.arange(self.num_draft + 1)
        tokens = self.rng.integers(self.vocab_size, size=len(nodes))
        tokens[0] = self.last
        return DraftTree(tokens, (nodes - 1) // 2 if self.num_draft else nodes - 1)


@dataclass(frozen=True)
class Steps(Stop):
    """Ends after so many tokens, long before the limit that a draft's depth must keep to."""

    num_steps: int = 1

    def reason(self, output_ids: Sequence[int]) -> str | None:
        return "enough" if len(output_ids) > self.num_steps else None


def measure_curve(target: TargetModel, name: str, rounds: int = ROUNDS, steps: int = STEPS) -> CostCurve:
    """The cost curve of `target`: medians over `rounds` of the mean of `steps` steps."""
    vocab_size = target.model.config.vocab_size
    nodes = [n for n in NODES if n <= target.max_draft]
    longest = target.context_limit - 4 * steps
    contexts = sorted({c for c in CONTEXTS if c < longest} | {longest}) if longest < CONTEXTS[-1] else list(CONTEXTS)
    rng = np.random.default_rng(0)
    step_seconds = np.empty((rounds, len(nodes), len(contexts)))
    prefill_seconds = np.empty((rounds, len(nodes), len(contexts)))
    with tqdm(total=step_seconds.size, unit="point", desc="calibrate") as progress:
        for round_number in range(-1, rounds):  # the first round warms up and is overwritten
            for row, num_draft in enumerate(nodes):
                decoder = SpeculativeDecoder(target, Binary(num_draft, vocab_size))
                for column, context in enumerate(contexts):
                    prompt = Prompt(rng.integers(5, vocab_size, context))
                    # Room behind the last step, so that no draft is cut short.
                    result = decoder.generate(prompt, Steps(num_steps=steps, max_new_tokens=4 * steps))
                    seconds = result.seconds
                    stepping = seconds.total - seconds.prefill - seconds.index - seconds.draft
                    step_seconds[round_number, row, column] = stepping / len(result.accept_lengths)
                    prefill_seconds[round_number, row, column] = seconds.prefill
                    progress.update(round_number >= 0)
    return CostCurve(
        name,
        nodes,
        contexts,
        np.median(step_seconds, axis=0).tolist(),
        contexts,
        np.median(prefill_seconds, axis=(0, 1)).tolist(),
    )


@hydra.main(version_base="1.3", config_path=str(configuration.CONFIGS), config_name="config")
def main(config: DictConfig) -> None:
    """Load, measure, write."""
    try:
        configuration.check_values(config)
        config.model.device = str(choose_device(config.model.device))
        torch.set_num_threads(config.engine.num_threads or torch.get_num_threads())
        folder = Path(config.output or configuration.PROJECT / "results" / "local" / "calibration")
        manifest = runner.device_manifest(
            {"model": configuration.resolve(config)["model"], "engine": configuration.resolve(config)["engine"]},
            fingerprint(config.model.path, config.model.revision),
            content_hash([NODES, CONTEXTS, ROUNDS, STEPS]),
            torch.device(config.model.device),
        )
        model = load_model(
            **{name: config.model[name] for name in ("path", "dtype", "device", "revision", "attention")}
        )
        target = TargetModel(model, config.engine.max_draft, config.model.context_limit)
        curve = measure_curve(target, f"{config.model.name} in {config.model.dtype} on {manifest.device}")
        curve.write(folder)
        drafting_costs().to_csv(folder / "drafters.csv", float_format="%.4g")
        manifest.write(folder / "manifest.json")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was written")
    print(curve.frame().pivot(index="nodes", columns="context", values="relative").round(2).to_string())
    print(f"\nTime of a step that verifies so many nodes, relative to a plain step, by cached tokens.\n{curve.name}")


if __name__ == "__main__":
    main()
