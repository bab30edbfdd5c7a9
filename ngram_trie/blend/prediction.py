"""What follows a context in an index of occurrences, and the draft of its likeliest continuations.

What follows a context is counted when it is asked for, over the latest occurrences of its last token, by walking back
from each. The draft is grown best-first: each drafted node offers what may follow it, and the likeliest offer of all is
drafted next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ngram_trie.blend.background import Background, expect, most_successors
from ngram_trie.blend.occurrences import (
    CONTEXT,
    COUNT,
    EARLIER,
    END,
    LAST,
    LENGTH,
    NO_MORE,
    NUM_EARLIER,
    NUM_KINDS,
    NUM_RANKED,
    RANK,
    ROW,
    SEEN_BY,
    Index,
    enter,
)
from ngram_trie.blend.ppm import FloatArray, Numbers, Successors, blend_orders, count_occurrence, room_for
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.tree import Fields, IntArray

#: Where a node's probability comes from: what followed in the text, the model's distributions there, those behind
#: rejected drafts, other texts, and order 0.
SOURCES = ("text", "model", "rejected", "elsewhere", "frequent")

#: Rows of `Settings.shares`, which has two; of `Scratch.given`, which has these.
HARD, SOFT, REJECTED = range(3)
#: For `_expect`: no token is followed.
NO_TOKEN = -1

#: Distributions at places that agree in so many tokens count however many there are.
ALWAYS = 2


class Settings(NamedTuple):
    """Of `BlendIndex`; `shares` (2, 1 + max_order) are what a token that followed counts at an occurrence of each
    length, and what a distribution counts in all."""

    escape: float
    max_order: int
    max_occurrences: int
    max_soft: int
    max_rejected: int
    top_k: int
    shares: FloatArray


class Nodes(NamedTuple):
    """Candidates for a draft, or what was drafted.

    Attributes:
        tokens, parents: (m,) numbers of their tokens, and their parents' places in the draft.
        probs: (m,) how likely the text goes on along the path to each.
    """

    tokens: Numbers
    parents: IntArray
    probs: FloatArray


#: For `credit_or_draft`.
NO_CHAIN = tuple(Nodes(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0)))


@kernel(_nrt=True)
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
        given: (3, 1 + max_order) what occurrences of each length give to the share of one token: by tokens that
            followed, by distributions, and by those behind rejected drafts.
    """

    queue: Nodes
    depths: IntArray
    successors: Successors
    earlier: Successors
    elsewhere: Successors
    context: Numbers
    last_ids: IntArray
    given: FloatArray


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
    token: int, length: int, weight: float, is_kind: bool, found: int, index: Index, successors: Successors,
    wanted: int, given: FloatArray,
) -> int:  # fmt: skip
    """Count `token` behind an occurrence, in `given` as well if it is the wanted one; returns how many successors there
    are now.
    """
    if token == wanted:
        given[length] += weight
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
def _count_likely(
    soft: int, length: int, weight: float, found: int, index: Index, successors: Successors, wanted: int,
    given: FloatArray,
) -> int:  # fmt: skip
    """Count a distribution, its likeliest token as a kind; returns how many successors there are now."""
    at = soft
    while index.likely[at] != NO_MORE:
        share = weight * index.probs[at]
        found = _count(index.likely[at], length, share, at == soft, found, index, successors, wanted, given)
        at += 1
    return found


