"""A blend of all orders: the next token from every earlier place that agrees with the end of the text, however briefly.

The orders of the text so far, and of the path that was drafted behind it, are those of `ngram_trie.blend.ppm`. They
fall back to what follows the context elsewhere, where there is an elsewhere (`ngram_trie.blend.background`), and that
to order 0, how frequent tokens are in the text and elsewhere: with n_0(t) of the text's N_0 places, of u_0 different
tokens, and U(t), which is 0 where there is no elsewhere,

    P_0(t) = (n_0(t) + u_0 U(t)) / (N_0 + u_0).

A draft takes the nodes of the largest products of P along their paths, so it expects as many accepted tokens as these
sum to.

Nothing is built but chains: from each position to the token's occurrence before. What follows a context is counted when
it is asked for, over the `max_occurrences` latest occurrences, by walking back from each. Tokens are numbered in order
of first appearance; all arrays hold these numbers, so memory is linear in the text. A token that follows no occurrence
is drafted only if it is among the `num_frequent` most frequent ones of the text, or among those elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from ngram_trie.blend.background import Background, expect
from ngram_trie.blend.budget import StepPrices
from ngram_trie.blend.ppm import FloatArray, Numbers, blend_orders
from ngram_trie.tree import DraftTree, IntArray

# Rows of `tokens`, one column a distinct token: its latest position, how often it occurred, its place among the most
# frequent (-1: none), and for counting successors: the context that saw it last, and its row there.
LAST, COUNT, RANK, SEEN_BY, ROW = range(5)
NUM_ROWS = 5


@njit(cache=True)
def _number_of(token: int, ids: IntArray, table: Numbers) -> int:
    """The slot of `table` that holds `token`'s number + 1, or would hold it; 0 means empty."""
    mask = len(table) - 1
    mixed = token * 0x5851F42D4C957F2D  # wraps around
    slot = (mixed ^ (mixed >> 31)) & mask
    while table[slot] != 0 and ids[table[slot] - 1] != token:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _rehash(ids: IntArray, num_tokens: int, table: Numbers) -> None:
    for number in range(num_tokens):
        table[_number_of(ids[number], ids, table)] = number + 1


@njit(cache=True)
def _enter(token: int, ids: IntArray, table: Numbers, tokens: Numbers, num_tokens: int) -> int:
    """The number of `token`; `num_tokens`, under which it is entered, if it is new."""
    slot = _number_of(token, ids, table)
    if table[slot] == 0:
        ids[num_tokens] = token
        tokens[LAST, num_tokens] = -1
        tokens[COUNT, num_tokens] = 0
        tokens[RANK, num_tokens] = -1
        tokens[SEEN_BY, num_tokens] = 0
        table[slot] = num_tokens + 1
    return table[slot] - 1


@njit(cache=True)
def _enter_all(new_ids: Numbers, ids: IntArray, table: Numbers, tokens: Numbers) -> Numbers:
    """The numbers, from 0 on, of different tokens, the first that are entered."""
    numbers = np.empty(len(new_ids), np.int32)
    for at, token in enumerate(new_ids):
        numbers[at] = _enter(token, ids, table, tokens, at)
    return numbers


@njit(cache=True)
def _extend(
    new_ids: IntArray,
    text: Numbers,
    size: int,
    before: Numbers,
    ids: IntArray,
    table: Numbers,
    num_tokens: int,
    num_kinds: int,
    tokens: Numbers,
    frequent: Numbers,
    num_ranked: int,
) -> tuple[int, int, int]:
    """Append `new_ids`; returns how many tokens are numbered, how many of them are in the text, how many are ranked."""
    for new_id in new_ids:
        token = _enter(new_id, ids, table, tokens, num_tokens)
        num_tokens = max(num_tokens, token + 1)
        text[size] = token
        before[size] = tokens[LAST, token]
        tokens[LAST, token] = size
        num_kinds += tokens[COUNT, token] == 0
        tokens[COUNT, token] += 1
        size += 1

        rank = tokens[RANK, token]
        if rank < 0:
            if num_ranked < len(frequent):
                rank = num_ranked
                num_ranked += 1
            elif num_ranked > 0 and tokens[COUNT, token] > tokens[COUNT, frequent[num_ranked - 1]]:
                rank = num_ranked - 1
                tokens[RANK, frequent[rank]] = -1
            else:
                continue
        while rank > 0 and tokens[COUNT, frequent[rank - 1]] <= tokens[COUNT, token]:  # of equals the latest first
            frequent[rank] = frequent[rank - 1]
            tokens[RANK, frequent[rank]] = rank
            rank -= 1
        frequent[rank] = token
        tokens[RANK, token] = rank
    return num_tokens, num_kinds, num_ranked


