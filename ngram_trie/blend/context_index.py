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
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ngram_trie.blend.background import NOTHING, Background, expect, most_successors
from ngram_trie.blend.ppm import FloatArray, Numbers, Successors, blend_orders, count_occurrence, room_for
from ngram_trie.tree import DraftTree, Fields, IntArray, kernel

# Rows of `Index.tokens`: a token's latest place in the text, among rejected drafts, in earlier texts, and among drafts
# that were rejected there (-1: none), how often it is in the text, its rank among the most frequent (-1: none), and for
# counting successors: the context that saw it last, and its row there.
LAST, REJECTED, EARLIER, EARLIER_REJECTED, COUNT, RANK, SEEN_BY, ROW = range(8)
# Entries of `Index.sizes`: places, tokens that are numbered, those of them that the text has, those that are ranked,
# how many contexts were asked for, the length of the text, its last place, entries of `likely`, and places of earlier
# texts.
SIZE, NUM_TOKENS, NUM_KINDS, NUM_RANKED, CONTEXT, LENGTH, END, NUM_LIKELY, NUM_EARLIER = range(9)
#: Where a node's probability comes from: what followed in the text, the model's distributions there, those behind
#: rejected drafts, other texts, and order 0.
SOURCES = ("text", "model", "rejected", "elsewhere", "frequent")
#: Ends a distribution in `Index.likely`.
NO_MORE = -1


class Index(NamedTuple):
    """The text and its tokens, as compiled code reads and writes them. Capacities: c places, v tokens, r likely ones.

    A place is a token of the text, or one that was drafted behind it and rejected.

    Attributes:
        text: (c,) token numbers.
        back: (c,) the place that each stands behind; -1: none.
        before: (c,) of each place that of the same token before it, in the same chain; -1: none.
        follower: (c,) the token that followed; -1: none.
        soft: (c,) where in `likely` the model's distribution behind the place begins; -1: there is none.
        likely, probs: (r,) of each distribution the likeliest tokens, the likeliest first, and their probabilities; at
            its end stands `NO_MORE`.
        ids: (v,) the token of each number.
        slots: hash table from tokens to number + 1; 0 is empty, the size is a power of 2.
        tokens: (8, v) what is known of each token: rows LAST to ROW.
        frequent: (f,) the most frequent tokens, best first, as far as they are ranked.
        common: the most frequent tokens of the background.
        sizes: (9,) SIZE to NUM_EARLIER.
    """

    text: Numbers
    back: Numbers
    before: Numbers
    follower: Numbers
    soft: Numbers
    likely: Numbers
    probs: NDArray[np.float32]
    ids: IntArray
    slots: Numbers
    tokens: Numbers
    frequent: Numbers
    common: Numbers
    sizes: IntArray


class Part(NamedTuple):
    """Places of an index with what is known of them, in token ids: an answer that is remembered.

    Attributes:
        ids, back, followers, soft: (c,) as `text`, `back`, `follower` and `soft` of an `Index`; -1 also for what lies
            before the part.
        likely, probs: (r,) as there.
    """

    ids: IntArray
    back: Numbers
    followers: IntArray
    soft: Numbers
    likely: IntArray
    probs: NDArray[np.float32]


class Settings(NamedTuple):
    """Of `BlendIndex`."""

    escape: float
    max_order: int
    max_occurrences: int
    max_soft: int
    max_rejected: int
    num_likely: int
    hard: float
    soft: float


class Nodes(NamedTuple):
    """Candidates for a draft, or what was drafted.

    Attributes:
        tokens, parents: (m,) numbers of their tokens, and their parents' places in the draft.
        probs: (m,) how likely the text goes on along the path to each.
    """

    tokens: Numbers
    parents: IntArray
    probs: FloatArray


@njit(cache=True)
def _room_for_nodes(size: int) -> Nodes:
    """Room for this many nodes."""
    return Nodes(np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size))