@kernel
def _count_successors(
    index: Index, settings: Settings, context: Numbers, chain: int, successors: Successors, wanted: int,
    given: FloatArray,
) -> int:  # fmt: skip
    """Count what followed the context in a text, and what the model would have had follow there and behind rejected
    drafts; returns how many successors there are.

    Args:
        chain: LAST for the text, EARLIER for those before it.
        wanted, given: a token, and to what its own counts are added, as in `Scratch`; NO_TOKEN for none.
    """
    hard_share, soft_share, by_hard, by_soft = settings.shares[HARD], settings.shares[SOFT], given[HARD], given[SOFT]
    index.sizes[CONTEXT] += 1
    found, left, left_soft = 0, settings.max_occurrences, settings.max_soft
    place = index.tokens[chain, context[0]]
    while place >= 0 and left > 0:
        follower, soft = index.follower[place], index.soft[place]
        if follower >= 0 or soft >= 0:  # the end of the text has neither
            left -= 1
            length = _agreement(place, context, index)
            if follower >= 0:
                found = _count(follower, length, hard_share[length], True, found, index, successors, wanted, by_hard)
            if soft >= 0 and (left_soft > 0 or (length >= ALWAYS and settings.max_soft > 0)):
                left_soft -= length < ALWAYS
                found = _count_likely(soft, length, soft_share[length], found, index, successors, wanted, by_soft)
        place = index.before[place]
    by_rejected = given[REJECTED]
    place, left, left_soft = index.tokens[chain + 1, context[0]], settings.max_occurrences, settings.max_rejected
    while place >= 0 and left > 0 and settings.max_rejected > 0:
        soft = index.soft[place]
        if soft >= 0:
            left -= 1
            length = _agreement(place, context, index)
            if left_soft > 0 or length >= ALWAYS:
                left_soft -= length < ALWAYS
                found = _count_likely(soft, length, soft_share[length], found, index, successors, wanted, by_rejected)
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
    index: Index, background: Background, settings: Settings, context: Numbers, scratch: Scratch, wanted: int
) -> tuple[int, float]:
    """What follows the context, its last token first, here, in earlier texts and elsewhere, in `scratch.successors`:
    how many there are, and the share that is left to order 0. In `scratch.given`, what gives to the share of `wanted`.
    """
    successors, earlier, elsewhere = scratch.successors, scratch.earlier, scratch.elsewhere
    num_earlier = _count_successors(index, settings, context, EARLIER, earlier, NO_TOKEN, scratch.given)
    below = blend_orders(earlier, num_earlier, settings.escape)
    for source in range(len(scratch.given)):
        for length in range(scratch.given.shape[1]):
            scratch.given[source, length] = 0.0
    found = _count_successors(index, settings, context, LAST, successors, wanted, scratch.given)
    left = blend_orders(successors, found, settings.escape)
    worth = 0.0  # what one count of an occurrence of such a length is
    for length in range(1, scratch.given.shape[1]):
        worth += successors.weights[0, length]
        for source in range(len(scratch.given)):
            scratch.given[source, length] *= worth
    for row in range(num_earlier):
        found = _add_share(earlier.tokens[row], left * earlier.shares[row], found, index, successors)
    left *= below
    last_ids = scratch.last_ids[: len(context)]
    for back in range(len(context)):
        last_ids[back] = index.ids[context[back]]
    more, below = expect(background, last_ids, settings.escape, elsewhere)
    for row in range(more):
        token = enter(elsewhere.tokens[row], index)
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
def _grow(index: Index, background: Background, settings: Settings, draft: Nodes, scratch: Scratch) -> int:
    """Draft node by node, the likeliest first, as many as `draft` has room for; how many they are with the root."""
    depths, queue = scratch.depths, scratch.queue
    draft.tokens[0], draft.parents[0] = index.text[index.sizes[END]], -1
    draft.probs[0], depths[0] = 1.0, 0
    node, waiting = 0, 0
    while node + 1 < len(draft.tokens):
        context = scratch.context[: _lay_out(index, draft, node, scratch.context)]
        found, left = _expect(index, background, settings, context, scratch, NO_TOKEN)
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


@kernel(_nrt=True)
def _scratch(max_nodes: int, index: Index, settings: Settings, background: Background) -> Scratch:
    """For drafts of this many nodes, the root counted."""
    more = most_successors(background)
    most = settings.max_occurrences * (1 + 2 * settings.top_k)
    most_earlier = most if index.sizes[NUM_EARLIER] else 0
    return Scratch(
        _room_for_nodes(max_nodes),
        np.empty(max_nodes, np.int64),
        room_for(most + most_earlier + more, settings.max_order),
        room_for(most_earlier, settings.max_order),
        room_for(more, settings.max_order),
        np.empty(settings.max_order, np.int32),
        np.empty(settings.max_order, np.int64),
        np.empty((3, settings.max_order + 1)),
    )