@njit(cache=True)
def _count_successors(
    text: Numbers,
    size: int,
    end: int,
    before: Numbers,
    tokens: Numbers,
    context: int,
    max_order: int,
    max_occurrences: int,
    successors: Numbers,
    counts: Numbers,
) -> int:
    """What followed the occurrences of the context text[:end], of which text[:size] is indexed.

    Writes each successor to `successors` and its row of `counts` (max_occurrences, 1 + max_order): its longest
    occurrence, then the number of occurrences of each length. Returns how many successors there are.
    """
    found = 0
    place = tokens[LAST, text[end - 1]]
    left = max_occurrences
    while place >= 0 and left > 0:
        if place + 1 < size:  # the end of the text has no successor
            left -= 1
            length = 1
            while length < max_order and length <= place and text[place - length] == text[end - 1 - length]:
                length += 1
            successor = text[place + 1]
            if tokens[SEEN_BY, successor] != context:
                tokens[SEEN_BY, successor] = context
                tokens[ROW, successor] = found
                successors[found] = successor
                counts[found] = 0
                found += 1
            row = tokens[ROW, successor]
            counts[row, length] += 1
            counts[row, 0] = max(counts[row, 0], length)
        place = before[place]
    return found


@njit(cache=True)
def _offer(prob: float, parent: int, token: int, room: int, waiting: int, probs: FloatArray, nodes: Numbers) -> int:
    """Put a candidate among the `waiting` ones, the best of them last, unless `room` better ones are there; returns how
    many wait now. Of equals the first offered is the better one."""
    if waiting < room:
        at = waiting
        waiting += 1
        while at > 0 and probs[at - 1] >= prob:
            probs[at] = probs[at - 1]
            nodes[at, 0], nodes[at, 1] = nodes[at - 1, 0], nodes[at - 1, 1]
            at -= 1
    elif room == 0 or prob <= probs[0]:
        return waiting
    else:
        at = 0
        while at + 1 < waiting and probs[at + 1] < prob:
            probs[at] = probs[at + 1]
            nodes[at, 0], nodes[at, 1] = nodes[at + 1, 0], nodes[at + 1, 1]
            at += 1
    probs[at] = prob
    nodes[at, 0] = parent
    nodes[at, 1] = token
    return waiting


@njit(cache=True)
def _power_beyond(size: int) -> int:
    """The smallest power of 2 above `size`."""
    power = 1
    while power <= size:
        power *= 2
    return power


