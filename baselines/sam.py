"""SAM-Decoding (Hu et al. 2024, arXiv 2411.10666): copy what followed the longest suffix of the text that occurred
before, found in a suffix automaton.

The automaton is three flat arrays under numba. `states` (capacity, 5) holds a state a row, the initial one in row 0;
`edges` (capacity, 4) a transition a row; `table` is a hash table of these, by row + 1. A state's transitions are
chained, for the time when it is cloned. A text of k tokens has at most 2k states and 3k transitions.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ngram_trie.baselines.datastore import BORDER, Datastore, how_to_get
from ngram_trie.drafter import Drafter, State, Traits, check_bool, check_context, check_int, check_place, check_positive
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.store.hashing import empty_table, rehash_pairs, slot_of_pair
from ngram_trie.tree import DraftTree, Fields, IntArray

Rows: TypeAlias = NDArray[np.int32]

# Of a state: its longest string, its suffix link, where its strings first end, its newest transition, and how often its
# strings occurred, where that is counted.
LENGTH, LINK, FIRST_END, EDGES, COUNT = range(5)
# Of a transition: from where, by which token, to where, and the one that the same state got before.
SOURCE, TOKEN, TARGET, NEXT_EDGE = range(4)
# Of the automaton: tokens read, states, transitions, the state of the whole text; where strings are counted, the state
# and length of the longest that is.
SIZE, NUM_STATES, NUM_EDGES, LAST, REACHED, MATCHED = range(6)
NONE = -1


class Automaton(NamedTuple):
    """A suffix automaton as compiled code reads and writes it; see the module.

    Attributes:
        states: (capacity, LENGTH to COUNT).
        edges: (capacity, SOURCE to NEXT_EDGE).
        table: hash table of transitions.
        sizes: (6,) SIZE to MATCHED.
    """

    states: Rows
    edges: Rows
    table: Rows
    sizes: IntArray


@kernel
def _slot(automaton: Automaton, state: int, token: int) -> int:
    """Where the table holds the transition of `state` by `token`, or would hold it."""
    return slot_of_pair(state, token, automaton.table, automaton.edges[:, SOURCE], automaton.edges[:, TOKEN])


@kernel
def edge_of(automaton: Automaton, state: int, token: int) -> int:
    """The transition of `state` by `token`, or NONE."""
    return automaton.table[_slot(automaton, state, token)] - 1


@kernel
def _connect(automaton: Automaton, source: int, token: int, target: int) -> None:
    """Add a transition that is not there yet."""
    edge = automaton.sizes[NUM_EDGES]
    automaton.sizes[NUM_EDGES] += 1
    automaton.table[_slot(automaton, source, token)] = edge + 1
    new = automaton.edges[edge]
    new[SOURCE], new[TOKEN], new[TARGET], new[NEXT_EDGE] = source, token, target, automaton.states[source, EDGES]
    automaton.states[source, EDGES] = edge


@kernel
def append(automaton: Automaton, token: int) -> None:
    """Blumer et al.'s online construction, one token."""
    states, edges, _, sizes = automaton
    sizes[SIZE] += 1
    current, state = sizes[NUM_STATES], sizes[LAST]
    sizes[NUM_STATES] += 1
    states[current] = 0
    states[current, LENGTH] = states[current, FIRST_END] = sizes[SIZE]
    states[current, EDGES] = NONE
    found = NONE
    while state != NONE:
        found = edge_of(automaton, state, token)
        if found != NONE:
            break
        _connect(automaton, state, token, current)
        state = states[state, LINK]
    if state != NONE:
        target = edges[found, TARGET]
        if states[target, LENGTH] != states[state, LENGTH] + 1:
            target = _clone(automaton, target, state, token)
        states[current, LINK] = target
    sizes[LAST] = current


