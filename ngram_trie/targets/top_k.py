"""The likeliest tokens of many distributions, on a CPU, where a library's top-k takes as long as a tenth of a step."""

from __future__ import annotations

import numpy as np
import torch

from ngram_trie.drafter import TopK
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import IntArray

#: The largest of this many logits is found first, by vector code: few such groups hold one of the k largest of all. A
#: group takes its logits at equal distances, so that the maxima of all groups are one maximum of rows.
GROUP = 128


@kernel
def _insert(value: float, token: int, found: int, values: np.ndarray, tokens: np.ndarray) -> int:
    """Put a logit among the `found` largest ones, the largest first, of equals the lowest token, if it is one of them;
    returns how many they are now.
    """
    at = found
    while at > 0 and (values[at - 1] < value or (values[at - 1] == value and tokens[at - 1] > token)):
        if at < len(values):
            values[at], tokens[at] = values[at - 1], tokens[at - 1]
        at -= 1
    if at < len(values):
        values[at], tokens[at] = value, token
    return min(found + 1, len(values))


@compiled(_nrt=False)
def _likeliest(
    logits: np.ndarray, peaks: np.ndarray, sums: np.ndarray, least: float,
    values: np.ndarray, tokens: np.ndarray, probs: np.ndarray,
) -> None:  # fmt: skip
    """Write the k largest logits of each row, where they are and how likely, as far as they are as likely as `least`;
    `peaks` are the largest of each group, `sums` of `_log_sum_exp`.
    """
    num_groups = peaks.shape[1]
    for row in range(len(logits)):
        found, floor = 0, sums[row] + np.log(least)
        for group in range(num_groups):
            if peaks[row, group] >= floor and (found < values.shape[1] or peaks[row, group] >= values[row, found - 1]):
                for token in range(group, num_groups * GROUP, num_groups):
                    if logits[row, token] >= floor:
                        found = _insert(logits[row, token], token, found, values[row], tokens[row])
        for token in range(num_groups * GROUP, logits.shape[1]):
            if logits[row, token] >= floor:
                found = _insert(logits[row, token], token, found, values[row], tokens[row])
        for rank in range(values.shape[1]):
            probs[row, rank] = np.exp(values[row, rank] - sums[row]) if rank < found else 0.0
            tokens[row, rank] = tokens[row, rank] if rank < found else 0


def peaks_of(rows: np.ndarray) -> np.ndarray:
    """(r, g) the largest logit of each group of the rows (r, V)."""
    groups = rows.shape[1] // GROUP
    return rows[:, : groups * GROUP].reshape(len(rows), GROUP, groups).max(1)


@compiled(_nrt=False)
def _argmax(logits: np.ndarray, peaks: np.ndarray, chosen: np.ndarray) -> None:
    """Write where the largest logit of each row is, the lowest of equals; -1 if it is not finite."""
    num_groups = peaks.shape[1]
    for row in range(len(logits)):
        largest, token = -np.inf, -1
        for group in range(num_groups):
            largest = max(largest, peaks[row, group])
            if np.isnan(peaks[row, group]):
                largest = np.inf
        for at in range(num_groups * GROUP, logits.shape[1]):
            largest = max(largest, logits[row, at])
            if np.isnan(logits[row, at]):
                largest = np.inf
        if np.isfinite(largest):
            token = logits.shape[1]
            for group in range(num_groups):
                if peaks[row, group] == largest:
                    at = group
                    while logits[row, at] != largest:
                        at += num_groups
                    token = min(token, at)
            for at in range(num_groups * GROUP, token):
                if logits[row, at] == largest:
                    token = at
                    break
        chosen[row] = token


def greedy_rows(rows: np.ndarray, peaks: np.ndarray) -> IntArray:
    """As `ngram_trie.targets.model.greedy`, on a CPU, by the largest logits of the groups."""
    chosen = np.empty(len(rows), np.int64)
    _argmax(rows, peaks, chosen)
    return chosen


@compiled(fastmath=True)
def _log_sum_exp(logits: np.ndarray, peaks: np.ndarray) -> np.ndarray:
    """Of each row, of which the largest of each group are known. In one pass without calls, which the compiler makes
    vector code of: 2^y is its integer part, put into the exponent of a float, times a polynomial in the rest, to 4e-5.
    """
    sums = np.empty(len(logits), np.float32)
    for row in range(len(logits)):
        largest, total = logits[row, -1], np.float32(0)
        for group in range(peaks.shape[1]):
            largest = max(largest, peaks[row, group])
        for at in range(peaks.shape[1] * GROUP, logits.shape[1]):
            largest = max(largest, logits[row, at])
        for at in range(logits.shape[1]):
            power = max((logits[row, at] - largest) * np.float32(1.44269504), np.float32(-100))
            whole = np.floor(power)
            rest = power - whole
            part = np.float32(0.0555041) + rest * np.float32(0.0111222)
            part = np.float32(1) + rest * (np.float32(0.6931472) + rest * (np.float32(0.2402265) + rest * part))
            bits = (np.int32(whole) + np.int32(127)) << np.int32(23)
            total += part * np.int32(bits).view(np.float32)
        sums[row] = largest + np.log(total)
    return sums


def top_k_rows(
    places: IntArray, logits: torch.Tensor, k: int, peaks: np.ndarray | None = None, least: float = 0.0
) -> TopK:
    """The k likeliest tokens of the rows of `logits` (r, V) with probabilities; on a CPU the lowest of equals first.

    They are found where the logits are, so that on a GPU only they come over. `peaks` (r, g) are `peaks_of` the logits.
    Tokens less likely than `least` need not be found: what stands in their place has probability 0.
    """
    if logits.device.type == "cpu":
        rows = logits.float().numpy()
        peaks = peaks_of(rows) if peaks is None else peaks
        sums = _log_sum_exp(rows, peaks)
        size = len(rows), min(k, rows.shape[1])
        values, tokens, probs = np.empty(size, np.float32), np.empty(size, np.int64), np.empty(size)
        _likeliest(rows, peaks, sums, least, values, tokens, probs)
        return TopK(places, tokens, probs)
    likeliest, shares = top_k_on_device(logits, k)
    return TopK(places, likeliest.cpu().numpy(), shares.cpu().double().numpy())


def top_k_on_device(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k likeliest tokens of the rows of `logits` (r, V) and their probabilities, (r, k) each, on their device."""
    largest, tokens = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return tokens, (largest.float() - logits.float().logsumexp(-1, keepdim=True)).exp()
