"""A blend of all orders: the next token from every earlier place that agrees with the end of the text, however briefly.

Prediction by partial matching (Cleary and Witten 1984) with an order 0. Of a context, the text so far and the path that
was drafted behind it, let an occurrence be a place whose token is the context's last one and that has a successor; its
length is how many tokens up to there agree with the context's end, at most `max_order`. With n_k(t) the number of
occurrences of length k or more that token t follows, N_k their sum over all t, u_k the number of different t, and the
escape e_k = b u_k / (N_k + b u_k), where b = 1 is Witten and Bell's (method C),

    P_k(t) = (1 - e_k) n_k(t) / N_k + e_k P_{k-1}(t),        P_0(t) = n_0(t) / (N_0 + u_0),

from order 0, where every place of the text counts and b is 1, up to the longest occurrence's. A draft takes the nodes
of the largest products of P along their paths, so it expects as many accepted tokens as these sum to.

Nothing is built but chains: from each position to the token's occurrence before. What follows a context is counted when
it is asked for, over the `max_occurrences` latest occurrences, by walking back from each. Tokens are numbered in order
of first appearance; all arrays hold these numbers, so memory is linear in the text. A token that follows no occurrence
is drafted only if it is among the `num_frequent` most frequent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ngram_trie.budget import StepCosts, StepPrices
from ngram_trie.drafter import Drafter, Prompt
from ngram_trie.drafters import check_int
from ngram_trie.tree import DraftTree, IntArray

Numbers: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float64]

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
def _extend(
    new_ids: IntArray,
    text: Numbers,
    size: int,
    before: Numbers,
    ids: IntArray,
    table: Numbers,
    num_tokens: int,
    tokens: Numbers,
    frequent: Numbers,
    num_ranked: int,
) -> tuple[int, int]:
    """Append `new_ids`; returns the numbers of distinct and of ranked tokens."""
    for new_id in new_ids:
        slot = _number_of(new_id, ids, table)
        if table[slot] == 0:
            ids[num_tokens] = new_id
            tokens[LAST, num_tokens] = -1
            tokens[COUNT, num_tokens] = 0
            tokens[RANK, num_tokens] = -1
            tokens[SEEN_BY, num_tokens] = 0
            num_tokens += 1
            table[slot] = num_tokens
        token = table[slot] - 1
        text[size] = token
        before[size] = tokens[LAST, token]
        tokens[LAST, token] = size
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
    return num_tokens, num_ranked


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
def _blend(counts: Numbers, found: int, escape: float, weights: FloatArray, shares: FloatArray) -> float:
    """The orders from the longest down to 1 of the blend: writes each successor's probability to `shares` and returns
    the share that is left to order 0. `counts`, of `_count_successors`, become the n_k(t); `weights` (2, 1 + max_order)
    is scratch.
    """
    weights[:] = 0.0
    totals, kinds = weights[0], weights[1]
    longest = 0
    for row in range(found):
        top = counts[row, 0]
        longest = max(longest, top)
        count = 0
        for order in range(top, 0, -1):
            count += counts[row, order]
            counts[row, order] = count
            totals[order] += count
            kinds[order] += 1
    left = 1.0
    for order in range(longest, 0, -1):
        escaped = escape * kinds[order]
        left /= totals[order] + escaped
        totals[order] = left  # from here on what one count is worth
        left *= escaped
    for row in range(found):
        top = counts[row, 0]
        share = 0.0
        for order in range(1, top + 1):
            share += totals[order] * counts[row, order]
        shares[row] = share
    return left


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
def _draft(
    text: Numbers,
    size: int,
    before: Numbers,
    ids: IntArray,
    tokens: Numbers,
    num_tokens: int,
    frequent: Numbers,
    context: int,
    max_order: int,
    max_occurrences: int,
    escape: float,
    costs: FloatArray,
    least: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Tokens, parents and path probabilities of the draft, the likeliest node first behind the root, by `StepPrices`.
    Contexts are numbered from `context` + 1 on.
    """
    num_draft = len(least)
    emitted, kept, rate = 1.0, 0, 1 / costs[0]
    drafted = np.empty(num_draft + 1, np.int32)
    parents, depths = np.empty(num_draft + 1, np.int64), np.zeros(num_draft + 1, np.int64)
    probs = np.ones(num_draft + 1)
    waiting, waiting_probs, waiting_nodes = 0, np.empty(num_draft), np.empty((num_draft, 2), np.int32)
    successors, counts = np.empty(max_occurrences, np.int32), np.empty((max_occurrences, max_order + 1), np.int32)
    weights, shares = np.empty((2, max_order + 1)), np.empty(max_occurrences)
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
        left = _blend(counts, found, escape, weights, shares)
        room = num_draft - node
        each = left / (size + num_tokens)  # what one occurrence is worth at order 0
        for row in range(found):
            prob = probs[node] * (shares[row] + each * tokens[COUNT, successors[row]])
            waiting = _offer(prob, node, successors[row], room, waiting, waiting_probs, waiting_nodes)
        each *= probs[node]
        for token in frequent:
            prob = each * tokens[COUNT, token]
            if waiting == room and prob <= waiting_probs[0]:
                break  # the others are rarer
            if tokens[SEEN_BY, token] != context:
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
    return ids[drafted[: kept + 1]], parents[: kept + 1], probs[: kept + 1]