class Scratch(NamedTuple):
    """What drafting keeps from node to node, and what it writes anew for each.

    Attributes:
        queue: the best candidates, the best of them last.
        depths: (m,) of the drafted nodes.
        successors, earlier, elsewhere: of the node's context, here, in earlier texts, and in the background.
        context, last_ids: (max_order,) the last tokens of the context, the last one first; numbers, and ids.
    """

    queue: Nodes
    depths: IntArray
    successors: Successors
    earlier: Successors
    elsewhere: Successors
    context: Numbers
    last_ids: IntArray


@kernel
def _slot(token: int, ids: IntArray, slots: Numbers) -> int:
    """Where `slots` holds `token`, or would hold it."""
    mask = len(slots) - 1
    mixed = token * 0x5851F42D4C957F2D  # wraps around
    slot = (mixed ^ (mixed >> 31)) & mask
    while slots[slot] != 0 and ids[slots[slot] - 1] != token:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _rehash(ids: IntArray, num_tokens: int, slots: Numbers) -> None:
    for number in range(num_tokens):
        slots[_slot(ids[number], ids, slots)] = number + 1


@kernel
def _enter(token: int, index: Index) -> int:
    """The number of `token`, which gets one if it is new."""
    slot = _slot(token, index.ids, index.slots)
    if index.slots[slot] == 0:
        number = index.sizes[NUM_TOKENS]
        index.sizes[NUM_TOKENS] += 1
        index.ids[number] = token
        index.tokens[:COUNT, number] = index.tokens[RANK, number] = -1
        index.tokens[COUNT, number] = index.tokens[SEEN_BY, number] = 0
        index.slots[slot] = number + 1
    return index.slots[slot] - 1


@njit(cache=True)
def _enter_all(new_ids: Numbers, index: Index) -> Numbers:
    numbers = np.empty(len(new_ids), np.int32)
    for at, token in enumerate(new_ids):
        numbers[at] = _enter(token, index)
    return numbers


@kernel
def _add(token: int, back: int, chain: int, index: Index) -> int:
    """A new place of `token` behind the place `back`, in one of the chains LAST to EARLIER_REJECTED."""
    place = index.sizes[SIZE]
    index.sizes[SIZE] += 1
    index.text[place], index.back[place] = token, back
    index.follower[place] = index.soft[place] = -1
    index.before[place] = index.tokens[chain, token]
    index.tokens[chain, token] = place
    return place


@njit(cache=True)
def _extend(new_ids: IntArray, fields: Fields) -> None:
    """Append `new_ids` to the text of an `Index`."""
    index = Index(*fields)
    tokens, sizes = index.tokens, index.sizes
    for new_id in new_ids:
        token = _enter(new_id, index)
        if sizes[END] >= 0:
            index.follower[sizes[END]] = token
        sizes[END] = _add(token, sizes[END], LAST, index)
        sizes[LENGTH] += 1
        sizes[NUM_KINDS] += tokens[COUNT, token] == 0
        tokens[COUNT, token] += 1
        _rank(token, index)


@njit(cache=True)
def _reject(tree_ids: IntArray, parents: IntArray, places: IntArray, fields: Fields) -> None:
    """Add what was drafted and rejected: of each node of a tree the place, where it is -1, is made and written."""
    index = Index(*fields)
    for node in range(len(tree_ids)):
        if places[node] < 0:
            places[node] = _add(_enter(tree_ids[node], index), places[parents[node]], REJECTED, index)


@njit(cache=True)
def _attach(places: IntArray, likely: IntArray, probs: FloatArray, least: float, fields: Fields) -> None:
    """Take the distributions (m, k) behind places (m,)."""
    index = Index(*fields)
    at = index.sizes[NUM_LIKELY]
    for row, place in enumerate(places):
        index.soft[place] = at
        for rank in range(likely.shape[1]):
            if probs[row, rank] < least:
                break
            index.likely[at], index.probs[at] = _enter(likely[row, rank], index), probs[row, rank]
            at += 1
        index.likely[at] = NO_MORE
        at += 1
    index.sizes[NUM_LIKELY] = at


