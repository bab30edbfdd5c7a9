"""The training loop that all bundled models share: Muon and AdamW, clipped gradients, a log."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ngram_trie.bench.provenance import cpu_name

LOG = "training_log.jsonl"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings that all trainings have. Subclasses add their own; together they decide the weights."""

    seed: int
    num_steps: int
    warmup_steps: int
    muon_lr: float
    adam_lr: float

    def rate(self, step: int) -> float:
        """Learning-rate factor of a step: linear warm-up, cosine decay to 0."""
        return min(1.0, (step + 1) / self.warmup_steps) * 0.5 * (1 + math.cos(math.pi * step / self.num_steps))

    def generator(self, step: int) -> torch.Generator:
        """Random numbers that depend on the seed and the step alone."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + step)


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function compiled for fixed shapes where there is a C++ compiler, else as it is."""
    return torch.compile(function, dynamic=False) if shutil.which("g++") else function


def train(
    module: nn.Module,
    losses_at: Callable[[int], dict[str, torch.Tensor]],
    recipe: Recipe,
    folder: Path,
    vocab_size: int,
) -> dict[str, Any]:
    """Train `module` on the sum of the losses; writes a log to `folder`.

    Args:
        module: its 2-D weights are Muon's, except those with a row for each token, which are AdamW's with the rest.
        losses_at: the losses of a step, by name.
        vocab_size: number of tokens.

    Returns:
        The recipe, the seconds that training took, and the processor.
    """
    parameters = list(module.parameters())
    matrices = [p for p in parameters if p.ndim == 2 and vocab_size not in p.shape]
    others = [p for p in parameters if p.ndim != 2 or vocab_size in p.shape]
    muon = torch.optim.Muon(matrices, momentum=0.95, weight_decay=0.0)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    seconds = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("w", encoding="utf-8") as log:
        for step in range(recipe.num_steps):
            started = time.perf_counter()
            losses = losses_at(step)
            torch.stack(list(losses.values())).sum().backward()
            norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            for optimizer, rate in ((muon, recipe.muon_lr), (adam, recipe.adam_lr)):
                optimizer.param_groups[0]["lr"] = rate * recipe.rate(step)
                optimizer.step()
                optimizer.zero_grad()
            seconds += time.perf_counter() - started
            if step % 20 == 0:
                entry: dict[str, Any] = {"step": step} | {name: round(x.item(), 4) for name, x in losses.items()}
                entry |= {"grad_norm": round(norm.item(), 2), "seconds": round(seconds)}
                print(json.dumps(entry), file=log, flush=True)
                print(entry, flush=True)
    return asdict(recipe) | {"seconds": round(seconds), "device": cpu_name()}


def save(model: PreTrainedModel, about: dict[str, Any], folder: Path) -> None:
    """Write a trained model in bfloat16, and training.json, which is about its training."""
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
