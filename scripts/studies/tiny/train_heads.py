"""Train Medusa's and Hydra's heads on the tiny model (31 minutes on two shared CPU cores).

The target is frozen and read once for both. Heads learn from the answers of fresh samples of the text world: what comes
k tokens after the next. Weights are stored as 8-bit floats: drafts are verified, so what their rounding costs is some
accept length at most, and the head accuracies in config.json are measured after it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from ngram_trie.baselines.hydra_heads import HydraHeads
from ngram_trie.baselines.medusa import MedusaHeads
from ngram_trie.data import bundled, world
from ngram_trie.store.files import fingerprint
from ngram_trie.targets.load import load_model
from scripts.studies.tiny import training
from scripts.studies.tiny.train_model import Batches, fine_tuning_batches

NUM_RANKS = 10


@dataclass(frozen=True, kw_only=True)
class HeadsRecipe(training.Recipe):
    """Everything that decides the weights."""

    seed: int = 21
    num_heads: int = 4
    num_layers: int = 1  # blocks in each Hydra head
    num_steps: int = 1100
    warmup_steps: int = 30
    tokens_per_step: int = 8192
    positions_per_step: int = 1024  # at which heads are scored
    muon_lr: float = 0.01
    adam_lr: float = 1e-3


class Heads(nn.Module):
    """Both methods' heads; Medusa's start from the target's own head, as the paper's do, Hydra's as well."""

    def __init__(self, model: PreTrainedModel, recipe: HeadsRecipe) -> None:
        super().__init__()
        size, vocab_size = model.config.hidden_size, model.config.vocab_size
        self.medusa = MedusaHeads(recipe.num_heads, size, vocab_size)
        self.hydra = HydraHeads(model.config, type(model.base_model), recipe.num_heads, recipe.num_layers, True)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if name.endswith(".1.weight"):
                    weight.copy_(model.lm_head.weight)
                elif name.endswith(".1.bias"):
                    weight.zero_()

    def forward(
        self, hidden: torch.Tensor, embeddings: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (h, m, V) of Medusa's and of Hydra's heads.

        Args:
            hidden: (rows, length, H) of the frozen target.
            embeddings: (m, h, H) of the root and of the tokens after it, at each position.
            positions: (m,) flat positions of the last accepted tokens.
        """
        states = self.hydra.prefix(hidden, use_cache=False).flatten(0, 1)[positions]
        inputs = torch.cat([states[:, None], embeddings], dim=1).flatten(1)
        size = hidden.shape[-1]
        hydra = [self.hydra.logits(h, inputs[:, : (h + 2) * size]) for h in range(embeddings.shape[1])]
        return self.medusa(hidden.flatten(0, 1)[positions]), torch.stack(hydra)


def scored(ids: torch.Tensor, weights: torch.Tensor, num_heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Flat positions (m,) whose next token and the `num_heads` after it all belong to one answer, and those tokens,
    (m, num_heads + 1), the root first.
    """
    length = ids.shape[1]
    starts = torch.arange(ids.numel()).view(ids.shape)[:, : length - num_heads - 1]
    ahead = torch.stack([starts + k for k in range(1, num_heads + 2)], dim=-1)
    inside = (weights.flatten()[ahead] == 1).all(-1)
    return starts[inside], ids.flatten()[ahead[inside]]


def train(recipe: HeadsRecipe, folder: Path) -> None:
    """Train both and save each to a folder of its own below `folder`, in the layout of the public weights."""
    torch.manual_seed(recipe.seed)
    model = load_model(str(bundled.MODEL), device="cpu").requires_grad_(False)
    batches = fine_tuning_batches(recipe.seed, recipe.tokens_per_step)
    heads = Heads(model, recipe)

    def loss_of(ids: torch.Tensor, positions: torch.Tensor, ahead: torch.Tensor) -> torch.Tensor:
        """(2,) mean cross entropy of Medusa's and of Hydra's heads, in nats."""
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
                embeddings = model.model.embed_tokens(ahead[:, :-1])
            logits = heads(hidden, embeddings, positions)
        labels = ahead[:, 1:].T.flatten()
        return torch.stack([nn.functional.cross_entropy(part.flatten(0, 1).float(), labels) for part in logits])

    loss = training.compiled(loss_of)

    def losses_at(step: int) -> dict[str, torch.Tensor]:
        ids, weights = batches.rows(step)
        positions, ahead = scored(ids, weights, recipe.num_heads)
        drawn = torch.randint(len(positions), (recipe.positions_per_step,), generator=recipe.generator(step))
        return dict(zip(("medusa", "hydra"), loss(ids, positions[drawn], ahead[drawn]), strict=True))

    about = training.train(heads, losses_at, recipe, folder, model.config.vocab_size)
    save(heads, model, batches, recipe, folder, about | {"target": fingerprint(str(bundled.MODEL))})


def save(
    heads: Heads, model: PreTrainedModel, batches: Batches, recipe: HeadsRecipe, folder: Path, about: dict[str, Any]
) -> None:
    """Write both folders, with accuracies of the weights as they are stored."""
    rounded = Heads(model, recipe)
    stored = {key: value.to(torch.float8_e4m3fn) if value.ndim == 2 else value.to(torch.bfloat16)
              for key, value in heads.state_dict().items()}  # fmt: skip
    rounded.load_state_dict({key: value.float() for key, value in stored.items()})
    accuracies = head_accuracies(rounded, model, batches, recipe.num_heads)
    for name, accuracy in zip(("medusa", "hydra"), accuracies, strict=True):
        (folder / name).mkdir(exist_ok=True)
        part = {k.removeprefix(f"{name}."): v.contiguous() for k, v in stored.items() if k.startswith(f"{name}.")}
        save_file(part, folder / name / f"{name}_heads.safetensors")
        layout = {f"{name}_num_heads": recipe.num_heads, f"{name}_num_layers": recipe.num_layers}
        config = layout | {"training": about, "head_accuracies": accuracy}
        (folder / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")


@torch.inference_mode()
def head_accuracies(
    heads: Heads, model: PreTrainedModel, batches: Batches, num_heads: int, num_samples: int = 48
) -> list[list[list[float]]]:
    """For Medusa and for Hydra [head][rank]: how often the token of that rank is right, over all positions in answers,
    Hydra's heads given the true tokens before; on samples about subjects of the training split that training has not
    drawn.
    """
    rng = random.Random(1_000_007)
    hits = torch.zeros(2, num_heads, NUM_RANKS)
    total = 0
    for _ in range(num_samples):
        ids, weights = (torch.tensor(part)[None] for part in batches.encode(world.training_sample(rng, 1.0, 1, 1.0)))
        positions, ahead = scored(ids, weights, num_heads)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = heads(hidden, model.model.embed_tokens(ahead[:, :-1]), positions)
        for method, part in enumerate(logits):
            best = part.topk(NUM_RANKS).indices  # (h, m, ranks)
            hits[method] += (best == ahead[:, 1:].T[..., None]).sum(1)
        total += len(positions)
    return [[[round(x, 4) for x in head] for head in method] for method in (hits / total).tolist()]
