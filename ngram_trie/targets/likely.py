"""The likeliest tokens of many distributions, on a CPU, where a library's top-k takes as long as a tenth of a step."""

from __future__ import annotations

import numpy as np
import torch

from ngram_trie.drafter import Likely
from ngram_trie.tree import IntArray, kernel

#: Of so many logits the largest is found first, which is fast: few blocks hold one of the k largest of all.
BLOCK = 128


@kernel
def _insert(value: float, token: int, found: int, values: np.ndarray, tokens: np.ndarray) -> int:
    """Put a logit among the `found` largest ones, the largest first, if it is one; returns how many they are now."""
    if found == len(values) and value <= values[-1]:
        return found
    at = min(found, len(values) - 1)
    while at > 0 and values[at - 1] < value:
        values[at], tokens[at] = values[at - 1], tokens[at - 1]
        at -= 1
    values[at], tokens[at] = value, token
    return min(found + 1, len(values))


@kernel
def _largest(logits: np.ndarray, peaks: np.ndarray, values: np.ndarray, tokens: np.ndarray) -> None:
    """Write the k largest logits of each row and where they are; `peaks` are the largest of each whole block."""
    for row in range(len(logits)):
        found, blocks = 0, peaks.shape[1]
        for block in range(blocks):
            if found == values.shape[1] and peaks[row, block] <= values[row, found - 1]:
                continue
            for token in range(block * BLOCK, (block + 1) * BLOCK):
                found = _insert(logits[row, token], token, found, values[row], tokens[row])
        for token in range(blocks * BLOCK, logits.shape[1]):
            found = _insert(logits[row, token], token, found, values[row], tokens[row])


def likely_rows(places: IntArray, logits: torch.Tensor, k: int) -> Likely:
    """The k likeliest tokens of the rows of `logits` (r, V), of equal ones the lowest token first, with probabilities.

    They are found where the logits are, so that on a GPU only they come over.
    """
    if logits.device.type == "cpu":
        rows = logits.float().numpy()
        size = len(rows), min(k, rows.shape[1])
        values, tokens = np.empty(size, np.float32), np.empty(size, np.int64)
        blocks = rows.shape[1] // BLOCK
        _largest(rows, rows[:, : blocks * BLOCK].reshape(len(rows), blocks, BLOCK).max(-1), values, tokens)
        largest, found = torch.from_numpy(values), tokens
    else:
        largest, indices = logits.topk(min(k, logits.shape[-1]), dim=-1)
        found = indices.cpu().numpy()
    probs = (largest.float() - logits.float().logsumexp(-1, keepdim=True)).exp()
    return Likely(places, found, probs.double().cpu().numpy())