@kernel
def _known(token: int, found: int, successors: Successors) -> float:
    """The share of `token` among the `found` successors."""
    for row in range(found):
        if successors.tokens[row] == token:
            return successors.shares[row]
    return 0.0


@compiled
def explain(
    draft_fields: Fields, index_fields: Fields, background_fields: Fields, settings_fields: Fields
) -> FloatArray:
    """As `BlendIndex.explain`."""
    index, background, settings = Index(*index_fields), Background(*background_fields), Settings(*settings_fields)
    draft = Nodes(*draft_fields)
    shares, scratch = np.zeros((len(draft.tokens), 5)), _scratch(len(draft.tokens), index, settings, background)
    for node in range(1, len(draft.tokens)):
        token, parent = draft.tokens[node], draft.parents[node]
        context = scratch.context[: _lay_out(index, draft, parent, scratch.context)]
        found, _ = _expect(index, background, settings, context, scratch, token)
        known = _known(token, found, scratch.successors)
        for source in range(len(scratch.given)):
            for length in range(1, scratch.given.shape[1]):
                shares[node, source] += scratch.given[source, length]
        shares[node, 3] = max(known - shares[node].sum(), 0.0)
        shares[node, 4] = max(draft.probs[node] / draft.probs[parent] - known, 0.0)
    return shares


@kernel(_nrt=True)
def _credit(
    index: Index, background: Background, settings: Settings, chain: Nodes, credits: FloatArray, scratch: Scratch
) -> None:
    """Credit either source with the tokens of a chain, and divide each length's shares anew."""
    given = scratch.given
    for node in range(1, len(chain.tokens)):
        token = chain.tokens[node]
        context = scratch.context[: _lay_out(index, chain, chain.parents[node], scratch.context)]
        found, _ = _expect(index, background, settings, context, scratch, token)
        known = _known(token, found, scratch.successors)
        if known <= 0:
            continue
        for length in range(1, given.shape[1]):
            credits[HARD, length] += given[HARD, length] / known
            credits[SOFT, length] += (given[SOFT, length] + given[REJECTED, length]) / known
            whole = credits[HARD, length] + credits[SOFT, length]
            settings.shares[HARD, length] = credits[HARD, length] / whole
            settings.shares[SOFT, length] = credits[SOFT, length] / whole


@compiled
def credit_or_draft(
    chain_fields: Fields,
    index_fields: Fields,
    background_fields: Fields,
    settings_fields: Fields,
    credits: FloatArray,
    num_draft: int,
) -> tuple[IntArray, IntArray, FloatArray]:
    """What `BlendIndex.credit` does, or what `BlendIndex.draft` returns: one function, since most of both is what is
    expected behind a context, which takes longest to compile.

    Args:
        chain_fields: the text's last token and those behind it, as a draft; none (`NO_CHAIN`) to draft.
        credits: (2, 1 + max_order), which are added to.

    Returns:
        Tokens, parents and path probabilities of the draft, the likeliest node first behind the root.
    """
    index, background, settings = Index(*index_fields), Background(*background_fields), Settings(*settings_fields)
    chain, draft = Nodes(*chain_fields), _room_for_nodes(num_draft + 1)
    scratch, kept = _scratch(max(len(chain.tokens), num_draft + 1), index, settings, background), 0
    if len(chain.tokens):
        _credit(index, background, settings, chain, credits, scratch)
    else:
        kept = _grow(index, background, settings, draft, scratch)
    ids = np.empty(kept, np.int64)
    for node in range(kept):
        ids[node] = index.ids[draft.tokens[node]]
    return ids, draft.parents[:kept], draft.probs[:kept]
