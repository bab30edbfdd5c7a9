"""The tables of a model's own N-grams for N-Grammys: one pass over its vocabulary (section 4.1, appendix B.1).

The unigram's ranking comes from the two embeddings; then the k likeliest successors of every token, and the model's
greedy continuation of each.

Unigram. The text ranks by the distance ||u_x - mean|| in the metric of the input embeddings, the pseudo code of
appendix B.1 by the inner product of the mean with u_x, which is another ranking. Both are stored.

BOS. The pseudo code asks the model for p(. | x) with x alone. A model whose training texts all began with a BOS has
never seen another token at the first place, and attends to it as to nothing else; so the BOS stands before x where the
tokenizer has one and its chat template writes it. On the general model's answers to the odd chat questions the bigram's
10 best give 1.73 tokens a call with it and 1.09 without.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ngram_trie.store.files import content_hash, replacing
from ngram_trie.store.ngram_tables import NgramTables
from ngram_trie.targets.chat import render
from ngram_trie.targets.internals import DynamicCache, with_cache


@torch.inference_mode()
def unigram_rankings(model: PreTrainedModel) -> torch.Tensor:
    """(2, V) all tokens by p(x) ~ exp(-d(x)), the likeliest first; d(x) is ||u_x - m||_V as the text of section 4.1 has
    it, <m, u_x>_V as the pseudo code of appendix B.1 has it, with m the mean of the output embeddings u (`RANKINGS`).

    <u, u'>_V = u' V'V u over the input embeddings V (V, H), so tokens lie close where they lead to similar next tokens.
    """
    inputs = model.get_input_embeddings().weight.float()
    outputs = model.get_output_embeddings().weight.float()
    metric = inputs.T @ inputs / len(inputs)
    centred = outputs - outputs.mean(0)
    squared = ((centred @ metric) * centred).sum(1)
    products = outputs @ metric @ outputs.mean(0)
    return torch.stack([squared.argsort(stable=True), products.argsort(stable=True)])


@torch.inference_mode()
def successors(
    model: PreTrainedModel, tokens: torch.Tensor, k: int, w: int, bos: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(t, k, w) after each of `tokens` (t,): its k likeliest successors, best first, and what the model continues with;
    (t, k) how likely the successors are.

    Args:
        bos: token that stands before each, or None.
    """
    cache = DynamicCache(config=model.config)
    state = with_cache(model, cache)
    if bos is not None:  # read once for all
        model(input_ids=torch.full_like(tokens[:1, None], bos), **state, logits_to_keep=1)
        cache.batch_repeat_interleave(len(tokens))
    logits = model(input_ids=tokens[:, None], **state, logits_to_keep=1).logits[:, -1]
    likeliest = logits.float().softmax(-1).topk(k)
    column = likeliest.indices.flatten()
    columns = [column]
    if w > 1:
        cache.batch_repeat_interleave(k)
    for _ in range(w - 1):
        logits = model(input_ids=column[:, None], **state, logits_to_keep=1).logits
        column = logits[:, -1].argmax(-1)
        columns.append(column)
    return torch.stack(columns, 1).view(len(tokens), k, w), likeliest.values


def build_tables(
    model: PreTrainedModel,
    identity: str,
    k: int,
    w: int,
    bos: int | None = None,
    rows: int = 1024,
    kept: Path | None = None,
) -> NgramTables:
    """The tables of `model`: the model reads 1 + k (w - 1) tokens for each of its vocabulary.

    Args:
        identity: the model's fingerprint.
        k, w, bos: as in `successors`.
        rows: the size of a batch.
        kept: folder in which finished batches are kept, so that an interrupted build goes on; None keeps none.

    Raises:
        ValueError: more successors than there are tokens.
    """
    size = model.config.get_text_config().vocab_size
    if k > size:
        raise ValueError(f"k={k}: the vocabulary has {size} tokens")
    parts, shares = [], []
    step = max(1, rows // k)
    folder = kept / content_hash([identity, k, w, bos, step]) if kept else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    for start in tqdm(range(0, size, step), unit="batch", desc="bigram", disable=None):
        file = folder / f"{start}.npz" if folder else None
        if file and file.exists():
            batch = dict(np.load(file))
        else:
            tokens = torch.arange(start, min(start + step, size), device=model.device)
            continued, likely = successors(model, tokens, k, w, bos)
            batch = {"tokens": continued.cpu().numpy().astype(np.int32), "shares": likely.cpu().numpy()}
            if file:
                with replacing(file) as unfinished, unfinished.open("wb") as content:
                    np.savez(content, **batch)
        parts.append(batch["tokens"])
        shares.append(batch["shares"])
    table = np.concatenate(parts)
    rankings = unigram_rankings(model).cpu().numpy().astype(np.int32)
    return NgramTables(identity, bos is not None, rankings, table[:, :, 0], table[:, :, 1:], np.concatenate(shares))


def leading_bos(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that every prompt of the chat template begins with, if that is the BOS."""
    if not tokenizer.chat_template or tokenizer.bos_token_id is None:
        return None
    text = render(tokenizer, [{"role": "user", "content": "a"}], tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    bos: int = tokenizer.bos_token_id
    return bos if ids[:1] == [bos] else None
