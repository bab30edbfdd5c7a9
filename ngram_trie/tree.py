"""The draft tree, which a drafter proposes and a decoding step verifies.

Shapes: m = number of nodes (the root and the drafted tokens).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat, takewhile
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store.compiled import compiled, kernel

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
#: Of a named tuple. Numba takes plain tuples at once, and named ones from Python only after a look at each field.
Fields: TypeAlias = tuple[Any, ...]


@compiled
def _depths(parents: IntArray) -> IntArray:
    depths = np.zeros(len(parents), np.int64)
    for node in range(1, len(parents)):
        depths[node] = depths[parents[node]] + 1
    return depths


@compiled
def _ancestor_mask(parents: IntArray) -> NDArray[np.bool_]:
    size = len(parents)
    mask = np.zeros((size, size), np.bool_)
    for node in range(size):
        for above in range(node):  # assigning rows would take numba ten times as long to compile
            mask[node, above] = mask[parents[node], above]
        mask[node, node] = True
    return mask


@kernel
def grow(tokens: IntArray, parents: IntArray, size: int, parent: int, token: int) -> tuple[int, int]:
    """The child `token` of the node `parent` in a draft of `size` nodes so far, which is added where there is none yet.

    Returns:
        The child, -1 where the arrays have no room for it, and the size with it.
    """
    for node in range(parent + 1, size):
        if parents[node] == parent and tokens[node] == token:
            return node, size
    if size == len(tokens):
        return -1, size
    tokens[size], parents[size] = token, parent
    return size, size + 1


def num_shared(first: Iterable[Any], second: Iterable[Any]) -> int:
    """How many items two texts share from their beginning on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def rank_probs(ranks: IntArray) -> FloatArray:
    """How likely candidates are of which nothing is known but their ranks, counted from 0: one in rank + 2."""
    return np.asarray(1.0 / (ranks + 2.0), np.float64)


class Sources(NamedTuple):
    """Where nodes, or whole paths, come from, for those who look at drafts; the loop does not.

    Attributes:
        names: of the sources, a word each.
        ranks: (m,) of each node its source's place among the names; the root, which nobody drafted, has any.
    """

    names: tuple[str, ...]
    ranks: IntArray