@njit(cache=True)
def _recall(part_fields: Fields, fields: Fields) -> None:
    """Add the places of a `Part`; the text does not follow them."""
    index, part = Index(*fields), Part(*part_fields)
    base, base_likely = index.sizes[SIZE], index.sizes[NUM_LIKELY]
    for at, token in enumerate(part.ids):
        chain = EARLIER_REJECTED if part.followers[at] < 0 else EARLIER
        place = _add(_enter(token, index), base + part.back[at] if part.back[at] >= 0 else -1, chain, index)
        if part.followers[at] >= 0:
            index.follower[place] = _enter(part.followers[at], index)
        if part.soft[at] >= 0:
            index.soft[place] = base_likely + part.soft[at]
    for at, token in enumerate(part.likely):
        index.likely[base_likely + at] = token if token == NO_MORE else _enter(token, index)
        index.probs[base_likely + at] = part.probs[at]
    index.sizes[NUM_LIKELY] += len(part.likely)
    index.sizes[NUM_EARLIER] += len(part.ids)


@njit(cache=True)
def _rank(token: int, index: Index) -> None:
    """Move `token`, which has just been counted, to its place among the most frequent tokens."""
    tokens, frequent, num_ranked = index.tokens, index.frequent, index.sizes[NUM_RANKED]
    rank = tokens[RANK, token]
    if rank < 0:
        if num_ranked < len(frequent):
            rank = num_ranked
            index.sizes[NUM_RANKED] += 1
        elif num_ranked > 0 and tokens[COUNT, token] > tokens[COUNT, frequent[num_ranked - 1]]:
            rank = num_ranked - 1
            tokens[RANK, frequent[rank]] = -1
        else:
            return
    while rank > 0 and tokens[COUNT, frequent[rank - 1]] <= tokens[COUNT, token]:  # of equals the latest first
        frequent[rank] = frequent[rank - 1]
        tokens[RANK, frequent[rank]] = rank
        rank -= 1
    frequent[rank] = token
    tokens[RANK, token] = rank


@kernel
def _row_of(token: int, found: int, index: Index, successors: Successors) -> int:
    """The row of `token` among the `found` successors; `found`, where it is entered, if it is new."""
    if index.tokens[SEEN_BY, token] != index.sizes[CONTEXT]:
        index.tokens[SEEN_BY, token] = index.sizes[CONTEXT]
        index.tokens[ROW, token] = found
        successors.tokens[found] = token
    return index.tokens[ROW, token]


@kernel
def _count(
    token: int, length: int, weight: float, is_kind: bool, found: int, index: Index, successors: Successors
) -> int:
    """Count `token` behind an occurrence; returns how many successors there are now."""
    row = _row_of(token, found, index, successors)
    count_occurrence(successors, row, length, row == found, weight, is_kind)
    return max(found, row + 1)


@kernel
def _agreement(place: int, context: Numbers, index: Index) -> int:
    """How many tokens up to `place`, which holds the context's last one, agree with the context's end."""
    length, place = 1, index.back[place]
    while length < len(context) and place >= 0 and index.text[place] == context[length]:
        length += 1
        place = index.back[place]
    return length


@kernel
def _count_likely(soft: int, length: int, weight: float, found: int, index: Index, successors: Successors) -> int:
    """Count a distribution, its likeliest token as a kind; returns how many successors there are now."""
    at = soft
    while index.likely[at] != NO_MORE:
        share = weight * index.probs[at]
        found = _count(index.likely[at], length, share, at == soft, found, index, successors)
        at += 1
    return found


