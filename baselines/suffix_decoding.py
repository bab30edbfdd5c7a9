"""SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975): a draft tree of the likeliest continuations, by how often each
followed the last tokens before.

Its suffix tree is kept as a suffix automaton with the number of occurrences of every state's strings (`baselines.sam`):
a path of the tree is a path of the automaton, and its count the same, for far fewer nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ngram_trie.baselines.datastore import BORDER
from ngram_trie.baselines.sam import (
    COUNT,
    EDGES,
    FIRST_END,
    LAST,
    LENGTH,
    LINK,
    MATCHED,
    NEXT_EDGE,
    NONE,
    REACHED,
    TARGET,
    TOKEN,
    Automaton,
    SuffixAutomaton,
    append,
    edge_of,
)  # fmt: skip
from ngram_trie.drafter import (
    State,
    Traits,
    check_bool,
    check_choice,
    check_context,
    check_int,
    check_positive,
    check_share,
)
from ngram_trie.memory import Key, Memory, RememberingDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled
from ngram_trie.tree import DraftTree, Fields, FloatArray, IntArray
from ngram_trie.trie import Ties

Totals = Literal["followers", "occurrences"]


class Rules(NamedTuple):
    """How drafts are made: the settings of `SuffixDecoding`, `alpha` infinite for no limit, `siblings` for totals of
    "followers", `tie_order` 1 for "shallow" and -1 for "deep"."""

    num_draft: int
    alpha: float
    max_depth: int
    min_prob: float
    siblings: bool
    tie_order: int


@compiled
def _extend_counted(new_ids: IntArray, fields: Fields, max_depth: int) -> None:
    """Append `new_ids`, counting strings of at most `max_depth` tokens."""
    automaton = Automaton(*fields)
    states, sizes = automaton.states, automaton.sizes
    for token in new_ids:
        append(automaton, token)
        reached, matched = sizes[REACHED], sizes[MATCHED]
        # It may just have been cloned; the clone then holds its shorter strings.
        while reached != 0 and states[states[reached, LINK], LENGTH] >= matched:
            reached = states[reached, LINK]
        reached = automaton.edges[edge_of(automaton, reached, token), TARGET]
        matched = min(matched + 1, max_depth)
        while states[states[reached, LINK], LENGTH] >= matched:
            reached = states[reached, LINK]
        sizes[REACHED], sizes[MATCHED] = reached, matched
        while reached != 0:
            states[reached, COUNT] += 1
            reached = states[reached, LINK]


@compiled
def _followers(automaton: Automaton, state: int) -> int:
    """How many tokens followed the strings of `state`."""
    states, edges = automaton.states, automaton.edges
    total, edge = 0, states[state, EDGES]
    while edge != NONE:
        if edges[edge, TOKEN] != BORDER:
            total += states[edges[edge, TARGET], COUNT]
        edge = edges[edge, NEXT_EDGE]
    return total


@compiled
def _expand(
    automaton: Automaton,
    top: int,
    num_draft: int,
    max_depth: int,
    rules: Rules,
    tokens: IntArray,
    parents: IntArray,
    probs: FloatArray,
) -> tuple[int, float, bool]:
    """The `num_draft` likeliest nodes below `top`, written to `tokens`, `parents` and `probs` behind the root. What is
    written is less than what is ordered by, as if `top` had been followed once more, by something new.

    Returns:
        Number of nodes with the root, the sum of their probabilities, and whether `max_depth` left any out.
    """
    states, edges = automaton.states, automaton.edges
    size, score, cut, trust = 1, 0.0, False, 1.0
    node_state, prob, depth, parent = top, 1.0, 0, 0
    # (minus the probability, what decides between equal ones: depth and first occurrence, transition, parent)
    heap = [(0.0, 0, 0, 0, 0) for _ in range(0)]
    while True:
        total = _followers(automaton, node_state) if rules.siblings else states[node_state, COUNT]
        if size == 1:
            trust = total / (total + 1)
        edge = states[node_state, EDGES]
        while edge != NONE:
            if edges[edge, TOKEN] != BORDER:
                if depth == max_depth:
                    cut = True
                    break
                target = edges[edge, TARGET]
                child_prob = prob * (states[target, COUNT] / total)
                if child_prob >= rules.min_prob:
                    decides = states[target, FIRST_END] + 0
                    heappush(heap, (-child_prob, rules.tie_order * (depth + 1), decides, edge + 0, parent))
            edge = edges[edge, NEXT_EDGE]
        if len(heap) == 0 or size > num_draft:
            return size, score, cut
        negated, ordered_depth, _, edge, above = heappop(heap)
        prob, depth = -negated, rules.tie_order * ordered_depth
        node_state, parent = edges[edge, TARGET], size
        tokens[size], parents[size], probs[size] = edges[edge, TOKEN], above, prob * trust
        score += prob
        size += 1


@compiled
def _best_draft(
    fields: Fields, state: int, length: int, rules_fields: Fields
) -> tuple[float, IntArray, IntArray, FloatArray]:
    """Of the trees behind every suffix of at most `length` tokens, the last ones of `state`, that of the best score."""
    automaton, rules = Automaton(*fields), Rules(*rules_fields)
    states, num_draft, max_depth = automaton.states, rules.num_draft, rules.max_depth
    best = 0.0
    kept = 1
    tokens, parents = np.empty(num_draft + 1, np.int64), np.empty(num_draft + 1, np.int64)
    probs = np.empty(num_draft + 1)
    best_tokens, best_parents, best_probs = tokens.copy(), parents.copy(), probs.copy()
    while state > 0:
        shortest = states[states[state, LINK], LENGTH] + 1
        for matched in range(min(length, max_depth - 1), shortest - 1, -1):
            limit = int(min(float(num_draft), rules.alpha * matched + 1e-6))
            size, score, cut = _expand(automaton, state, limit, max_depth - matched, rules, tokens, parents, probs)
            if score > best:  # the longest match first, so ties are its
                best, kept = score, size
                best_tokens[:size] = tokens[:size]
                best_parents[:size] = parents[:size]
                best_probs[:size] = probs[:size]
            # Shorter suffixes of this state go on in the same ways; they can only win by the room below them.
            if not cut:
                break
        state = states[state, LINK]
        length = states[state, LENGTH]
    best_parents[0], best_probs[0] = -1, 1.0
    return best, best_tokens[:kept].copy(), best_parents[:kept].copy(), best_probs[:kept].copy()


class CountedAutomaton(SuffixAutomaton):
    """A suffix automaton that knows how often each string of at most `max_depth` tokens occurred.

    A token costs at most `max_depth` increments; in most texts a few.
    """

    def __init__(self, text: Sequence[int] | IntArray = (), *, max_depth: int) -> None:
        self.max_depth = max_depth
        super().__init__(text)

    def _append(self, ids: IntArray) -> None:
        _extend_counted(ids, tuple(self._automaton), self.max_depth)

    def draft(self, rules: Rules, match: tuple[int, int] | None = None) -> tuple[float, IntArray, IntArray, FloatArray]:
        """Score, tokens, parents and path probabilities of the best draft behind `match`, by default the end of the own
        text; the root's token is left open."""
        if match is None:
            state = int(self._automaton.states[self._automaton.sizes[LAST], LINK])
            match = state, int(self._automaton.states[max(state, 0), LENGTH])
        return _best_draft(tuple(self._automaton), *match, tuple(rules))


