"""The n-gram trie of the paper (Algorithm 1, sections 3.1 and 3.2), and the trie of its released code.

Both are flat numba arrays. `nodes` (capacity, 6) holds one node a row, the root in row 0; `table` is an
open-addressing hash from (parent, token) to the child's row, where 0 means empty, since the root is nobody's child.
Rows are handed out in order of creation and siblings are chained in that order, so "first inserted" is the chain's
order. A child's count never exceeds its parent's: whatever counts a path also counts its prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.store.hashing import empty_table, rehash_pairs, slot_of_pair
from ngram_trie.tree import DraftTree, Fields, FloatArray, IntArray

Ties = Literal["deep", "shallow"]
Rows: TypeAlias = NDArray[np.int32]

TOKEN, PARENT, COUNT, FIRST_CHILD, LAST_CHILD, NEXT_SIBLING = range(6)
NUM_FIELDS = 6


class Trie(NamedTuple):
    """A trie as compiled code reads and writes it; see the module.

    Attributes:
        nodes: (capacity, TOKEN to NEXT_SIBLING).
        table: hash table of children.
        size: (1,) the number of rows in use.
    """

    nodes: Rows
    table: Rows
    size: IntArray


@kernel
def _slot(trie: Trie, node: int, token: int) -> int:
    """Where the table holds the child of `node` by `token`, or would hold it."""
    return slot_of_pair(node, token, trie.table, trie.nodes[1:, PARENT], trie.nodes[1:, TOKEN])


@kernel
def child_of(trie: Trie, node: int, token: int) -> int:
    """The child of `node` by `token`; 0 if there is none."""
    return int(trie.table[_slot(trie, node, token)])


@kernel
def node_of(trie: Trie, path: IntArray) -> int:
    """The node in which this path from the root ends; 0 if the trie does not hold it."""
    node = 0
    for token in path:
        node = child_of(trie, node, token)
        if node == 0:
            break
    return node


@kernel
def add_child(trie: Trie, node: int, token: int, weight: int) -> int:
    """Count `weight` at the child of `node` by `token`, which is inserted where it is missing (equation 4)."""
    nodes = trie.nodes
    slot = _slot(trie, node, token)
    child = trie.table[slot]
    if child == 0:
        child = trie.size[0]
        trie.size[0] += 1
        trie.table[slot] = child
        nodes[child, TOKEN], nodes[child, PARENT], nodes[child, COUNT] = token, node, 0
        nodes[child, FIRST_CHILD] = nodes[child, LAST_CHILD] = nodes[child, NEXT_SIBLING] = 0
        if nodes[node, FIRST_CHILD] == 0:
            nodes[node, FIRST_CHILD] = child
        else:
            nodes[nodes[node, LAST_CHILD], NEXT_SIBLING] = child
        nodes[node, LAST_CHILD] = child
    nodes[child, COUNT] += weight
    return int(child)


@compiled
def _next(nodes: Rows, top: int, node: int, descend: bool) -> int:
    """The node after `node` in the depth-first traversal below `top`, 0 at its end; skips what is below `node` unless
    `descend`."""
    if descend and nodes[node, FIRST_CHILD] != 0:
        return int(nodes[node, FIRST_CHILD])
    while node != top:
        if nodes[node, NEXT_SIBLING] != 0:
            return int(nodes[node, NEXT_SIBLING])
        node = int(nodes[node, PARENT])
    return 0


@compiled
def _floor(nodes: Rows, top: int, num_draft: int) -> tuple[int, int]:
    """The smallest of the `num_draft` largest counts below `top`, 0 where there are fewer nodes, and how many of them
    have it."""
    # The min-heap of the paper, over counts alone: its smallest entry is the count a node needs to be kept. It starts
    # with zeros, which every node beats. Below a node that is not kept nothing can be, so the walk stops there.
    heap = [np.int64(0)] * num_draft
    node = _next(nodes, top, top, True)
    while node != 0:
        kept = nodes[node, COUNT] > heap[0]
        if kept:
            heapreplace(heap, np.int64(nodes[node, COUNT]))
        node = _next(nodes, top, node, kept)
    floor = heap[0]
    ties = 0
    for count in heap:
        ties += count == floor
    return int(floor), ties


@compiled
def prune(nodes: Rows, top: int, num_draft: int, deep: bool, root_token: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Equation 5: the `num_draft` nodes below `top` with the largest counts, as tokens, parents and probabilities of a
    draft tree: a node's is its share of the count of `top` and one more."""
    num_draft = min(num_draft, len(nodes))
    floor, ties_left = _floor(nodes, top, num_draft)

    # Of the nodes at the floor, the traversal's first ones fill what is left. A parent comes before its children and
    # counts no less, so it is kept if they are.
    source = np.empty(num_draft + 1, np.int64)
    tokens = np.empty(num_draft + 1, np.int64)
    parents = np.empty(num_draft + 1, np.int64)
    probs = np.empty(num_draft + 1)
    source[0], tokens[0], parents[0], probs[0] = top, root_token, -1, 1.0
    size, head = 1, 0
    node = _next(nodes, top, top, True)
    while node != 0 and size <= num_draft:
        count = nodes[node, COUNT]
        kept = count > floor or (count == floor and ties_left > 0)
        if kept:
            ties_left -= count == floor
            if deep:
                head = size - 1
                while source[head] != nodes[node, PARENT]:
                    head = parents[head]
            source[size], tokens[size], parents[size] = node, nodes[node, TOKEN], head
            probs[size] = count / (nodes[top, COUNT] + 1)
            size += 1
        if deep:
            node = _next(nodes, top, node, kept)
        else:
            # Breadth first, with what was kept as the queue.
            node = int(nodes[node, NEXT_SIBLING])
            while node == 0 and head + 1 < size:
                head += 1
                node = int(nodes[source[head], FIRST_CHILD])
    return tokens[:size], parents[:size], probs[:size]