@kernel
def _count_successors(index: Index, settings: Settings, context: Numbers, chain: int, successors: Successors) -> int:
    """Count what followed the context in a text, and what the model would have had follow there and behind rejected
    drafts; returns how many successors there are.

    Args:
        chain: LAST for the text, EARLIER for those before it.
    """
    index.sizes[CONTEXT] += 1
    found, left, left_soft = 0, settings.max_occurrences, settings.max_soft
    place = index.tokens[chain, context[0]]
    while place >= 0 and left > 0:
        follower, soft = index.follower[place], index.soft[place]
        if follower >= 0 or soft >= 0:  # the end of the text has neither
            left -= 1
            length = _agreement(place, context, index)
            if follower >= 0:
                found = _count(follower, length, settings.hard, True, found, index, successors)
            if soft >= 0 and left_soft > 0:
                left_soft -= 1
                found = _count_likely(soft, length, settings.soft, found, index, successors)
        place = index.before[place]
    place, left = index.tokens[chain + 1, context[0]], settings.max_rejected
    while place >= 0 and left > 0:
        if index.soft[place] >= 0:
            left -= 1
            length = _agreement(place, context, index)
            found = _count_likely(index.soft[place], length, settings.soft, found, index, successors)
        place = index.before[place]
    return found


@kernel
def _add_share(token: int, share: float, found: int, index: Index, successors: Successors) -> int:
    """Give `token` a share more; returns how many successors there are now."""
    row = _row_of(token, found, index, successors)
    if row == found:
        successors.shares[row] = 0.0
    successors.shares[row] += share
    return max(found, row + 1)


@kernel
def _expect(
    index: Index, background: Background, settings: Settings, context: Numbers, scratch: Scratch
) -> tuple[int, float]:
    """What follows the context, its last token first, here, in earlier texts and elsewhere, in `scratch.successors`:
    how many there are, and the share that is left to order 0.
    """
    successors, earlier, elsewhere = scratch.successors, scratch.earlier, scratch.elsewhere
    escape = settings.escape * (settings.hard + settings.soft)
    num_earlier = _count_successors(index, settings, context, EARLIER, earlier)
    below = blend_orders(earlier, num_earlier, escape)
    found = _count_successors(index, settings, context, LAST, successors)
    left = blend_orders(successors, found, escape)
    for row in range(num_earlier):
        found = _add_share(earlier.tokens[row], left * earlier.shares[row], found, index, successors)
    left *= below
    last_ids = scratch.last_ids[: len(context)]
    for back in range(len(context)):
        last_ids[back] = index.ids[context[back]]
    more, below = expect(background, last_ids, settings.escape, elsewhere)
    for row in range(more):
        token = _enter(elsewhere.tokens[row], index)
        found = _add_share(token, left * elsewhere.shares[row], found, index, successors)
    return found, left * below


@kernel
def _offer(prob: float, parent: int, token: int, room: int, waiting: int, queue: Nodes) -> int:
    """Put a candidate among the `waiting` ones, the best of them last, unless `room` better ones are there; returns how
    many wait now. Of equals the first offered is the better one."""
    tokens, parents, probs = queue.tokens, queue.parents, queue.probs
    if waiting < room:
        at = waiting
        waiting += 1
        while at > 0 and probs[at - 1] >= prob:
            probs[at], parents[at], tokens[at] = probs[at - 1], parents[at - 1], tokens[at - 1]
            at -= 1
    elif room == 0 or prob <= probs[0]:
        return waiting
    else:
        at = 0
        while at + 1 < waiting and probs[at + 1] < prob:
            probs[at], parents[at], tokens[at] = probs[at + 1], parents[at + 1], tokens[at + 1]
            at += 1
    probs[at], parents[at], tokens[at] = prob, parent, token
    return waiting


@kernel
def _elsewhere(token: int, index: Index, background: Background) -> int:
    """How often a numbered token occurs elsewhere."""
    return background.counts[index.ids[token]] if index.ids[token] < len(background.counts) else 0