class SuffixDecoding(RememberingDrafter):
    """SuffixDecoding, per request: for every suffix of the text, p tokens long, that occurred before, a tree of at most
    MAX_SPEC = alpha x p nodes is grown below it, the likeliest node first; the tree of the best SCORE is drafted.

    A node's probability is the product, along its path, of count / total: how often its token followed, of all that
    followed there (the paper's D(N)). A tree's score is the sum over its nodes, the number of tokens it expects to be
    accepted. Between equal scores the longest match wins, as in the release (Snowflake's ArcticInference).

    The paper also keeps a global tree of earlier answers: `remember_outputs`. Both trees make a draft and the better
    score wins. It grows with every answer and is never pruned (the release evicts the oldest). A question is never
    drafted from an answer to itself; answers without a question id are.

    Args:
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        alpha: most nodes for each matched token; None sets no such limit.
        max_depth: depth of the suffix tree: matched tokens and draft together (64 in the release).
        min_prob: nodes less likely than this are left out (vLLM: 0.1).
        totals: what a count is divided by: "followers", all tokens that followed, as in the paper; or "occurrences" of
            the matched string, its last one at the end of the text included, as in the release, which trusts rare
            matches less.
        ties: between equal probabilities the node nearer to the root ("shallow", so that two copies share the nodes) or
            the deeper one ("deep", so that the first is followed to its end), then the one that occurred first. Sources
            leave it to a heap.
        context: the part of the prompt that is indexed (`Prompt.part`).
        remember_outputs: also draft from the answers to earlier prompts. The drafter's state is then "warm".
    """

    traits = Traits(scores_nodes=True)

    def __init__(
        self,
        *,
        num_draft: int = 32,
        alpha: float | None = 4.0,
        max_depth: int = 64,
        min_prob: float = 0.0,
        totals: Totals = "followers",
        ties: Ties = "shallow",
        context: str = "prompt",
        remember_outputs: bool = False,
    ) -> None:
        check_int("num_draft", num_draft, 1)
        check_int("max_depth", max_depth, 2)
        if alpha is not None:
            check_positive("alpha", alpha, ", or null for no limit")
        check_share("min_prob", min_prob)
        check_choice("totals", totals, get_args(Totals))
        check_choice("ties", ties, get_args(Ties))
        check_context(context)
        check_bool("remember_outputs", remember_outputs)
        self.num_draft, self.alpha, self.max_depth, self.min_prob = num_draft, alpha, max_depth, min_prob
        self.totals: Totals = totals
        self.ties: Ties = ties
        self.context, self.remember_outputs = context, remember_outputs
        self._earlier: CountedAutomaton | None = None
        if remember_outputs:
            self._earlier = CountedAutomaton(max_depth=max_depth)
        state: State = "warm" if remember_outputs else "cold"
        self.traits = replace(self.traits, state=state, context=context)
        self._memory: Memory[list[int]] = Memory()
        #: The tree holds the answers to all questions but this one.
        self._hidden: Key | None = None

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """Without `alpha`: its own limit and one for all would be one too many. On recorded answers to odd questions it
        emits more so at every size.
        """
        return {"num_draft": num_nodes, "alpha": None}

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._own = CountedAutomaton(prompt.part(self.context), max_depth=self.max_depth)
        if not prompt.ends_with(self.context):
            self._own.begin_text()
        if self._earlier is not None:
            self._hide(prompt.question if prompt.question_id else None)
            # Longer matches than the tree is deep are of no use.
            self._match = self._earlier.follow(prompt.ids[-self.max_depth :], 0, 0)

    def take(self, prompt: Prompt, output: list[int]) -> None:
        is_new = self.remember_outputs and self._memory.add(prompt.question, prompt.turn, output)
        if is_new and prompt.question != self._hidden:
            self._add(output)

    def _hide(self, question: Key | None) -> None:
        """Let the tree hold the answers to all questions but this one."""
        if question == self._hidden:
            return
        hidden, self._hidden = self._hidden, question
        answers = self._memory.answers.items()
        if any(known == question for (known, _), _ in answers):  # nothing can be taken out: all is built anew
            self._earlier = CountedAutomaton(max_depth=self.max_depth)
            added = [answer for (known, _), answer in answers if known != question]
        else:
            added = [answer for (known, _), answer in answers if known == hidden]
        for answer in added:
            self._add(answer)

    def _add(self, answer: list[int]) -> None:
        assert self._earlier is not None
        self._earlier.extend(answer)
        self._earlier.begin_text()

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._own.extend(new_ids)
        if self._earlier is not None:
            self._match = self._earlier.follow(new_ids, *self._match)

    def propose(self, budget: int) -> DraftTree:
        alpha = np.inf if self.alpha is None else float(self.alpha)
        siblings, tie_order = self.totals == "followers", 1 if self.ties == "shallow" else -1
        limits = min(self.num_draft, budget), alpha, self.max_depth, float(self.min_prob)
        rules = Rules(*limits, siblings, tie_order)
        score, tokens, parents, probs = self._own.draft(rules)
        if self._earlier is not None:
            theirs = self._earlier.draft(rules, self._match)
            if theirs[0] > score:
                _, tokens, parents, probs = theirs
        tokens[0] = self.root
        return DraftTree(tokens, parents, probs=probs)