@kernel
def _clone(automaton: Automaton, target: int, state: int, token: int) -> int:
    """Give the strings of `target` that are no longer than those of `state` and `token` a state of their own."""
    states, edges, _, sizes = automaton
    clone = sizes[NUM_STATES]
    sizes[NUM_STATES] += 1
    for field in range(states.shape[1]):  # the link, the first end and the count, too
        states[clone, field] = states[target, field]
    states[clone, LENGTH] = states[state, LENGTH] + 1
    states[clone, EDGES] = NONE
    edge = states[target, EDGES]
    while edge != NONE:
        _connect(automaton, clone, edges[edge, TOKEN], edges[edge, TARGET])
        edge = edges[edge, NEXT_EDGE]
    while state != NONE:
        found = edge_of(automaton, state, token)
        if found == NONE or edges[found, TARGET] != target:
            break
        edges[found, TARGET] = clone
        state = states[state, LINK]
    states[target, LINK] = clone
    return clone


@compiled
def _extend(new_ids: IntArray, fields: Fields) -> None:
    automaton = Automaton(*fields)
    for token in new_ids:
        append(automaton, token)


@compiled
def _match(states: Rows, last: int, position: int, followers: int) -> tuple[int, int]:
    """The longest suffix that occurred before with at least `followers` tokens after its first occurrence: its length,
    0 if there is none, and where that occurrence ends."""
    state = states[last, LINK]
    while state > 0 and position - states[state, FIRST_END] < followers:
        state = states[state, LINK]
    if state <= 0:
        return 0, 0
    return states[state, LENGTH], states[state, FIRST_END]


@compiled
def _follow(new_ids: IntArray, fields: Fields, state: int, length: int) -> tuple[int, int]:
    """The state and length of the longest suffix that is a string of the automaton, after `new_ids`."""
    automaton = Automaton(*fields)
    for token in new_ids:
        edge = edge_of(automaton, state, token)
        while edge == NONE and state != 0:
            state = automaton.states[state, LINK]
            length = automaton.states[state, LENGTH]
            edge = edge_of(automaton, state, token)
        if edge != NONE:
            state = automaton.edges[edge, TARGET]
            length += 1
    return state, length


@compiled
def _first_that_goes_on(states: Rows, edges: Rows, tokens: IntArray, state: int, length: int) -> tuple[int, int]:
    """Of the last `length` tokens, which are a string of `state`, the longest suffix that a token follows somewhere:
    its length, 0 if there is none, and where its first such occurrence ends."""
    while state > 0:
        end = int(states[state, FIRST_END])
        if end < len(tokens) and tokens[end] != BORDER:
            return length, end
        # What follows by a transition follows first where the strings of its target first end.
        first = len(tokens) + 1
        edge = states[state, EDGES]
        while edge != NONE:
            if edges[edge, TOKEN] != BORDER:
                first = min(first, int(states[edges[edge, TARGET], FIRST_END]))
            edge = edges[edge, NEXT_EDGE]
        if first <= len(tokens):
            return length, first - 1
        state = states[state, LINK]
        length = states[state, LENGTH]
    return 0, 0


