"""Fine-tune the tiny model for SPACE (a quarter of an hour on two CPU cores).

Semi-autoregressive fine-tuning: beside the next token, the model learns to guess the tokens after it from mask tokens.
Groups of masks stand behind the text; each sees the text up to its place, as in decoding, so one row trains many.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from ngram_trie.data import bundled
from ngram_trie.store.files import fingerprint
from ngram_trie.targets.load import load_model
from scripts.studies.tiny import training
from scripts.studies.tiny.train_model import fine_tuning_batches


@dataclass(frozen=True, kw_only=True)
class SpaceRecipe(training.Recipe):
    """Everything that decides the weights. Lengths in tokens."""

    seed: int = 22
    num_masks: int = 5
    num_steps: int = 450
    warmup_steps: int = 20
    rows: int = 8
    row_length: int = 800
    groups: int = 44  # of masks, in each row
    muon_lr: float = 0.005
    adam_lr: float = 3e-4


def with_masks(
    ids: torch.Tensor, places: torch.Tensor, num_masks: int, mask_id: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows with groups of masks behind their text.

    Args:
        ids: (b, l) text.
        places: (b, g) the last token that each group sees.

    Returns:
        Tokens (b, l + g k), positions of the same shape, and what may be attended to, (b, 1, l + g k, l + g k).
    """
    rows, length = ids.shape
    size = places.shape[1] * num_masks
    group = torch.arange(size) // num_masks
    step = torch.arange(size) % num_masks
    behind = places[:, group]  # (b, g k): the text that each mask sees ends here
    tokens = torch.cat([ids, torch.full((rows, size), mask_id)], dim=1)
    positions = torch.cat([torch.arange(length).expand(rows, -1), behind + 1 + step], dim=1)
    allowed = torch.zeros(rows, 1, length + size, length + size, dtype=torch.bool)
    allowed[:, 0, :length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
    allowed[:, 0, length:, :length] = torch.arange(length) <= behind[..., None]
    allowed[:, 0, length:, length:] = (group[:, None] == group) & (step[:, None] >= step)
    return tokens, positions, allowed


def train(recipe: SpaceRecipe, folder: Path) -> None:
    """Fine-tune the model and save it to `folder`."""
    torch.manual_seed(recipe.seed)
    model: PreTrainedModel = load_model(str(bundled.MODEL), device="cpu")
    mask_id = model.config.vocab_size
    model.resize_token_embeddings(mask_id + 1)
    batches = fine_tuning_batches(recipe.seed, recipe.rows * recipe.row_length, recipe.row_length)
    num_next = recipe.rows * recipe.row_length // 4
    length, width = recipe.row_length, recipe.row_length + recipe.groups * recipe.num_masks

    def loss_of(
        tokens: torch.Tensor, positions: torch.Tensor, allowed: torch.Tensor, scored: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """(m,) cross entropy in nats at the flat positions `scored`: next tokens first, masks behind them."""
        with torch.autocast("cpu", torch.bfloat16):
            hidden = model.model(
                input_ids=tokens, position_ids=positions, attention_mask=allowed, use_cache=False
            ).last_hidden_state
            logits = model.lm_head(hidden.flatten(0, 1)[scored])
        return nn.functional.cross_entropy(logits.float(), labels, reduction="none")

    loss = training.compiled(loss_of)

    def losses_at(step: int) -> dict[str, torch.Tensor]:
        ids, weights = batches.rows(step)
        generator = recipe.generator(step)
        # A group stands where the next token and those that its masks guess all belong to one answer.
        answer = (weights == 1).unfold(1, recipe.num_masks + 1, 1).all(-1)[:, 1:]
        noise = torch.rand(answer.shape, generator=generator) + answer
        places = noise.topk(recipe.groups, dim=1).indices.sort(dim=1).values
        real = answer.gather(1, places)[..., None].expand(-1, -1, recipe.num_masks).flatten(1)
        tokens, positions, allowed = with_masks(ids, places, recipe.num_masks, mask_id)
        guessed = ids.gather(1, positions[:, length:] + 1)
        # As many next tokens in every step, so that shapes stay the same; those of the prompt weigh nothing.
        next_weight = (weights[:, 1:] == 1).float()
        noise = torch.rand(next_weight.shape, generator=generator)
        drawn = (next_weight + noise).flatten().topk(num_next).indices
        at_row, at = drawn // (length - 1), drawn % (length - 1)
        masks = torch.arange(recipe.rows)[:, None] * width + torch.arange(length, width)
        scored = torch.cat([at_row * width + at, masks.flatten()])
        labels = torch.cat([ids[at_row, at + 1], guessed.flatten()])
        losses = loss(tokens, positions, allowed, scored, labels)
        weight = next_weight.flatten()[drawn]
        return {
            "next": (losses[:num_next] * weight).sum() / weight.sum(),
            "masks": (losses[num_next:] * real.flatten()).sum() / real.sum(),
        }

    about = training.train(model, losses_at, recipe, folder, mask_id + 1)
    training.save(model, about | {"started_from": fingerprint(str(bundled.MODEL)), "mask_id": mask_id}, folder)