class TrieStorage:
    """Storage that tries share: rows, hash and their growth."""

    def __init__(self, capacity: int) -> None:
        nothing = np.empty((0, NUM_FIELDS), np.int32)
        self._trie = Trie(nothing, np.empty(0, np.int32), np.zeros(1, np.int64))
        self._reserve(capacity + 1)
        self._trie.nodes[0], self._trie.size[0] = 0, 1

    def _reserve(self, num_new: int) -> None:
        """Make room for `num_new` nodes, with the hash at most half full."""
        nodes, _, size = self._trie
        needed = int(size[0]) + num_new
        if needed <= len(nodes):
            return
        grown = np.empty((max(needed, 2 * len(nodes)), NUM_FIELDS), np.int32)
        grown[: size[0]] = nodes[: size[0]]
        self._trie = Trie(grown, empty_table(len(grown)), size)
        known = grown[1 : size[0]]
        rehash_pairs(known[:, PARENT], known[:, TOKEN], self._trie.table)


@compiled
def _count_windows(new_ids: IntArray, position: int, reached: IntArray, fields: Fields, prefix_len: int) -> None:
    trie, n = Trie(*fields), len(reached) - 1
    for token in new_ids:
        # Deepest first: reached[depth - 1] must still be where the previous token left it.
        for depth in range(min(n, position + 1), 0, -1):
            start = position - depth + 1
            weight = min(prefix_len, start + 1, n - depth + 1)
            reached[depth] = add_child(trie, reached[depth - 1], token, weight)
        position += 1


@compiled
def _match(text: IntArray, fields: Fields, prefix_len: int) -> int:
    """The node of the longest suffix of `text`, of at most L_p tokens, that goes on; 0 if there is none."""
    trie, end = Trie(*fields), len(text)
    for length in range(min(prefix_len, end), 0, -1):
        node = node_of(trie, text[end - length :])
        if node != 0 and trie.nodes[node, FIRST_CHILD] != 0:
            return node
    return 0


@compiled
def _draft(
    text: IntArray, fields: Fields, prefix_len: int, num_draft: int, deep: bool
) -> tuple[IntArray, IntArray, FloatArray]:
    node = _match(text, fields, prefix_len)
    if node == 0:
        return text[-1:].copy(), np.full(1, -1, np.int64), np.ones(1)
    return prune(Trie(*fields).nodes, node, num_draft, deep, text[-1])


