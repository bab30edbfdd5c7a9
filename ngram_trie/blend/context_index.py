"""A blend of all orders: the next token from every earlier place that agrees with the end of the text, however briefly.

The orders of the text so far, and of the path that was drafted behind it, are those of `ngram_trie.blend.ppm`. They
fall back to what follows the context elsewhere, where there is an elsewhere (`ngram_trie.blend.background`), and that
to order 0, how frequent tokens are in the text and elsewhere: with n_0(t) of the text's N_0 places, of u_0 different
tokens, and U(t), which is 0 where there is no elsewhere,

    P_0(t) = (n_0(t) + u_0 U(t)) / (N_0 + u_0).

A draft takes the nodes of the largest products of P along their paths, so it expects as many accepted tokens as these
sum to. A token that follows no occurrence is drafted only if it is among the `num_frequent` most frequent ones of the
text, or among those elsewhere.

The text and its chains of occurrences are in `ngram_trie.blend.occurrences`, counting and drafting in
`ngram_trie.blend.prediction`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_trie.blend import occurrences, prediction
from ngram_trie.blend.background import NOTHING, Background, most_successors
from ngram_trie.blend.occurrences import CONTEXT, END, NUM_LIKELY, NUM_TOKENS, SEEN_BY, SIZE, Index, Part
from ngram_trie.blend.ppm import FloatArray, Numbers
from ngram_trie.blend.prediction import NO_CHAIN, Nodes, Settings
from ngram_trie.store.hashing import empty_table, rehash
from ngram_trie.tree import DraftTree, Fields, IntArray


class BlendIndex:
    """A text that grows, and what the blend of all orders expects behind it; see the module.

    Args:
        text: (l,) token ids, each in [0, 2**31).
        escape: b, how readily a shorter context is asked as well.
        max_order: agreement beyond this many tokens makes no difference.
        num_frequent: how many of the most frequent tokens are drafted where they follow no occurrence.
        max_occurrences: how many occurrences of a token are looked at, the latest ones.
        top_k: k, at most this many tokens of a distribution count; 0 for an index that takes none.
        least: and only those at least so likely.
        max_soft, max_rejected: how many distributions are looked at where the last token alone agrees, the latest ones:
            of the text, of rejected drafts. Those where more agrees are not counted; 0 looks at none at all.
        hard, soft: the credit that tokens that followed, and distributions, have at first; an occurrence counts one in
            all, divided by the credit of either at its length, which `credit` adds to.
        background: what to fall back to; it must not change while the index is in use.
    """

    def __init__(
        self,
        text: Sequence[int] | IntArray = (),
        *,
        escape: float = 3.5,
        max_order: int = 8,
        num_frequent: int = 64,
        max_occurrences: int = 128,
        top_k: int = 0,
        least: float = 0.01,
        max_soft: int = 16,
        max_rejected: int = 16,
        hard: float = 1.0,
        soft: float = 0.0,
        background: Background = NOTHING,
    ) -> None:
        self._credits = np.repeat([[hard], [soft]], max_order + 1, axis=1).astype(float)
        shares = self._credits / (hard + soft)
        self._settings = Settings(escape, max_order, max_occurrences, max_soft, max_rejected, top_k, shares)
        self._least = least
        self._fields: Fields = tuple(background)
        self._more = most_successors(background)
        nothing = np.empty(0, np.int32)
        self._index = Index(
            text=nothing,
            back=nothing,
            before=nothing,
            follower=nothing,
            soft=nothing,
            likely=nothing,
            probs=np.empty(0, np.float32),
            ids=np.empty(0, np.int64),
            slots=np.zeros(1, np.int32),
            tokens=np.empty((8, 0), np.int32),
            frequent=np.empty(num_frequent, np.int32),
            common=nothing,
            sizes=np.zeros(9, np.int64),
        )
        self._index.sizes[END] = -1
        self._reserve(2 * len(text) + 256, 2 * len(text) + 256 + len(background.common))
        self._index = self._index._replace(common=occurrences.enter_all(background.common, self._index))
        self.extend(text)

    def _reserve(self, size: int, num_tokens: int, top_k: int = 0) -> None:
        """Room for `size` more places, as many more different tokens as said, and `top_k` more entries."""
        old, sizes = self._index, self._index.sizes
        if (needed := sizes[SIZE] + size) > (held := len(old.text)):
            new, columns = max(needed, 2 * held), ("text", "back", "before", "follower", "soft")
            self._index = self._index._replace(**{name: np.resize(getattr(old, name), new) for name in columns})
        if (needed := sizes[NUM_LIKELY] + top_k) > (held := len(old.likely)):
            new = max(needed, 2 * held)
            self._index = self._index._replace(likely=np.resize(old.likely, new), probs=np.resize(old.probs, new))
        if (needed := sizes[NUM_TOKENS] + num_tokens) > (held := len(old.ids)):
            new = max(needed, 2 * held)
            tokens, ids = np.empty((8, new), np.int32), np.resize(old.ids, new)
            tokens[:, :held] = old.tokens
            slots = empty_table(new)
            rehash(ids, sizes[NUM_TOKENS], slots)
            self._index = self._index._replace(ids=ids, tokens=tokens, slots=slots)

    @property
    def last_place(self) -> int:
        """Where the text's last token stands."""
        return int(self._index.sizes[END])

    def credit(self, new_ids: Sequence[int] | IntArray) -> None:
        """Credit what followed and what the model predicted with the (k,) tokens that follow, which `extend` adds then.

        One step of expectation maximization for each token: it gives either at each length of agreement the part that
        this had in the token's probability, 1 in all (less what came from elsewhere).
        """
        ids = np.asarray(new_ids, np.int32)
        self._reserve(0, len(ids))
        self._begin(len(ids))
        last = self._index.text[self.last_place : self.last_place + 1]
        tokens = np.concatenate([last, occurrences.enter_all(ids, self._index)])
        chain = Nodes(tokens, np.arange(-1, len(ids)), np.ones(len(tokens)))
        self._credit_or_draft(tuple(chain))

    def extend(self, new_ids: Sequence[int] | IntArray) -> IntArray:
        """Add the (k,) tokens that follow; returns their places."""
        ids, first = np.asarray(new_ids, np.int64), self._index.sizes[SIZE]
        self._reserve(len(ids), len(ids))
        occurrences.extend(ids, tuple(self._index))
        return np.arange(first, first + len(ids))

    def reject(self, tree: DraftTree, path: Sequence[int], places: IntArray) -> IntArray:
        """Add the nodes of a verified tree that are not in the text; returns the places of all its m nodes.

        Args:
            path, places: the accepted nodes, the root first, and where the text has them.
        """
        self._reserve(len(tree), len(tree))
        found = np.full(len(tree), -1, np.int64)
        found[list(path)] = places
        occurrences.reject(tree.tokens, tree.parents, found, tuple(self._index))
        return found

    def attach(self, places: IntArray, likely: IntArray, probs: FloatArray) -> None:
        """Take what the model said behind the places (m,): its likeliest tokens (m, k), the likeliest first, and their
        probabilities.
        """
        self._reserve(0, likely.size, likely.size + len(likely))
        occurrences.attach(places, likely, probs, self._least, tuple(self._index))

    def part(self, first: int) -> Part:
        """The places from `first` on, and the distributions from that behind it on."""
        index, sizes = self._index, self._index.sizes
        where = slice(first, int(sizes[SIZE]))
        end = int(sizes[NUM_LIKELY])
        start = int(index.soft[where].min(initial=end, where=index.soft[where] >= 0))
        back, soft = index.back[where] - first, index.soft[where] - start
        return Part(
            self._ids(index.text[where]), np.maximum(back, -1).astype(np.int32), self._ids(index.follower[where]),
            np.maximum(soft, -1).astype(np.int32), self._ids(index.likely[start:end]), index.probs[start:end].copy(),
        )  # fmt: skip

    def _ids(self, numbers: Numbers) -> IntArray:
        """Token ids of numbers; -1 stays."""
        return np.where(numbers < 0, -1, self._index.ids[numbers])

    def recall(self, part: Part) -> None:
        """Add places of an earlier text, to an index that has none yet. Its orders are blended below the text's own."""
        kinds = 2 * len(part.ids) + len(part.likely)
        self._reserve(len(part.ids), kinds, len(part.likely))
        occurrences.recall(tuple(part), tuple(self._index))

    def draft(self, num_draft: int) -> DraftTree:
        """The `num_draft` likeliest continuations of the text, which must not be empty; fewer if there are no more.

        Returns:
            The tree, its nodes in order of falling probability: that the text goes on along the path to the node.
        """
        self._begin(num_draft + 1)
        ids, parents, probs = self._credit_or_draft(NO_CHAIN, num_draft)
        return DraftTree(ids, parents, probs=probs)

    def _credit_or_draft(self, chain: Fields, num_draft: int = 0) -> tuple[IntArray, IntArray, FloatArray]:
        index, settings = tuple(self._index), tuple(self._settings)
        return prediction.credit_or_draft(chain, index, self._fields, settings, self._credits, num_draft)

    def _begin(self, num_contexts: int) -> None:
        """Room for the new tokens that this many contexts may bring from elsewhere, and numbers for the contexts."""
        self._reserve(0, self._more * num_contexts)
        if self._index.sizes[CONTEXT] > 2**31 - 2 - 8 * num_contexts:
            self._index.tokens[SEEN_BY] = self._index.sizes[CONTEXT] = 0

    def explain(self, tree: DraftTree) -> FloatArray:
        """(m, 5) what each of SOURCES gives to a node's probability behind its parent; zeros at the root.

        Args:
            tree: what `draft` returned, of the index as it is.
        """
        assert tree.probs is not None
        self._begin(len(tree))
        draft = Nodes(occurrences.enter_all(tree.tokens.astype(np.int32), self._index), tree.parents, tree.probs)
        return prediction.explain(tuple(draft), tuple(self._index), self._fields, tuple(self._settings))