class BlendIndex:
    """A text that grows, and what the blend of all orders expects behind it; see the module.

    Args:
        text: (l,) token ids, each in [0, 2**31).
        escape: b, how readily a shorter context is asked as well.
        max_order: agreement beyond so many tokens makes no difference.
        num_frequent: how many of the most frequent tokens are drafted where they follow no occurrence.
        max_occurrences: how many occurrences of a token are looked at, the latest ones.
    """

    def __init__(
        self,
        text: Sequence[int] | IntArray = (),
        *,
        escape: float = 3.5,
        max_order: int = 8,
        num_frequent: int = 64,
        max_occurrences: int = 128,
    ) -> None:
        self.escape, self.max_order, self.max_occurrences = escape, max_order, max_occurrences
        self._size = self._num_tokens = self._num_ranked = self._context = 0
        self._text, self._before = np.empty(0, np.int32), np.empty(0, np.int32)
        self._ids, self._tokens = np.empty(0, np.int64), np.empty((NUM_ROWS, 0), np.int32)
        self._table = np.zeros(1, np.int32)
        self._frequent = np.empty(num_frequent, np.int32)
        self._reserve(2 * len(text) + 256)
        self.extend(text)

    def __len__(self) -> int:
        return self._size

    def _reserve(self, size: int) -> None:
        """Room for `size` positions, a path of a draft included, and for as many tokens."""
        if size <= len(self._text):
            return
        new = max(size, 2 * len(self._text))
        self._text, self._before, self._ids = (
            np.concatenate([old, np.empty(new - len(old), old.dtype)]) for old in (self._text, self._before, self._ids)
        )
        grown = np.empty((NUM_ROWS, new), np.int32)
        grown[:, : self._num_tokens] = self._tokens[:, : self._num_tokens]
        self._tokens = grown
        self._table = np.zeros(1 << (2 * new - 1).bit_length(), np.int32)
        _rehash(self._ids, self._num_tokens, self._table)

    def extend(self, new_ids: Sequence[int] | IntArray) -> None:
        """Add the (k,) tokens that follow."""
        ids = np.asarray(new_ids, np.int64)
        self._reserve(self._size + len(ids))
        self._num_tokens, self._num_ranked = _extend(
            ids,
            self._text,
            self._size,
            self._before,
            self._ids,
            self._table,
            self._num_tokens,
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
        self._reserve(self._size + len(prices))
        if self._context > 2**31 - 2 - len(prices):
            self._tokens[SEEN_BY] = self._context = 0
        ids, parents, probs = _draft(
            self._text,
            self._size,
            self._before,
            self._ids,
            self._tokens,
            self._num_tokens,
            self._frequent[: self._num_ranked],
            self._context,
            self.max_order,
            self.max_occurrences,
            self.escape,
            prices.costs,
            prices.least,
        )
        self._context += len(prices) + 1
        return DraftTree(ids, parents), probs


class BlendDrafter(Drafter):
    """Drafts the likeliest continuations of prompt and output under the blend of all orders; see the module.

    Args:
        num_draft: most nodes of a draft, `propose` takes its budget where that is smaller; or "auto": as many as pay
            under `cost`, at most `max_draft` (`StepPrices`).
        escape, max_order, num_frequent, max_occurrences: as in `BlendIndex`.
        cost: what steps cost, such as a `ngram_trie.cost.CostCurve`; for "auto" only.
        max_draft: most nodes of a draft if `num_draft` is "auto".

    Raises:
        ValueError: a value that is not allowed; the message names it and what is.
    """

    #: (m,) of the last draft: how likely each of its nodes was to be accepted, the root, 1, included.
    probs: FloatArray

    def __init__(
        self,
        *,
        num_draft: int | Literal["auto"] = 32,
        escape: float = 3.5,
        max_order: int = 8,
        num_frequent: int = 64,
        max_occurrences: int = 128,
        cost: StepCosts | None = None,
        max_draft: int = 64,
    ) -> None:
        if num_draft != "auto":
            if isinstance(num_draft, str):
                raise ValueError(f"num_draft={num_draft!r}: must be an integer of at least 1, or 'auto'")
            check_int("num_draft", num_draft, 1)
        elif cost is None:
            raise ValueError("num_draft='auto': needs cost, what steps cost")
        if not isinstance(escape, int | float) or isinstance(escape, bool) or not escape > 0:
            raise ValueError(f"escape={escape!r}: must be a number above 0")
        check_int("max_order", max_order, 1)
        check_int("num_frequent", num_frequent, 0)
        check_int("max_occurrences", max_occurrences, 1)
        check_int("max_draft", max_draft, 1)
        self.num_draft, self.max_draft, self.cost = num_draft, max_draft, cost
        if isinstance(num_draft, int):
            self._prices = StepPrices.free(num_draft)
        self._settings: dict[str, Any] = {
            "escape": float(escape),
            "max_order": max_order,
            "num_frequent": num_frequent,
            "max_occurrences": max_occurrences,
        }

    def start(self, prompt: Prompt) -> None:
        self._index = BlendIndex(prompt.ids, **self._settings)
        if self.num_draft == "auto":
            assert self.cost is not None
            nodes = range(self.max_draft + 1)
            self._prices = StepPrices.of(self.cost.step(nodes, [len(prompt.ids)] * len(nodes)))

    def observe(self, new_ids: Sequence[int]) -> None:
        self._index.extend(new_ids)

    def propose(self, budget: int) -> DraftTree:
        tree, self.probs = self._index.draft(self._prices.up_to(budget))
        return tree