class NgramTrie(TrieStorage):
    """Algorithm 1, built token by token, with the matching and pruning of section 3.2.

    As printed, Algorithm 1 inserts text[i + j : i + n] from the root for every window start i in [0, l) and every cut j
    in [0, L_p), windows cut at the end of the text (all indices from 0). So an occurrence, at p, of a path of depth d
    is counted once for every cut j with 0 <= i = p - j, j < L_p and d <= n - j:

        min(L_p, p + 1, n - d + 1) times.

    Every start is therefore inserted once, with that weight, while it is at most n tokens back: a token costs n hash
    look-ups, and the prompt and the output that follows it are indexed by the same code. Nodes: at most n a token.

    Args:
        text: (l,) token ids, each in [0, 2**31).
        n: length of the sampling window.
        prefix_len: L_p, how many tokens of the text so far are matched at most; 1 <= L_p < n.
    """

    def __init__(self, text: Sequence[int] | IntArray = (), *, n: int, prefix_len: int) -> None:
        super().__init__(n * len(text))
        self.n, self.prefix_len = n, prefix_len
        self.begin_text()
        self.extend(text)

    def begin_text(self) -> None:
        """What is added from here on is another text: no window spans the border."""
        self._position = 0
        # reached[d]: the node of the last d tokens; reached[0] is the root.
        self._reached = np.zeros(self.n + 1, np.int64)

    def extend(self, new_ids: Sequence[int] | IntArray) -> None:
        """Add the (k,) tokens that follow."""
        ids = np.asarray(new_ids, np.int64)
        self._reserve(self.n * len(ids))
        _count_windows(ids, self._position, self._reached, tuple(self._trie), self.prefix_len)
        self._position += len(ids)

    def match(self, text: IntArray) -> int:
        """The node that the end of `text`, (k,) with k >= 1, matches: the first half of `draft`; 0 if there is none."""
        return int(_match(text, tuple(self._trie), self.prefix_len))

    def draft(self, text: IntArray, num_draft: int, ties: Ties = "shallow") -> DraftTree:
        """Match the end of `text` and prune what follows (section 3.2).

        The longest suffix of at most L_p tokens that is a path from the root and has a continuation is matched; where
        there is none, the draft is empty. Of the nodes below it the `num_draft` most frequent are kept (equation 5).
        The paper leaves ties open:

        - "deep": first in the depth-first traversal ("deep traverse it", section 3.2), which follows one chain to its
          end before the next;
        - "shallow": first in the breadth-first traversal, nearer to the root first.

        Children come in order of first insertion in both, and the draft tree's nodes in order of the traversal. Their
        probabilities are their counts over that of the matched node and one more, as Algorithm 1 counts.

        Args:
            text: (k,) the text so far, k >= 1; its last token becomes the root.
            num_draft: most nodes to draft, the root not counted.
        """
        if num_draft < 1:
            return DraftTree.root_only(int(text[-1]))
        tokens, parents, probs = _draft(text, tuple(self._trie), self.prefix_len, num_draft, ties == "deep")
        return DraftTree(tokens, parents, probs=probs)


# The edge from a reversed prefix to what followed it; no token has this id.
_THEN = -1


@compiled
def _store_windows(
    text: IntArray,
    starts: IntArray,
    fresh: NDArray[np.bool_],
    prefix_len: int,
    fields: Fields,
    waiting: Rows,
    later: Rows,
) -> None:
    """Chain the windows that begin at `starts` to their prefixes, whose counts are those of the `fresh` ones. An entry
    of the chains is window x L_p + length of the prefix; 0 ends a chain."""
    trie = Trie(*fields)
    for window, is_fresh in zip(starts, fresh):  # noqa: B905 (numba has no strict)
        prefix = 0
        for length in range(1, prefix_len + 1):
            prefix = add_child(trie, prefix, text[window + prefix_len - length], int(is_fresh))
            entry = window * prefix_len + length
            later[entry] = 0
            if waiting[prefix, 0] == 0:
                waiting[prefix, 0] = entry
            else:
                later[waiting[prefix, 1]] = entry
            waiting[prefix, 1] = entry


@compiled
def _insert_followers(
    prefix: int, text: IntArray, n: int, prefix_len: int, fields: Fields, waiting: Rows, later: Rows
) -> None:
    """Insert what followed in the windows that wait at `prefix`, in the order of the text."""
    trie, entry = Trie(*fields), int(waiting[prefix, 0])
    while entry != 0:
        window = (entry - 1) // prefix_len
        node = add_child(trie, prefix, _THEN, 1)
        for follower in range(window + prefix_len, window + n):
            node = add_child(trie, node, text[follower], 1)
        entry = int(later[entry])
    waiting[prefix, 0] = 0


@compiled
def _longest_prefix(text: IntArray, fields: Fields, prefix_len: int) -> int:
    """The node of the longest stored prefix that `text` ends with; 0 if there is none."""
    trie, prefix, last = Trie(*fields), 0, len(text) - 1
    for position in range(last, max(last - prefix_len, -1), -1):
        longer = child_of(trie, prefix, text[position])
        if longer == 0:
            break
        prefix = longer
    return prefix