class SuffixAutomaton:
    """Online suffix automaton of a growing text, with the first end of every state's strings (`min_endpos`).

    The whole text's state is linked to the state of its longest suffix that ended earlier as well, so the match that
    SAM-Decoding follows token by token is that link: a token costs amortised constant time, a look-up next to none.

    Args:
        text: (k,) token ids, each in [0, 2**31).
    """

    def __init__(self, text: Sequence[int] | IntArray = ()) -> None:
        nothing = np.empty((0, 4), np.int32)
        self._automaton = Automaton(np.empty((0, 5), np.int32), nothing, nothing[:, 0], np.zeros(6, np.int64))
        self._text = np.empty(0, np.int64)
        self._reserve(len(text) + 256)
        self._automaton.states[0] = 0
        self._automaton.states[0, LINK] = self._automaton.states[0, EDGES] = NONE
        self._automaton.sizes[NUM_STATES] = 1
        self.extend(text)

    def __len__(self) -> int:
        """Number of tokens."""
        return int(self._automaton.sizes[SIZE])

    def _reserve(self, num_new: int) -> None:
        """Make room for `num_new` tokens, with the hash at most three quarters full."""
        needed = len(self) + num_new
        if needed <= len(self._text):
            return
        capacity = max(needed, 2 * len(self._text))
        self._text = np.concatenate([self._text[: len(self)], np.empty(capacity - len(self), np.int64)])
        old = self._automaton
        states, edges = np.empty((2 * capacity + 2, 5), np.int32), np.empty((3 * capacity + 3, 4), np.int32)
        states[: len(old.states)], edges[: len(old.edges)] = old.states, old.edges
        self._automaton = Automaton(states, edges, empty_table(2 * capacity + 2), old.sizes)
        known = edges[: old.sizes[NUM_EDGES]]
        rehash_pairs(known[:, SOURCE], known[:, TOKEN], self._automaton.table)

    def extend(self, new_ids: Sequence[int] | IntArray) -> None:
        """Add the (k,) tokens that follow."""
        ids = np.asarray(new_ids, np.int64)
        self._reserve(len(ids))
        self._text[len(self) : len(self) + len(ids)] = ids
        self._append(ids)

    def _append(self, ids: IntArray) -> None:
        _extend(ids, tuple(self._automaton))

    def begin_text(self) -> None:
        """What is added from here on is another text: no string of the automaton spans the border."""
        self.extend([BORDER])

    def match(self, followers: int = 1) -> tuple[int, int]:
        """The longest suffix of the text whose first occurrence has at least `followers` >= 1 tokens after it.

        Returns:
            Its length, 0 if there is none, and where its first occurrence ends: the position of the token after it.
        """
        length, end = _match(self._automaton.states, self._automaton.sizes[LAST], len(self), followers)
        return int(length), int(end)

    def first_end(self, token: int) -> int:
        """Where `token`, which the text holds, first occurred: the position after it."""
        return int(self._automaton.states[self.follow([token], 0, 0)[0], FIRST_END])

    def follow(self, new_ids: Sequence[int] | IntArray, state: int, length: int) -> tuple[int, int]:
        """Match another text as it grows: from the (state, length) of its longest suffix to those after `new_ids`."""
        ids = np.asarray(new_ids, np.int64)
        state, length = _follow(ids, tuple(self._automaton), state, length)
        return int(state), int(length)

    def first_that_goes_on(self, state: int, length: int) -> tuple[int, int]:
        """For the (state, length) that `follow` ends in: the longest suffix of the other text that occurs in a text of
        the automaton with a token after it.

        Returns:
            Its length, 0 if there is none, and where its first such occurrence ends: the position of the next token.
        """
        states, edges, *_ = self._automaton
        found, end = _first_that_goes_on(states, edges, self._text[: len(self)], state, length)
        return int(found), int(end)

    def copied(self, start: int, count: int) -> IntArray:
        """(k,) at most `count` tokens of the text from `start` on, none behind a border."""
        tokens = self._text[start : min(start + count, len(self))]
        borders = np.flatnonzero(tokens == BORDER)
        return tokens[: borders[0]] if len(borders) else tokens


@functools.lru_cache(maxsize=1)
def static_automaton(folder: Path, digest: str) -> SuffixAutomaton:
    """The automaton of a datastore's documents, built once in a process: about 120 bytes a token.
    `digest` tells apart what a folder holds at different times.
    """
    return SuffixAutomaton(Datastore(folder).tokens.astype(np.int64))


