"""Texts with repetitions, and how a tree of drafts reads."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def drafted(drafter: Drafter, prompt: list[int], output: list[int] | None = None, budget: int = 99) -> DraftTree:
    """The draft behind a prompt and the tokens of an answer, which come one by one."""
    drafter.start(Prompt(np.array(prompt, np.int64)))
    for token in output or []:
        drafter.observe([token])
    tree = drafter.propose(budget)
    assert tree.tokens[0] == [*prompt, *(output or [])][-1]
    return tree


def chain(drafter: Drafter, prompt: list[int], output: list[int] | None = None, budget: int = 99) -> list[int]:
    """The tokens of such a draft that has no branches."""
    tree = drafted(drafter, prompt, output, budget)
    assert tree.parents.tolist() == list(range(-1, tree.num_draft))
    return tree.tokens[1:].tolist()


def paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """The tokens from the root to each node, the root left out, in the order of the nodes."""
    return [tuple(tree.tokens[tree.path_to(node)[1:]].tolist()) for node in range(1, len(tree))]


def ranks(parents: np.ndarray, ranks: np.ndarray) -> list[tuple[int, ...]]:
    """The ranks from the root to each node of a template."""
    found: list[tuple[int, ...]] = [()]
    for parent, rank in zip(parents[1:], ranks[1:], strict=True):
        found.append((*found[parent], int(rank)))
    return found[1:]


def by_path(tree: DraftTree, probs: list[float]) -> dict[tuple[int, ...], float]:
    paths = [tuple(tree.tokens[tree.path_to(node)[1:]].tolist()) for node in range(len(tree))]
    assert len(set(paths)) == len(paths)
    return dict(zip(paths, probs, strict=True))


def next_token(
    text: list[int], path: list[int], escape: float = 1, max_order: int = 8, max_occurrences: int = 256
) -> dict[int, Fraction]:
    """The module's formula, counted by brute force: what follows `text` and then `path`."""
    context = text + path
    occurrences = [at for at in range(len(text) - 1) if text[at] == context[-1]][-max_occurrences:]
    prob = {token: Fraction(count, len(text) + len(set(text))) for token, count in Counter(text).items()}
    for order in range(1, max_order + 1):
        suffix = context[len(context) - order :]
        agree = [at for at in occurrences if at >= order - 1 and text[at - order + 1 : at + 1] == suffix]
        counts = Counter(text[at + 1] for at in agree)
        if not counts or order > len(context):
            break
        escaped = Fraction(escape) * len(counts)
        prob = {t: (counts[t] + escaped * p) / (len(agree) + escaped) for t, p in prob.items()}
    return prob