@compiled
def _most_frequent(nodes: Rows, top: int, num_draft: int) -> IntArray:
    """The rows of the `num_draft` most frequent nodes below `top`, the most frequent first, equal ones in the order of
    their creation: parents precede children."""
    floor, _ = _floor(nodes, top, num_draft)
    found = [np.int64(0) for _ in range(0)]
    node = _next(nodes, top, top, True)
    while node != 0:
        kept = nodes[node, COUNT] >= floor
        if kept:
            found.append(np.int64(node))
        node = _next(nodes, top, node, kept)
    rows = np.sort(np.array(found))
    return rows[np.argsort(-nodes[rows, COUNT], kind="mergesort")][:num_draft]


@compiled
def _released_draft(
    prefix: int, root_token: int, fields: Fields, n: int, prefix_len: int, num_draft: int
) -> tuple[IntArray, IntArray, FloatArray]:
    trie = Trie(*fields)
    nodes, num_matches = trie.nodes, trie.nodes[prefix, COUNT]
    top = child_of(trie, prefix, _THEN)
    cut = num_matches * (n - prefix_len) > num_draft
    rows = _most_frequent(nodes, top, num_draft if cut else num_matches * (n - prefix_len))
    size = len(rows)
    tokens, parents, probs = np.empty(size + 1, np.int64), np.empty(size + 1, np.int64), np.empty(size + 1)
    tokens[0], parents[0], probs[0] = root_token, -1, 1.0
    distinct = np.zeros(size + 1, np.int64)  # different tokens on the path to a node
    for node in range(1, size + 1):
        tokens[node], parents[node] = nodes[rows[node - 1], TOKEN], 0
        probs[node] = nodes[rows[node - 1], COUNT] / (nodes[top, COUNT] + 1)
        for other in range(1, node):
            if rows[other - 1] == nodes[rows[node - 1], PARENT]:
                parents[node] = other
        above = parents[node]
        while above > 0 and tokens[above] != tokens[node]:
            above = parents[above]
        distinct[node] = distinct[parents[node]] + (above <= 0)
    if not cut:
        return tokens, parents, probs

    # Whole paths go, those with the most different tokens and of these the most frequent first.
    kept = np.ones(size + 1, np.bool_)
    total = distinct.sum()
    for node in np.argsort(-distinct, kind="mergesort"):
        if total <= num_draft:
            break
        kept[node] = False
        total -= distinct[node]
    # A path that is left brings its prefixes back.
    for node in range(size, 0, -1):
        if kept[node]:
            kept[parents[node]] = True
    place = np.cumsum(kept) - 1
    parents[1:] = place[parents[1:]]
    return tokens[kept], parents[kept], probs[kept]