@dataclass(frozen=True)
class DraftTree:
    """Candidate continuations of the text, as a tree of tokens.

    Node 0 is the pending root: the last token that was emitted and has not been through the target model yet. Parents
    precede their children, so every prefix of the node list is a tree of its own. Siblings may repeat a token.

    Attributes:
        tokens: (m,) token id of each node.
        parents: (m,) index of each node's parent; -1 for the root.
        probes: the last N nodes are no candidates: they go through the target for what it says after them
            (Lookahead's window, SPACE's masks) and are never accepted.
        probs: (m,) how likely the drafter holds each node to be accepted: 1 for the root, and a child's at most its
            parent's. Only what they say about each other need be true: an adaptive draft length learns what they are
            worth (`budget.trust`). None of a drafter that does not say. One that counts what followed n places counts
            one place more, not seen yet: what followed a single place is no certainty.
        sources: of a drafter that has several and tells: for each node the one that its probability is mostly owed to.
    """

    tokens: IntArray
    parents: IntArray
    probes: int = 0
    probs: FloatArray | None = None
    sources: Sources | None = None

    def __post_init__(self) -> None:
        nodes = np.arange(len(self.tokens))
        if len(self.tokens) == 0 or len(self.parents) != len(self.tokens):
            raise ValueError(
                f"a draft tree needs a root and a parent for each node, not {len(self.tokens)} tokens and "
                f"{len(self.parents)} parents"
            )
        if not 0 <= self.probes < len(self.tokens):
            raise ValueError(f"{self.probes} probes among {len(self.tokens)} nodes: the root is a candidate")
        if self.parents[0] != -1 or (self.parents[1:] < 0).any() or (self.parents >= nodes).any():
            raise ValueError("parents must precede their children, and only node 0 may be a root")
        if self.probs is not None and len(self.probs) != len(self.tokens):
            raise ValueError(f"{len(self.probs)} probabilities for {len(self.tokens)} nodes")
        if self.sources is not None and len(self.sources.ranks) != len(self.tokens):
            raise ValueError(f"{len(self.sources.ranks)} sources for {len(self.tokens)} nodes")

    @classmethod
    def root_only(cls, root: int) -> DraftTree:
        """The empty draft: verifying it is a plain decoding step."""
        return cls(np.array([root], np.int64), np.array([-1], np.int64))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int] | IntArray, probs: FloatArray | None = None) -> DraftTree:
        """One candidate, token after token; `probs` of the nodes with the root, if known."""
        parents = np.arange(-1, len(tokens), dtype=np.int64)
        ids = np.concatenate([[root], np.asarray(tokens, np.int64)]).astype(np.int64)
        return cls(ids, parents, probs=probs)

    @classmethod
    def copied(cls, root: int, tokens: Sequence[int] | IntArray, matched: int) -> DraftTree:
        """One candidate, copied from behind a match of `matched` tokens, the only evidence that it goes on.

        By the rule of succession a copy that has been right for k tokens is right for one more in k of k + 1 cases, and
        `matched` / (`matched` + d) is the product of that over d tokens. A token that nothing matched has 0.
        """
        steps = np.arange(1, len(tokens) + 1)
        return cls.chain(root, tokens, np.concatenate([[1.0], matched / (matched + steps)]))

    @classmethod
    def from_paths(
        cls,
        root: int,
        paths: Iterable[Sequence[int]],
        probs: Iterable[Sequence[float]] | None = None,
        sources: Sources | None = None,
    ) -> DraftTree:
        """The tree of all `paths` (each without the root), shared prefixes merged, in order of appearance.

        Args:
            probs: of the nodes on each path, none above the one before; a node of several paths has the largest.
            sources: of the paths, one each; a node of several paths has that of the path it has the probability of, the
                first of equals.
        """
        tokens, parents, best, owed = [root], [-1], [1.0], [0]
        child_of: dict[tuple[int, int], int] = {}
        ranks = repeat(0) if sources is None else sources.ranks.tolist()
        for path, scores, rank in zip(paths, repeat(repeat(0.0)) if probs is None else probs, ranks, strict=False):
            node = 0
            for token, prob in zip(path, scores, strict=False):
                if (node, token) not in child_of:
                    child_of[node, token] = len(tokens)
                    tokens.append(token)
                    parents.append(node)
                    best.append(prob)
                    owed.append(rank)
                node = child_of[node, token]
                if prob > best[node]:
                    best[node], owed[node] = prob, rank
        return cls(
            np.array(tokens, np.int64),
            np.array(parents, np.int64),
            probs=None if probs is None else np.array(best),
            sources=None if sources is None else Sources(sources.names, np.array(owed, np.int64)),
        )

    def owed_to(self, name: str) -> DraftTree:
        """The same tree, all of it from one source."""
        return replace(self, sources=Sources((name,), np.zeros(len(self), np.int64)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_draft(self) -> int:
        """Number of drafted nodes, candidates and probes: all but the root."""
        return len(self.tokens) - 1

    @cached_property
    def depths(self) -> IntArray:
        """(m,) distance from the root: `Level(v_i)` of the paper's equation 6."""
        return _depths(self.parents)

    @cached_property
    def ancestor_mask(self) -> NDArray[np.bool_]:
        """(m, m) whether node j is node i itself or an ancestor of it: what node i may attend to in the tree."""
        return _ancestor_mask(self.parents)

    def path_to(self, node: int) -> list[int]:
        """Node indices from the root to `node`, both included."""
        path = [node]
        while self.parents[path[-1]] >= 0:
            path.append(int(self.parents[path[-1]]))
        return path[::-1]

    def pruned(self, max_draft: int, max_depth: int) -> DraftTree:
        """The tree cut to nodes of depth at most `max_depth` and then to its first `max_draft` drafted nodes.

        Probes are cut first, as they stand last.
        """
        if self.num_draft <= max_draft and (self.num_draft <= max_depth or self.depths.max() <= max_depth):
            return self
        return self.part(np.flatnonzero(self.depths <= max_depth)[: max_draft + 1])

    def part(self, kept: IntArray) -> DraftTree:
        """The tree of the nodes `kept`, (k,) increasing, the root and the parent of each among them."""
        parents = kept.searchsorted(self.parents[kept])
        parents[0] = -1
        probes = int((kept >= len(self) - self.probes).sum()) if self.probes else 0
        probs = None if self.probs is None else self.probs[kept]
        sources = None if self.sources is None else Sources(self.sources.names, self.sources.ranks[kept])
        return DraftTree(self.tokens[kept], parents, probes, probs, sources)