class SAMDecoding(Drafter):
    """SAM-Decoding (section 3 of the paper). Its dynamic automaton: the longest suffix of prompt and output that
    occurred before, at any length, is followed from its earliest occurrence; what came next is drafted as a chain. With
    a datastore also its static automaton, of other texts, used in the same way.

    Of the two matches the dynamic one is followed, unless the static one is longer by more than `static_bias` tokens.
    Where the chosen match, the bias taken off, is shorter than `min_match`, nothing is drafted. Both automata of the
    release keep the first end of every string, `min_endpos` (an older revision kept the most frequent successors of
    each state instead); so it is here, but for occurrences that end a document, which nothing follows: of a static
    match the first that goes on is taken.

    The settings come in two sets (read from hyx1999/SAM-Decoding, `samd/draft.py` and `samd/sam`; revisions differ):

    - alone, the defaults: no bias, no threshold, at most `alpha` = 4 tokens drafted for each matched one, 40 tokens a
      step with the pending one (`n_predicts`);
    - beside another drafter (`baselines.sam_token_recycling`): the paper's l_bias = l_threshold = 5, no alpha, and of
      the dynamic match the longest suffix that all the tokens follow (`require_full`, their `to_anc`).

    Alone, the release drafts a static match as a tree of its most frequent continuations; here it is a chain from the
    first occurrence, as in the paper. Where nothing matches it drafts the beginning of the text; here nothing.

    Args:
        num_draft: most tokens drafted; `propose` takes its budget where that is smaller.
        min_match: shortest match that is followed.
        alpha: most tokens drafted for each matched token; None sets no such limit.
        require_full: from the dynamic match go down to the longest suffix of which all the tokens that may be drafted
            follow the earliest occurrence; if there is none, to the last token.
        context: the part of the prompt that the automaton is built from (`Prompt.part`). If it is not the prompt's end,
            no match reaches from the output back into it.
        datastore: folder that `scripts.build_datastore` wrote, whose texts the static automaton is made of; None for
            none. The drafter's state is then "preloaded". The automaton is built by `bind`, in memory.
        static_bias: a static match is followed where it is longer than the dynamic one by more than this many tokens.
    """

    traits = Traits(scores_nodes=True, drafts_chains=True)
    not_sent = ("_static",)  # another process builds its own

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """Without `alpha`, for the reason that `SuffixDecoding.sized` gives."""
        return {"num_draft": num_nodes, "alpha": None}

    def __init__(
        self,
        *,
        num_draft: int = 39,
        min_match: int = 1,
        alpha: float | None = 4.0,
        require_full: bool = False,
        context: str = "prompt",
        datastore: str | None = None,
        static_bias: int = 0,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("min_match", min_match, 1)
        if alpha is not None:
            check_positive("alpha", alpha, ", or null for no limit")
        check_bool("require_full", require_full)
        check_context(context)
        check_int("static_bias", static_bias, 0)
        if datastore is not None:
            check_place("datastore", datastore)
        self.datastore = Path(datastore) if datastore else None
        state: State = "preloaded" if self.datastore else "cold"
        self.traits = replace(self.traits, state=state, context=context)
        self.static_bias = static_bias
        self.num_draft, self.min_match, self.alpha = num_draft, min_match, alpha
        self.require_full, self.context = require_full, context

    def parts(self) -> Mapping[Path, str]:
        return {self.datastore / "header.json": how_to_get(self.datastore)} if self.datastore else {}

    def bind(self, target: Any) -> None:
        """Raises:
        FileNotFoundError, ValueError: no usable datastore (`Datastore`).
        """
        if self.datastore:
            Datastore(self.datastore).check(target.model)
            _ = self._static  # built here, beside the clock

    @functools.cached_property
    def _static(self) -> SuffixAutomaton | None:
        return static_automaton(self.datastore, Datastore(self.datastore).digest) if self.datastore else None

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        if self._static:
            self._static_match = self._static.follow(prompt.ids, 0, 0)
        self._automaton = SuffixAutomaton(prompt.part(self.context))
        if not prompt.ends_with(self.context):
            self._automaton.begin_text()

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._automaton.extend(new_ids)
        if self._static:
            self._static_match = self._static.follow(new_ids, *self._static_match)

    def propose(self, budget: int) -> DraftTree:
        limit = min(self.num_draft, budget)
        source, bias = self._automaton, 0
        length, start = source.match()
        if self._static:
            static_length, static_start = self._static.first_that_goes_on(*self._static_match)
            if static_length - self.static_bias > length:
                source, length, start, bias = self._static, static_length, static_start, self.static_bias
        if length - bias < self.min_match:
            return DraftTree.root_only(self.root)
        if self.require_full and source is self._automaton:
            start = source.match(limit)[1] or source.first_end(self.root)
        if self.alpha is not None:
            limit = int(min(limit, self.alpha * length))
        return DraftTree.copied(self.root, source.copied(start, limit), length)