@njit(cache=True)
def _draft(
    text: Numbers,
    size: int,
    before: Numbers,
    ids: IntArray,
    table: Numbers,
    tokens: Numbers,
    num_tokens: int,
    num_kinds: int,
    frequent: Numbers,
    common: Numbers,
    background: Background | None,
    context: int,
    max_order: int,
    max_occurrences: int,
    escape: float,
    costs: FloatArray,
    least: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray, int]:
    """Tokens, parents and path probabilities of the draft, the likeliest node first behind the root, by `StepPrices`;
    and how many tokens are numbered now. Contexts are numbered from `context` + 1 on. `common` are the numbers of those
    of the background.
    """
    num_draft = len(least)
    emitted, kept, rate = 1.0, 0, 1 / costs[0]
    drafted = np.empty(num_draft + 1, np.int32)
    parents, depths = np.empty(num_draft + 1, np.int64), np.zeros(num_draft + 1, np.int64)
    probs = np.ones(num_draft + 1)
    waiting, waiting_probs, waiting_nodes = 0, np.empty(num_draft), np.empty((num_draft, 2), np.int32)
    more = 0  # successors that a context may have elsewhere
    if background is not None:
        more = 2 * background.max_occurrences + background.successors.shape[1]
        more_ids, more_shares, last_ids = np.empty(more, np.int32), np.empty(more), np.empty(max_order, np.int64)
        more_counts, rows = np.empty((more, max_order + 1), np.int32), np.empty(_power_beyond(2 * more), np.int32)
    successors = np.empty(max_occurrences + more, np.int32)
    counts = np.empty((max_occurrences, max_order + 1), np.int32)
    weights, shares = np.empty((2, max_order + 1)), np.empty(max_occurrences + more)
    drafted[0], parents[0] = text[size - 1], -1
    node = 0
    while node < num_draft:
        end = size + depths[node]
        ancestor = node
        for at in range(end - 1, size - 1, -1):  # the path stands behind the text while it is the context
            text[at] = drafted[ancestor]
            ancestor = parents[ancestor]
        context += 1
        found = _count_successors(
            text, size, end, before, tokens, context, max_order, max_occurrences, successors, counts
        )
        left = blend_orders(counts, found, escape, weights, shares)
        if background is not None:
            length = min(end, max_order)
            for back in range(length):
                last_ids[back] = ids[text[end - 1 - back]]
            elsewhere, below = expect(
                background, last_ids, length, escape, more_ids, more_shares, more_counts, weights, rows
            )
            for row in range(elsewhere):
                token = _enter(more_ids[row], ids, table, tokens, num_tokens)
                num_tokens = max(num_tokens, token + 1)
                if tokens[SEEN_BY, token] != context:
                    tokens[SEEN_BY, token] = context
                    tokens[ROW, token] = found
                    successors[found] = token
                    shares[found] = 0.0
                    found += 1
                shares[tokens[ROW, token]] += left * more_shares[row]
            left *= below
        room = num_draft - node
        here = probs[node] * left / (size + num_kinds)  # what one occurrence is worth at order 0
        there, most = 0.0, 0.0  # what one elsewhere is worth, and the most frequent token
        if background is not None and len(common):
            there = here * num_kinds / background.total
            most = there * background.counts[ids[common[0]]]
        for row in range(found):
            token = successors[row]
            prob = probs[node] * shares[row] + here * tokens[COUNT, token]
            if background is not None and ids[token] < len(background.counts):
                prob += there * background.counts[ids[token]]
            waiting = _offer(prob, node, token, room, waiting, waiting_probs, waiting_nodes)
        for token in frequent:
            prob = here * tokens[COUNT, token]
            if waiting == room and prob + most <= waiting_probs[0]:
                break  # the others are rarer
            if tokens[SEEN_BY, token] != context:
                if background is not None and ids[token] < len(background.counts):
                    prob += there * background.counts[ids[token]]
                waiting = _offer(prob, node, token, room, waiting, waiting_probs, waiting_nodes)
        if background is not None:
            rarest = here * tokens[COUNT, frequent[-1]] if len(frequent) else here * size
            for token in common:
                prob = there * background.counts[ids[token]]
                if waiting == room and prob + rarest <= waiting_probs[0]:
                    break
                if tokens[SEEN_BY, token] != context and tokens[RANK, token] < 0:
                    prob += here * tokens[COUNT, token]
                    waiting = _offer(prob, node, token, room, waiting, waiting_probs, waiting_nodes)
        if waiting == 0 or waiting_probs[waiting - 1] <= rate * least[node]:
            break
        waiting -= 1
        node += 1
        parents[node], drafted[node] = waiting_nodes[waiting, 0], waiting_nodes[waiting, 1]
        probs[node] = waiting_probs[waiting]
        depths[node] = depths[parents[node]] + 1
        emitted += probs[node]
        if emitted / costs[node] > rate:
            kept, rate = node, emitted / costs[node]
    return ids[drafted[: kept + 1]], parents[: kept + 1], probs[: kept + 1], num_tokens