class ReleasedTrie(TrieStorage):
    """What the authors' released code does instead of Algorithm 1 (github mrlife219/Ngram-Trie, 613b258).

    A window of n tokens is stored under its first L_p tokens reversed, so that a walk back from the end of the text
    matches the longest suffix, of at most L_p tokens; every match, however short, drafts the remaining n - L_p tokens
    of its windows. Each text is followed by one EOS. Its windows are all runs of n tokens and, before them, its first
    n - L_p + 1 to n - 1 tokens: padded with EOS in front, so that their prefix ends after 1 to L_p tokens of the text,
    and behind, wherever that makes n and two tokens or more are left to follow. Equal windows are one with a frequency,
    in all texts together; a padded one equals only those padded alike.

    Where matches x (n - L_p) > num_draft, a window counting once whatever its frequency, the num_draft most frequent of
    all prefixes of what followed are kept, those that were met first before their equals. Then whole paths are dropped
    until the numbers of different tokens on those left (nested prefixes counted each) add up to at most num_draft: the
    paths with the most different tokens first, of equal ones the most frequent. That leaves far fewer nodes than
    allowed. With no match the single token `no_match_id` is drafted.

    Followers are inserted when their prefix is matched for the first time: most prefixes never are, and the draft is
    the same.

    Args:
        texts: (l,) token ids each, in [0, 2**31).
        n: length of the sampling window.
        prefix_len: L_p, 1 <= L_p < n.
        eos_id: the token that ends and pads the texts.
        no_match_id: the token drafted where nothing matches.
    """

    def __init__(
        self, *texts: Sequence[int] | IntArray, n: int, prefix_len: int, eos_id: int = 2, no_match_id: int = 100
    ) -> None:
        self._waiting = np.zeros((0, 2), np.int32)  # of a prefix: first and last entry of its chain of windows
        super().__init__(sum(len(text) + n for text in texts) * prefix_len)
        self.n, self.prefix_len, self.eos_id, self.no_match_id = n, prefix_len, eos_id, no_match_id
        self._text = np.empty(0, np.int64)
        self._later = np.zeros(1, np.int32)  # of an entry: the next one of its chain
        self._seen: set[bytes] = set()
        self.begin_text()
        for text in texts:
            self._add(np.asarray(text, np.int64))

    def begin_text(self) -> None:
        """What is added from here on is another text: no window spans the border."""
        self._tail = np.empty(0, np.int64)

    def extend(self, new_ids: Sequence[int] | IntArray) -> None:
        """Add the (k,) tokens that follow the last text: a window is stored once all its n tokens are there (an
        extension; the released code reads the prompt only)."""
        text = np.append(self._tail, np.asarray(new_ids, np.int64))
        self._store([text], self._fresh(text, self.n))
        self._tail = text[max(len(text) - self.n + 1, 0) :]

    def _add(self, text: IntArray) -> None:
        n, prefix_len = self.n, self.prefix_len
        ended = np.append(text, self.eos_id)
        stored, fresh = [], []
        for length in range(n - prefix_len + 1, min(n, len(ended) + 1)):
            (is_fresh,) = self._fresh(ended[:length], length)
            for front in reversed(range(prefix_len)):  # tokens of padding
                behind = n - length - front
                if behind >= 0 and length - (prefix_len - front) > 1:
                    stored.append(np.pad(ended[:length], (front, behind), constant_values=self.eos_id))
                    fresh.append(is_fresh)
        self._store([*stored, ended], [*fresh, *self._fresh(ended, n)])
        self._tail = text[max(len(text) - n + 1, 0) :]

    def _fresh(self, text: IntArray, length: int) -> list[bool]:
        """Of each run of `length` tokens, whether it was not there before; from now on it is."""
        fresh, packed, width = [], text.tobytes(), text.itemsize
        for start in range(0, width * (len(text) - length + 1), width):
            run = packed[start : start + width * length]
            fresh.append(run not in self._seen)
            self._seen.add(run)
        return fresh

    def _store(self, texts: Sequence[IntArray], fresh: Sequence[bool]) -> None:
        """Store all windows of each text."""
        if not fresh:
            return
        starts, end = [], len(self._text)
        for text in texts:
            starts.append(np.arange(end, end + len(text) - self.n + 1))
            end += len(text)
        num_new = end - len(self._text)
        self._text = np.concatenate([self._text, *texts])
        self._later = np.append(self._later, np.zeros(num_new * self.prefix_len, np.int32))
        self._reserve(num_new * self.prefix_len)
        chains = tuple(self._trie), self._waiting, self._later
        _store_windows(self._text, np.concatenate(starts), np.array(fresh), self.prefix_len, *chains)

    def _reserve(self, num_new: int) -> None:
        super()._reserve(num_new)
        if len(self._waiting) < len(self._trie.nodes):
            grown = np.zeros((len(self._trie.nodes), 2), np.int32)
            grown[: len(self._waiting)] = self._waiting
            self._waiting = grown

    def draft(self, text: IntArray, num_draft: int) -> DraftTree:
        """Match the end of `text`, (k,) with k >= 1, and draft at most `num_draft` nodes; see the class. A node's
        probability is its share of the windows that match and one more; a token drafted without a match has 0."""
        root = int(text[-1])
        if num_draft < 1:
            return DraftTree.root_only(root)
        prefix = _longest_prefix(text, tuple(self._trie), self.prefix_len)
        if prefix == 0:
            return DraftTree.copied(root, [self.no_match_id], 0)
        if self._waiting[prefix, 0]:
            self._reserve(int(self._trie.nodes[prefix, COUNT]) * (self.n - self.prefix_len + 1))
            chains = self._waiting, self._later
            _insert_followers(prefix, self._text, self.n, self.prefix_len, tuple(self._trie), *chains)
        fields, n = tuple(self._trie), self.n
        tokens, parents, probs = _released_draft(prefix, root, fields, n, self.prefix_len, num_draft)
        return DraftTree(tokens, parents, probs=probs)
