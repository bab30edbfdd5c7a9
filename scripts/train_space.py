"""Fine-tune the embedded model for SPACE: `make train-space` (a quarter of an hour on two CPU cores).

Semi-autoregressive fine-tuning: beside the next token, the model learns to guess the tokens after it from mask tokens.
Groups of masks stand behind the text; each sees the text up to its place, as in decoding, so one row trains many.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.engines.provenance import cpu_name
from ngram_trie.files import PROJECT, fingerprint
from ngram_trie.targets.load import load_model, load_tokenizer
from scripts.train_embedded import Batches, TrainConfig

MODEL = PROJECT / "data" / "embedded" / "model"


@dataclass(frozen=True)
class SpaceConfig:
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


def train(config: SpaceConfig, output: Path) -> None:
    torch.manual_seed(config.seed)
    output.mkdir(parents=True, exist_ok=True)
    model: PreTrainedModel = load_model(str(MODEL), device="cpu")
    mask_id = model.config.vocab_size
    model.resize_token_embeddings(mask_id + 1)
    text = dataclasses.replace(
        TrainConfig(), seed=config.seed, tokens_per_step=config.rows * config.row_length, row_length=config.row_length,
        short_steps=0, grow_steps=1, copy_steps=1, prompt_steps=0, alike_steps=0,
    )  # fmt: skip
    batches = Batches(text, load_tokenizer(str(MODEL)))
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name or "lm_head" in name]
    optimizers = [
        (torch.optim.Muon(matrices, lr=config.muon_lr, momentum=0.95, weight_decay=0.0), config.muon_lr),
        (torch.optim.AdamW(others, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0), config.adam_lr),
    ]
    num_next = config.rows * config.row_length // 4

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

    compiled = torch.compile(loss_of, dynamic=False)
    started = time.perf_counter()
    log = (output / "training_log.jsonl").open("w")
    for step in range(config.num_steps):
        ids, weights = batches.rows(step)
        length, width = config.row_length, config.row_length + config.groups * config.num_masks
        # A group stands where the next token and those that its masks guess all belong to one answer.
        answer = (weights == 1).unfold(1, config.num_masks + 1, 1).all(-1)[:, 1:]
        noise = torch.rand(answer.shape) + answer
        places = noise.topk(config.groups, dim=1).indices.sort(dim=1).values
        real = answer.gather(1, places)[..., None].expand(-1, -1, config.num_masks).flatten(1)
        tokens, positions, allowed = with_masks(ids, places, config.num_masks, mask_id)
        row = torch.arange(config.rows)[:, None]
        guessed = ids.gather(1, positions[:, length:] + 1)
        # As many next tokens in every step, so that shapes stay the same; those of the prompt weigh nothing.
        next_weight = (weights[:, 1:] == 1).float()
        drawn = (next_weight + torch.rand(next_weight.shape)).flatten().topk(num_next).indices
        at_row, at = drawn // (length - 1), drawn % (length - 1)
        scored = torch.cat([at_row * width + at, (row * width + torch.arange(length, width)).flatten()])
        labels = torch.cat([ids[at_row, at + 1], guessed.flatten()])
        losses = compiled(tokens, positions, allowed, scored, labels)
        loss_next = (losses[:num_next] * next_weight.flatten()[drawn]).sum() / next_weight.flatten()[drawn].sum()
        loss_mask = (losses[num_next:] * real.flatten()).sum() / real.sum()
        (loss_next + loss_mask).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        factor = min(1.0, (step + 1) / config.warmup_steps) * 0.5 * (1 + math.cos(math.pi * step / config.num_steps))
        for optimizer, rate in optimizers:
            optimizer.param_groups[0]["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        if step % 20 == 0:
            entry = {"step": step, "next": round(loss_next.item(), 4), "masks": round(loss_mask.item(), 4)}
            entry["seconds"] = round(time.perf_counter() - started)
            print(json.dumps(entry), file=log, flush=True)
            print(entry, flush=True)
    about = asdict(config) | {
        "seconds": round(time.perf_counter() - started), "device": cpu_name(), "started_from": fingerprint(str(MODEL)),
        "mask_id": mask_id,
    }  # fmt: skip
    model.to(torch.bfloat16).save_pretrained(output)
    (output / "training.json").write_text(json.dumps(about, indent=1) + "\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    default = PROJECT / "results" / "local" / "space"
    parser.add_argument("folder", type=Path, nargs="?", default=default, metavar="FOLDER", help="where it goes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    folder = parse(arguments).folder
    print(f"training into {folder}", flush=True)
    with one_line_errors("nothing was written"):
        train(SpaceConfig(), folder)
    print(f"done. To ship it, copy all but the log from {folder} to data/embedded/space.")


if __name__ == "__main__":
    main()
