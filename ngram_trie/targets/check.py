"""Whether two targets compute the same: a fast answer must not be a wrong one."""

from __future__ import annotations

import numpy as np
import torch

from ngram_trie.targets.model import TargetModel
from ngram_trie.tree import DraftTree

#: Largest relative error of logits that rounding explains, over the layers of a large model.
MOST_APART = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}


def binary_tree(num_draft: int, rng: np.random.Generator, vocab_size: int) -> DraftTree:
    """A full binary tree of random tokens: something to verify."""
    nodes = np.arange(num_draft + 1)
    return DraftTree(rng.integers(vocab_size, size=len(nodes)), np.where(nodes > 0, (nodes - 1) // 2, -1))


def differences(ours: TargetModel, theirs: TargetModel, length: int, nodes: int) -> dict[str, float]:
    """How far two targets are from each other on one random prompt and tree: the relative error of a prefill's and a
    tree's logits (a norm over a norm), and the share of equal choices.
    """
    rng, vocab_size = np.random.default_rng(1), theirs.model.config.vocab_size
    prompt, tree = rng.integers(5, vocab_size, length), binary_tree(nodes - 1, rng, vocab_size)
    found: dict[str, float] = {}
    logits, choices = [], []
    for target in (ours, theirs):
        target.prefill(prompt)
        first = target.last.logits.double().cpu()
        choices.append(target.verify(tree))
        logits.append((first, target.last.logits.double().cpu()))
    for name, mine, reference in zip(("prefill", "tree"), *logits, strict=True):
        found[f"{name}_logits"] = float((mine - reference).norm() / reference.norm())
    return found | {"equal_choices": float((choices[0] == choices[1]).mean())}


def check(target: TargetModel, backend: str) -> None:
    """Compare a prompt and a tree with the stock modules: a fast answer must not be a wrong one.

    Args:
        backend: what `engine.backend` calls the target.

    Raises:
        ValueError: the logits are further apart than rounding takes them.
    """
    length, nodes = min(64, target.context_limit // 2), min(8, target.max_draft + 1)
    found = differences(target, TargetModel(target.model, nodes, 2 * length), length, nodes)
    apart = float(np.max([found["prefill_logits"], found["tree_logits"]]))
    if not apart <= MOST_APART[target.model.dtype]:  # neither is NaN
        raise ValueError(
            f"engine.backend={backend}: its logits are {apart:.2g} from the stock modules' on {target.device}, "
            "relative; use engine.backend=stock"
        )
