"""Token Recycling (Luo et al. 2024, arXiv 2408.08696): the runners-up of earlier forwards, kept for every token, fill a
static tree.

Shapes: k = successors kept for a token, m = nodes with the root.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ngram_trie.drafter import Traits, check_int
from ngram_trie.memory import KeepingDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, FloatArray, IntArray, rank_probs

#: The release's template "2.2.2" (`tree_template_.py`): level by level, how many of its best successors each node gets;
#: nodes that are not listed get none. 80 nodes, in levels of 8, 21, 25, 15, 8 and 3.
_CHILDREN = (
    (8,),
    (8, 4, 3, 2, 1, 1, 1, 1),
    (8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1),
    (5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1),
    (3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1),
    (2, 0, 0, 1),
)
TEMPLATE_NODES = 80
TEMPLATE_K = 8


@cache
def template(num_draft: int = TEMPLATE_NODES, k: int = TEMPLATE_K) -> tuple[IntArray, IntArray]:
    """The tree's shape, breadth first: (m,) parents, -1 for the root, and (m,) ranks, the how-manieth best successor of
    its parent a node is, counted from 0.

    Fewer than 80 nodes are those with the most descendants in the published template, which is where it expects to go
    on; it names no order of its own. Successors beyond `k` and what hangs below them are left out.
    """
    parents, ranks, level = [-1], [0], [0]
    for counts in _CHILDREN:
        below = []
        for node, count in zip(level, counts, strict=False):
            for rank in range(count):
                below.append(len(parents))
                parents.append(node)
                ranks.append(rank)
        level = below
    sizes = np.ones(len(parents), np.int64)  # of the subtrees
    for node in range(len(parents) - 1, 0, -1):
        sizes[parents[node]] += sizes[node]
    kept = [0]
    # No node has more descendants than its parent, so parents come first; of equals, the one nearer to the root.
    for node in np.argsort(-sizes, kind="stable")[1:].tolist():
        if len(kept) <= num_draft and ranks[node] < k and parents[node] in kept:
            kept.append(node)
    kept.sort()
    index = {node: place for place, node in enumerate(kept)}
    return (
        np.array([index.get(parents[node], -1) for node in kept], np.int64),
        np.array([ranks[node] for node in kept], np.int64),
    )


@cache
def template_probs(num_draft: int = TEMPLATE_NODES, k: int = TEMPLATE_K) -> FloatArray:
    """(m,) path probabilities of the nodes of `template`, by their ranks alone (`rank_probs`): the matrix keeps no
    probabilities, and the template's shape would tell few nodes apart, as most have no descendants.
    """
    parents, ranks = template(num_draft, k)
    probs = rank_probs(ranks)
    probs[0] = 1.0
    for node in range(1, len(probs)):
        probs[node] *= probs[parents[node]]
    return probs


class TokenRecycling(KeepingDrafter):
    """Token Recycling: a matrix of the k likeliest successors that every token had when it was last seen, searched
    breadth first from the text's last token in a fixed tree (section 3 of the paper; Luowaterbi/TokenRecycling).

    After each forward the row of every verified token, accepted or not, becomes the top k of its logits. Where a token
    stands at several nodes the last of them counts (upstream leaves it to the device). The prefill gives the row of the
    prompt's last token, which upstream gets from its first step; neither learns from the rest of the prompt. Rows begin
    as zeros, so an unknown token is followed by k times token 0, and that is drafted, here as upstream.

    Upstream keeps the matrix from request to request; here that is asked for by `keep_between_prompts`.

    Args:
        num_draft: most nodes, at most the template's 80; `propose` takes its budget where that is smaller. See
            `template` for which are left out.
        k: successors kept for a token, at most the 8 that the template uses.
        keep_between_prompts: keep the matrix from one prompt to the next. The drafter's state is then "warm".
    """

    traits = Traits(scores_nodes=True, reads="top-k tokens")

    def __init__(
        self, *, num_draft: int = TEMPLATE_NODES, k: int = TEMPLATE_K, keep_between_prompts: bool = False
    ) -> None:
        check_int("num_draft", num_draft, 1, TEMPLATE_NODES)
        check_int("k", k, 1, TEMPLATE_K)
        self.num_draft, self.k = num_draft, k
        self.traits = replace(self.traits, reads_top_k=k)
        super().__init__(keep_between_prompts)

    def forget(self) -> None:
        self._matrix: dict[int, list[int]] = {}  # rows that are not all zeros

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The template's most; beyond, it has no nodes to give."""
        return {"num_draft": min(num_nodes, TEMPLATE_NODES)}

    def bind(self, target: Any) -> None:
        if target.model and (size := target.model.get_input_embeddings().num_embeddings) < self.k:
            raise ValueError(f"k={self.k}: must be at most {size}, the size of the model's vocabulary")
        super().bind(target)

    def propose(self, budget: int) -> DraftTree:
        self.learn()
        size = min(self.num_draft, budget), self.k
        parents, ranks = template(*size)
        tokens, unknown = [self.root], [0] * self.k
        for parent, rank in zip(parents[1:].tolist(), ranks[1:].tolist(), strict=True):
            tokens.append(self._matrix.get(tokens[parent], unknown)[rank])
        return DraftTree(np.array(tokens, np.int64), parents, probs=template_probs(*size))

    def learn(self) -> None:
        """Take over what the last forward said; `propose` does so first."""
        likely = self.target.top_k(self.k)
        self._put(self.target.last.tree.tokens[likely.places], likely.tokens)

    def learn_prompt(self, prompt: Prompt) -> None:
        """Take over what the prefill said behind every token of the prompt, of the last place of each."""
        likely = self.target.top_k_in_prompt(prompt.last_places(), self.k)
        self._put(prompt.ids[likely.places], likely.tokens)

    def _put(self, tokens: IntArray, successors: IntArray) -> None:
        self._matrix |= zip(tokens.tolist(), successors.tolist(), strict=True)