@kernel
def _offer_all(
    index: Index, background: Background, draft: Nodes, parent: int, found: int, left: float, waiting: int,
    scratch: Scratch,
) -> int:  # fmt: skip
    """Offer what may follow a drafted node: its `found` successors, and at order 0, whose share is `left`, the most
    frequent tokens here and elsewhere; returns how many candidates wait now.
    """
    successors, queue, prob = scratch.successors, scratch.queue, draft.probs[parent]
    room = len(draft.tokens) - 1 - parent
    tokens, common, context = index.tokens, index.common, index.sizes[CONTEXT]
    frequent = index.frequent[: index.sizes[NUM_RANKED]]
    here = prob * left / (index.sizes[LENGTH] + index.sizes[NUM_KINDS])  # what one occurrence is worth at order 0
    there = here * index.sizes[NUM_KINDS] / background.total if len(common) else 0.0  # what one elsewhere is worth
    for row in range(found):
        token = successors.tokens[row]
        share = prob * successors.shares[row] + here * tokens[COUNT, token]
        share += there * _elsewhere(token, index, background)
        waiting = _offer(share, parent, token, room, waiting, queue)
    most = there * _elsewhere(common[0], index, background) if len(common) else 0.0
    for token in frequent:
        share = here * tokens[COUNT, token]
        if waiting == room and share + most <= queue.probs[0]:
            break  # the others are rarer
        if tokens[SEEN_BY, token] != context:
            share += there * _elsewhere(token, index, background)
            waiting = _offer(share, parent, token, room, waiting, queue)
    rarest = here * tokens[COUNT, frequent[-1]] if len(frequent) else here * index.sizes[LENGTH]
    for token in common:
        share = there * _elsewhere(token, index, background)
        if waiting == room and share + rarest <= queue.probs[0]:
            break
        if tokens[SEEN_BY, token] != context and tokens[RANK, token] < 0:
            share += here * tokens[COUNT, token]
            waiting = _offer(share, parent, token, room, waiting, queue)
    return waiting


@kernel
def _grow(
    index: Index,
    background: Background,
    settings: Settings,
    draft: Nodes,
    scratch: Scratch,
) -> int:
    """Draft node by node, the likeliest first, as many as `draft` has room for; how many they are with the root."""
    depths, queue = scratch.depths, scratch.queue
    draft.tokens[0], draft.parents[0] = index.text[index.sizes[END]], -1
    draft.probs[0], depths[0] = 1.0, 0
    node, waiting = 0, 0
    while node + 1 < len(draft.tokens):
        context = scratch.context[: _lay_out(index, draft, node, scratch.context)]
        found, left = _expect(index, background, settings, context, scratch)
        waiting = _offer_all(index, background, draft, node, found, left, waiting, scratch)
        if waiting == 0 or queue.probs[waiting - 1] <= 0:
            break
        waiting -= 1
        node += 1
        draft.tokens[node], draft.parents[node] = queue.tokens[waiting], queue.parents[waiting]
        draft.probs[node] = queue.probs[waiting]
        depths[node] = depths[draft.parents[node]] + 1
    return node + 1


@kernel
def _lay_out(index: Index, draft: Nodes, node: int, context: Numbers) -> int:
    """Write the last tokens of the path to `node` and of the text before it, the last one first; how many they are."""
    length, place = 0, index.sizes[END]
    while length < len(context) and node > 0:
        context[length] = draft.tokens[node]
        node = draft.parents[node]
        length += 1
    while length < len(context) and place >= 0:
        context[length] = index.text[place]
        place = index.back[place]
        length += 1
    return length


@njit(cache=True)
def _scratch(max_nodes: int, index: Index, settings: Settings, background: Background) -> Scratch:
    """For drafts of this many nodes, the root counted."""
    more = most_successors(background)
    most = settings.max_occurrences + (settings.max_soft + settings.max_rejected) * settings.num_likely
    most_earlier = most if index.sizes[NUM_EARLIER] else 0
    return Scratch(
        _room_for_nodes(max_nodes),
        np.empty(max_nodes, np.int64),
        room_for(most + most_earlier + more, settings.max_order),
        room_for(most_earlier, settings.max_order),
        room_for(more, settings.max_order),
        np.empty(settings.max_order, np.int32),
        np.empty(settings.max_order, np.int64),
    )


