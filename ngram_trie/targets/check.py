"""Whether two targets compute the same: a fast answer must not be a wrong one."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import PreTrainedModel

from ngram_trie.targets.internals import cache_in, last_logits_alone, lengths_in, with_cache
from ngram_trie.targets.model import TargetModel, layer_windows
from ngram_trie.targets.state import State, autocast_dtype
from ngram_trie.tree import DraftTree, IntArray

#: Largest relative error of logits that rounding explains, over the layers of a large model.
MOST_APART = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
#: Tokens of the prompt by which a target is compared with the model's own steps, behind the smallest window if there is
#: one; and the steps.
PROBE, STEPS = 16, 5


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


#: Of each model the state in which it was compared with its own plain steps, and which kinds of targets agreed with
#: them, behind a prompt of which length.
_AGREED: WeakKeyDictionary[PreTrainedModel, tuple[State, dict[type[TargetModel], int]]] = WeakKeyDictionary()


def disagreement(target: TargetModel, state: State | None = None) -> str | None:
    """Compare a target with the model's own plain steps, once for a model in a `state`: a prompt beyond the smallest
    window, a tree whose accepted path has gaps, and a step behind it. A model may mask by slots, read fields of its
    config that others have no use for, keep no cache, or make rows of a step depend on each other: its drafts would
    change answers, and nothing else shows it.

    Returns:
        What differs, in one line; None if nothing does.
    """
    windows = [window for window in layer_windows(target.model.config).values() if window]
    room = target.context_limit - STEPS - 1
    length = min(max(PROBE, min(windows, default=0) + STEPS), room)
    known = _AGREED.get(target.model)
    agreed = known[1] if known and known[0] == state else {}
    is_known = agreed.get(type(target), 0) >= (length if windows else 1)
    if length < 1 or target.max_draft < 4 or is_known:
        return None
    if found := _compared(target, length):
        return found
    if state is not None:
        _AGREED[target.model] = state, {**agreed, type(target): length}
    return None


def plain_steps(model: PreTrainedModel, ids: torch.Tensor) -> list[torch.Tensor] | None:
    """Logits (V,) behind the prompt `ids` (1, l) and each of the likeliest tokens that follow, STEPS in all, as the
    model gives them by itself, one token at a time; None where it does not keep what it has read.
    """
    output = model(input_ids=ids, use_cache=True, **last_logits_alone(model))
    found = [output.logits[0, -1]]
    for step in range(1, STEPS):
        cache = cache_in(output)
        if cache is None or ids.shape[1] + step - 1 not in lengths_in(cache):
            return None
        output = model(input_ids=found[-1].argmax()[None, None], **with_cache(model, cache))
        found.append(output.logits[0, -1])
    return found


@torch.inference_mode()
def _compared(target: TargetModel, length: int) -> str | None:
    model = target.model
    size = model.get_input_embeddings().num_embeddings
    prompt: IntArray = np.random.default_rng(1).integers(min(5, size - 1), size, length)
    ids = torch.from_numpy(prompt)[None].to(model.device)
    steps = plain_steps(model, ids)
    if steps is None:
        return "it keeps no cache of keys and values"
    path = [int(logits.argmax()) for logits in steps]
    others = [(token + 1) % size for token in path]
    # the path is nodes 0, 2 and 4; beside each of them stands another token
    tree = DraftTree(np.array([path[0], others[1], path[1], others[2], path[2]]), np.array([-1, 0, 0, 2, 2]))
    target.prefill(prompt)
    rows = [target.last.logits[-1:].clone()]
    target.verify(tree)
    rows.append(target.last.logits[[0, 2, 4]].clone())
    target.commit(length, [0, 2, 4])
    target.verify(DraftTree.root_only(path[3]))
    rows.append(target.last.logits[-1:].clone())
    target.forget()
    ours, theirs = torch.cat(rows).double().cpu(), torch.stack(steps).double().cpu()
    errors = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    if bool((errors <= MOST_APART.get(autocast_dtype(model.device) or model.dtype, 1e-3)).all()):  # none is NaN
        return None
    where = ("behind the prompt", *["in a draft tree"] * 3, "in the step behind an accepted draft")
    return f"its logits {where[int(errors.argmax())]} are {float(errors.max()):.2g} from its own plain steps', relative"