class BlendIndex:
    """A text that grows, and what the blend of all orders expects behind it; see the module.

    Args:
        text: (l,) token ids, each in [0, 2**31).
        escape: b, how readily a shorter context is asked as well.
        max_order: agreement beyond so many tokens makes no difference.
        num_frequent: how many of the most frequent tokens are drafted where they follow no occurrence.
        max_occurrences: how many occurrences of a token are looked at, the latest ones.
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
        background: Background | None = None,
    ) -> None:
        self.escape, self.max_order, self.max_occurrences = escape, max_order, max_occurrences
        self.background = background
        # Most tokens that a context can bring from elsewhere.
        self._more = 2 * background.max_occurrences + background.successors.shape[1] if background else 0
        self._size = self._num_tokens = self._num_kinds = self._num_ranked = self._context = 0
        self._text, self._before = np.empty(0, np.int32), np.empty(0, np.int32)
        self._ids, self._tokens = np.empty(0, np.int64), np.empty((NUM_ROWS, 0), np.int32)
        self._table = np.zeros(1, np.int32)
        self._frequent = np.empty(num_frequent, np.int32)
        self._common = np.empty(0, np.int32)
        self._reserve(2 * len(text) + 256, 2 * len(text) + 256)
        if background and len(background.common):
            self._reserve(0, len(background.common))
            self._common = _enter_all(background.common, self._ids, self._table, self._tokens)
            self._num_tokens = len(self._common)
        self.extend(text)

    def __len__(self) -> int:
        return self._size

    def _reserve(self, size: int, num_tokens: int) -> None:
        """Room for `size` positions, a path of a draft included, and for as many different tokens."""
        if size > len(self._text):
            more = max(size, 2 * len(self._text)) - len(self._text)
            self._text, self._before = (
                np.concatenate([old, np.empty(more, np.int32)]) for old in (self._text, self._before)
            )
        if num_tokens > len(self._ids):
            new = max(num_tokens, 2 * len(self._ids))
            self._ids = np.concatenate([self._ids, np.empty(new - len(self._ids), np.int64)])
            grown = np.empty((NUM_ROWS, new), np.int32)
            grown[:, : self._num_tokens] = self._tokens[:, : self._num_tokens]
            self._tokens = grown
            self._table = np.zeros(1 << (2 * new - 1).bit_length(), np.int32)
            _rehash(self._ids, self._num_tokens, self._table)

    def extend(self, new_ids: Sequence[int] | IntArray) -> None:
        """Add the (k,) tokens that follow."""
        ids = np.asarray(new_ids, np.int64)
        self._reserve(self._size + len(ids), self._num_tokens + len(ids))
        self._num_tokens, self._num_kinds, self._num_ranked = _extend(
            ids,
            self._text,
            self._size,
            self._before,
            self._ids,
            self._table,
            self._num_tokens,
            self._num_kinds,
            self._tokens,
            self._frequent,
            self._num_ranked,
        )
        self._size += len(ids)

    def draft(self, prices: StepPrices) -> tuple[DraftTree, FloatArray]:
        """The likeliest continuations of the text, which must not be empty.

        Args:
            prices: of as many nodes as may be drafted.

        Returns:
            The tree, its nodes in order of falling probability, and (m,) these: that the text goes on along the path
            from the root to the node; 1 for the root.
        """
        # Each node's context may bring new tokens from elsewhere.
        more = self._more * (len(prices) + 1)
        self._reserve(self._size + len(prices), self._num_tokens + more)
        if self._context > 2**31 - 2 - len(prices):
            self._tokens[SEEN_BY] = self._context = 0
        ids, parents, probs, self._num_tokens = _draft(
            self._text,
            self._size,
            self._before,
            self._ids,
            self._table,
            self._tokens,
            self._num_tokens,
            self._num_kinds,
            self._frequent[: self._num_ranked],
            self._common,
            self.background,
            self._context,
            self.max_order,
            self.max_occurrences,
            self.escape,
            prices.costs,
            prices.least,
        )
        self._context += len(prices) + 1
        return DraftTree(ids, parents), probs