@kernel
def _share(
    index: Index, settings: Settings, context: Numbers, worth: FloatArray, token: int, scratch: Scratch
) -> float:
    """What `token` has by the counts that `settings` take in, where one count of order k is worth worth[k]."""
    successors, share = scratch.successors, 0.0
    for row in range(_count_successors(index, settings, context, LAST, successors)):
        if successors.tokens[row] == token:
            count = 0.0
            for order in range(int(successors.counts[row, 0]), 0, -1):
                count += successors.counts[row, order]
                share += worth[order] * count
    return share


@njit(cache=True)
def _explain(
    draft_fields: Fields,
    index_fields: Fields,
    background_fields: Fields,
    settings_fields: Fields,
    hard_fields: Fields,
    soft_fields: Fields,
    rejected_fields: Fields,
) -> FloatArray:
    """As `BlendIndex.explain`; the last three are the settings under which one source alone counts."""
    index, background, settings = Index(*index_fields), Background(*background_fields), Settings(*settings_fields)
    draft = Nodes(*draft_fields)
    hard, soft, rejected = Settings(*hard_fields), Settings(*soft_fields), Settings(*rejected_fields)
    shares, scratch = np.zeros((len(draft.tokens), 5)), _scratch(len(draft.tokens), index, settings, background)
    worth = np.empty(settings.max_order + 1)
    for node in range(1, len(draft.tokens)):
        token, parent = draft.tokens[node], draft.parents[node]
        context = scratch.context[: _lay_out(index, draft, parent, scratch.context)]
        found, _ = _expect(index, background, settings, context, scratch)
        known = 0.0
        for row in range(found):
            if scratch.successors.tokens[row] == token:
                known = scratch.successors.shares[row]
        worth[:] = scratch.successors.weights[0]
        shares[node, 0] = _share(index, hard, context, worth, token, scratch)
        shares[node, 1] = _share(index, soft, context, worth, token, scratch)
        shares[node, 2] = _share(index, rejected, context, worth, token, scratch)
        shares[node, 3] = max(known - shares[node].sum(), 0.0)
        shares[node, 4] = max(draft.probs[node] / draft.probs[parent] - known, 0.0)
    return shares


