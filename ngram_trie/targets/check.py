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
    """How far two targets are from each other on one random prompt, a tree, and a step behind a path with gaps: the
    relative error of their logits (a norm over a norm), and the share of equal choices in the tree.
    """
    rng, vocab_size = np.random.default_rng(1), theirs.model.config.vocab_size
    prompt, tree = rng.integers(min(5, vocab_size - 1), vocab_size, length), binary_tree(nodes - 1, rng, vocab_size)
    found: dict[str, float] = {}
    logits, choices = [], []
    for target in (ours, theirs):
        target.prefill(prompt)
        first = target.last.logits.double().cpu()
        choices.append(target.verify(tree))
        second = target.last.logits.double().cpu()
        target.commit(length, tree.path_to(nodes - 1))
        target.verify(DraftTree.root_only(int(tree.tokens[0])))
        logits.append((first, second, target.last.logits.double().cpu()))
    for name, mine, reference in zip(("prefill", "tree", "step"), *logits, strict=True):
        found[f"{name}_logits"] = float((mine - reference).norm() / reference.norm())
    return found | {"equal_choices": float((choices[0] == choices[1]).mean())}


def apart(target: TargetModel) -> str | None:
    """Compare a prompt, a tree and a step with the stock modules; says so where logits are further apart than rounding
    takes them. All that is compiled for a target is compiled by this.
    """
    half = max(1, target.context_limit // 2)
    length, nodes = min(64, half), min(8, half, target.max_draft + 1)
    found = differences(target, TargetModel(target.model, nodes, 2 * length), length, nodes)
    most = float(np.max([found["prefill_logits"], found["tree_logits"], found["step_logits"]]))
    if most <= MOST_APART[target.model.dtype]:  # none is NaN
        return None
    return f"its logits are {most:.2g} from the stock modules' on {target.device}, relative"


def check(target: TargetModel, backend: str) -> None:
    """Raises:
    ValueError: `target`, which `engine.backend` calls so, is `apart` from the stock modules.
    """
    if said := apart(target):
        raise ValueError(f"engine.backend={backend}: {said}; use engine.backend=stock")