@njit(cache=True)
def _draft(
    index_fields: Fields, background_fields: Fields, settings_fields: Fields, num_draft: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """Tokens, parents and path probabilities of the draft, the likeliest node first behind the root."""
    index, background, settings = Index(*index_fields), Background(*background_fields), Settings(*settings_fields)
    draft, scratch = _room_for_nodes(num_draft + 1), _scratch(num_draft + 1, index, settings, background)
    kept = _grow(index, background, settings, draft, scratch)
    return index.ids[draft.tokens[:kept]], draft.parents[:kept], draft.probs[:kept]


class BlendIndex:
    """A text that grows, and what the blend of all orders expects behind it; see the module.

    Args:
        text: (l,) token ids, each in [0, 2**31).
        escape: b, how readily a shorter context is asked as well.
        max_order: agreement beyond this many tokens makes no difference.
        num_frequent: how many of the most frequent tokens are drafted where they follow no occurrence.
        max_occurrences: how many occurrences of a token are looked at, the latest ones.
        num_likely: k, at most this many tokens of a distribution count; 0 for an index that takes none.
        least: and only those at least so likely.
        max_soft, max_rejected: how many distributions are looked at, the latest ones: of the text, of rejected drafts.
        hard, soft: what a token that followed counts, and what a distribution counts in all.
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
        num_likely: int = 0,
        least: float = 0.01,
        max_soft: int = 16,
        max_rejected: int = 16,
        hard: float = 1.0,
        soft: float = 0.0,
        background: Background = NOTHING,
    ) -> None:
        self._settings = Settings(escape, max_order, max_occurrences, max_soft, max_rejected, num_likely, hard, soft)
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
        self._index = self._index._replace(common=_enter_all(background.common, self._index))
        self.extend(text)

    def __len__(self) -> int:
        return int(self._index.sizes[LENGTH])

    def _reserve(self, size: int, num_tokens: int, num_likely: int = 0) -> None:
        """Room for `size` more places, as many more different tokens as said, and `num_likely` more entries."""
        old, sizes = self._index, self._index.sizes
        if (needed := sizes[SIZE] + size) > (held := len(old.text)):
            new, columns = max(needed, 2 * held), ("text", "back", "before", "follower", "soft")
            self._index = self._index._replace(**{name: np.resize(getattr(old, name), new) for name in columns})
        if (needed := sizes[NUM_LIKELY] + num_likely) > (held := len(old.likely)):
            new = max(needed, 2 * held)
            self._index = self._index._replace(likely=np.resize(old.likely, new), probs=np.resize(old.probs, new))
        if (needed := sizes[NUM_TOKENS] + num_tokens) > (held := len(old.ids)):
            new = max(needed, 2 * held)
            tokens, ids = np.empty((8, new), np.int32), np.resize(old.ids, new)
            tokens[:, :held] = old.tokens
            slots = np.zeros(1 << (2 * int(new) - 1).bit_length(), np.int32)
            _rehash(ids, sizes[NUM_TOKENS], slots)
            self._index = self._index._replace(ids=ids, tokens=tokens, slots=slots)

    @property
    def last_place(self) -> int:
        """Where the text's last token stands."""
        return int(self._index.sizes[END])

    def extend(self, new_ids: Sequence[int] | IntArray) -> IntArray:
        """Add the (k,) tokens that follow; returns their places."""
        ids, first = np.asarray(new_ids, np.int64), self._index.sizes[SIZE]
        self._reserve(len(ids), len(ids))
        _extend(ids, tuple(self._index))
        return np.arange(first, first + len(ids))

    def reject(self, tree: DraftTree, path: Sequence[int], places: IntArray) -> IntArray:
        """Add the nodes of a verified tree that are not in the text; returns the places of all its m nodes.

        Args:
            path, places: the accepted nodes, the root first, and where the text has them.
        """
        self._reserve(len(tree), len(tree))
        found = np.full(len(tree), -1, np.int64)
        found[list(path)] = places
        _reject(tree.tokens, tree.parents, found, tuple(self._index))
        return found

    def attach(self, places: IntArray, likely: IntArray, probs: FloatArray) -> None:
        """Take what the model said behind the places (m,): its likeliest tokens (m, k), the likeliest first, and their
        probabilities.
        """
        self._reserve(0, likely.size, likely.size + len(likely))
        _attach(places, likely, probs, self._least, tuple(self._index))

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
        _recall(tuple(part), tuple(self._index))

    def draft(self, num_draft: int) -> DraftTree:
        """The `num_draft` likeliest continuations of the text, which must not be empty; fewer if there are no more.

        Returns:
            The tree, its nodes in order of falling probability: that the text goes on along the path to the node.
        """
        self._begin(num_draft + 1)
        ids, parents, probs = _draft(tuple(self._index), self._fields, tuple(self._settings), num_draft)
        return DraftTree(ids, parents, probs=probs)

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
        settings = self._settings
        alone = (
            settings._replace(max_soft=0, max_rejected=0),
            settings._replace(hard=0.0, max_rejected=0),
            settings._replace(max_occurrences=0),
        )
        self._begin(4 * len(tree))
        draft = Nodes(_enter_all(tree.tokens.astype(np.int32), self._index), tree.parents, tree.probs)
        return _explain(
            tuple(draft), tuple(self._index), self._fields, tuple(settings), *(tuple(each) for each in alone)
        )
