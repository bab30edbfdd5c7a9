"""Drafts that pay for themselves on a machine and a model of which nothing was known before: `budget="auto"` of the
library.

Three things are learned while answers are made. What a step over q nodes costs, relative to a plain one: the steps'
own times (`OnlineCosts`). How likely nodes are of which the drafter says p: how many such nodes turned out right
(`Trust`). And whether it pays to ask the drafter at all: a step that it had a part in earns the tokens it emitted and
costs what it cost, both in plain steps. Gains and losses are one account, the credit. It is bounded above, so that a
long copy doesn't pay for a long loss later; without credit the drafter is not asked, and each plain step earns a little
of it back. So whatever the text does, an answer can lose no more than the credit and that little share of its time.

Given both, a draft is cut by the rule of `budget.rule`. Tokens never depend on any of this, times do. A step in
which something was compiled teaches nothing of times; of other times that are too long, medians forget single ones.

The constants below were set by hand: no fit of them is on record, and none has changed since it was first written. The
exponent is the one with which `scripts.fit_budgets` begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from ngram_trie.budget.compiling import num_compiled
from ngram_trie.budget.rule import nodes_that_pay
from ngram_trie.drafter import Drafter, WrappedDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, FloatArray, IntArray

#: What a node is taken to cost, in plain steps, where no step so large was timed yet.
NODE_COST = 0.05
#: Credit, in plain steps: at first, at most, at least, and what a plain step earns.
FIRST_CREDIT, MOST_CREDIT, LEAST_CREDIT, EARNED = 2.0, 3.0, -1.0, 0.01
#: As many steps may pass without a plain one, and without one that is larger than seems best.
STALE = 64
#: Exponent of the costs (`budget.rule`).
CAUTION = 1.25


def _size_class(nodes: int) -> int:
    """0 for a plain step, then by tokens of the step: 2, to 4, to 8, to 16 and so on."""
    return int(nodes).bit_length()


def _middle(values: Iterable[float]) -> float:
    """The lower median: of two values the smaller one, since what disturbs a clock makes times longer."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


class OnlineCosts:
    """What steps cost, in plain steps, learned from steps as they are taken; has `step` as a
    `ngram_trie.bench.cost.CostCurve` has it.

    Steps are timed in classes of 1, 2, up to 4, 8, 16, ... tokens, each relative to the plain steps around it, so that
    a longer text or a slower clock changes all alike. Of each class the last few count.
    """

    def __init__(self) -> None:
        self._plain: deque[float] = deque(maxlen=5)
        self._classes: dict[int, deque[tuple[int, float]]] = {}
        self._length, self._since = 0, 0  # of the text at the last plain step; steps since

    @property
    def plain(self) -> float | None:
        """Seconds of a plain step; None before two were timed: the first one of a process is no measure."""
        return _middle(self._plain) if len(self._plain) > 1 else None

    def holds(self, length: int) -> bool:
        """Whether a plain step was timed of late, in a text of about this `length`."""
        return self.plain is not None and self._since < STALE and abs(length - self._length) <= 64 + self._length / 4

    def add(self, nodes: int, seconds: float, length: int) -> None:
        """Take note of a step over `nodes` drafted nodes behind `length` tokens. Drafts count once `plain` is known."""
        self._since += 1
        if not nodes:
            self._plain.append(seconds)
            self._length, self._since = length, 0
        elif self.plain:
            timed = self._classes.setdefault(_size_class(nodes), deque(maxlen=7))
            timed.append((nodes, seconds / self.plain))

    def num_timed(self, nodes: int) -> int:
        """How many steps of about this size count."""
        return len(self._classes.get(_size_class(nodes), ()))

    @property
    def most(self) -> int:
        """The most nodes that a step may have: the next class is entered from the one below, in case it is ruinous."""
        return int(2 ** (1 + max(self._classes, default=0)) - 1)

    def step(self, nodes: Iterable[int], contexts: Iterable[int] | None = None) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes, in plain steps, at the present context: never falling, linear
        between what was timed, and beyond as from a plain step to the largest, at least `NODE_COST` a node.
        """
        points = [(0.0, 1.0)] + [
            (float(np.mean([size for size, _ in timed])), _middle(cost for _, cost in timed))
            for _, timed in sorted(self._classes.items())
        ]
        sizes, costs = np.array(points).T
        asked = np.asarray(list(nodes), float)
        costs = np.maximum.accumulate(costs)
        slope = max(NODE_COST, (costs[-1] - 1) / max(1, sizes[-1]))
        return np.asarray(np.interp(asked, sizes, costs) + slope * np.maximum(0, asked - sizes[-1]), float)


class Trust:
    """How likely nodes are, by what the drafter says of them: the share of such nodes that turned out right.

    Around each of a few probabilities nodes are counted, the later ones more; `PRIOR` nodes that were just as likely as
    was said stand at the beginning. The shares never fall from one to the next, so that a child stays no likelier than
    its parent.
    """

    KNOTS = np.array([0.0, 0.01, 0.03, 0.06, 0.12, 0.25, 0.4, 0.6, 0.8, 0.9, 1.0])
    PRIOR, MEMORY = 8.0, 256.0

    def __init__(self) -> None:
        self._nodes, self._right = np.zeros_like(self.KNOTS), np.zeros_like(self.KNOTS)

    def add(self, said: FloatArray, right: np.ndarray) -> None:
        """Take note of nodes (k,) of probabilities `said`, and whether each was `right`."""
        at = np.searchsorted((self.KNOTS[1:] + self.KNOTS[:-1]) / 2, said)
        new = np.bincount(at, minlength=len(self.KNOTS))
        kept = np.maximum(0, 1 - new / self.MEMORY)
        self._nodes = kept * self._nodes + new
        self._right = kept * self._right + np.bincount(at, right, len(self.KNOTS))

    def __call__(self, said: FloatArray) -> FloatArray:
        """(k,) probabilities in place of those that the drafter says."""
        shares = (self._right + self.PRIOR * self.KNOTS) / (self._nodes + self.PRIOR)
        return np.asarray(np.interp(said, self.KNOTS, np.maximum.accumulate(shares)), float)


@dataclass
class Learned:
    """What was learned of a model with a drafter, for the next answer to begin with.

    Attributes:
        credit: gains less losses by drafting, in plain steps.
        drafting: seconds that the drafter took of late, a step.
    """

    costs: OnlineCosts = field(default_factory=OnlineCosts)
    trust: Trust = field(default_factory=Trust)
    credit: float = FIRST_CREDIT
    drafting: deque[float] = field(default_factory=lambda: deque(maxlen=7))


def judged(tree: DraftTree, emitted: Sequence[int]) -> tuple[IntArray, np.ndarray]:
    """Which drafted nodes are known to be right or wrong now that `emitted` followed the root, and whether each is:
    all but those that would continue it.
    """
    tokens, parents, depths = tree.tokens.tolist(), tree.parents.tolist(), tree.depths.tolist()
    right: list[bool | None] = [True]
    for node in range(1, len(tokens)):
        follows = right[parents[node]]
        if follows and depths[node] <= len(emitted):
            follows = tokens[node] == emitted[depths[node] - 1]
        elif follows:
            follows = None
        right.append(follows)
    known = np.array([node for node in range(1, len(tokens)) if right[node] is not None], np.int64)
    return known, np.array([right[node] for node in known], bool)


class AdaptiveDrafter(WrappedDrafter):
    """A drafter that is asked as long as it pays, and whose drafts are cut to the nodes that pay; see the module.

    A step is timed from the draft's leaving to the next `observe`. Where the drafter reads tokens alone, those emitted
    while it was not asked are kept for it until it is.

    Args:
        drafter: its draft trees must have `probs`.
        learned: where to begin and what to go on with; by default nothing is known.
        clock: seconds, for tests.

    Raises:
        ValueError: a drafter that does not say how likely its nodes are.
    """

    def __init__(
        self, drafter: Drafter, learned: Learned | None = None, *, clock: Callable[[], float] = perf_counter
    ) -> None:
        super().__init__(drafter)
        if not drafter.scores_nodes:
            raise ValueError(
                f"budget=auto: {type(drafter).__name__} does not say how likely its nodes are; give budget='fixed'"
            )
        self.learned, self.clock = learned or Learned(), clock
        self.drafts_chains = drafter.drafts_chains  # type: ignore[misc]
        self._unread: list[int] = []
        self._steps = 0

    def start(self, prompt: Prompt) -> None:
        self._read()  # a warm drafter remembers the end of the last answer
        Drafter.start(self, prompt)
        super().start(prompt)
        self._length, self._drafting, self._compiled = len(prompt.ids), 0.0, num_compiled()
        self._under_way: tuple[DraftTree | None, int] | None = None

    def observe(self, new_ids: Sequence[int]) -> None:
        now = self.clock()
        if self._under_way is not None:
            self._settle(new_ids, now - self._left)
        Drafter.observe(self, new_ids)
        self._length += len(new_ids)
        self._unread += new_ids
        self._drafting, self._compiled = 0.0, num_compiled()
        if self.reads != "tokens":  # what else it reads, the next step overwrites
            now = self.clock()
            self._read()
            self._drafting = self.clock() - now

    def propose(self, budget: int) -> DraftTree:
        """
        Raises:
            ValueError: the drafter does not say how likely its nodes are.
        """
        tree, draft = None, DraftTree.root_only(self.root)
        if self.learned.credit > 0 and self.learned.costs.holds(self._length):
            began = self.clock()
            self._read()
            tree = self.drafter.propose(budget)
            self._drafting += self.clock() - began
            draft = self._cut(tree)
        self._under_way = tree, draft.num_draft
        self._left = self.clock()
        return draft

    def _read(self) -> None:
        """Let the drafter observe what it has not yet."""
        if self._unread:
            self.drafter.observe(self._unread)
            self._unread = []

    def _cut(self, tree: DraftTree) -> DraftTree:
        """The nodes that pay; now and then as many as the next class of steps has, to time it."""
        if not tree.num_draft:
            return tree
        if tree.probs is None:
            raise ValueError(f"{type(self.drafter).__name__} says of no node how likely it is; give budget='fixed'")
        costs, drafting = self.learned.costs, self._drafting_cost()
        probs = self.learned.trust(tree.probs)
        probs[0] = 1.0
        prices = (costs.step(range(len(tree))) + drafting) ** CAUTION
        prices[costs.most + 1 :] = np.inf
        kept = nodes_that_pay(probs, prices)
        self._steps += 1
        larger = 2 ** (_size_class(len(kept) - 1) + 1) - 1
        if larger <= min(tree.num_draft, costs.most) and (costs.num_timed(larger) < 2 or self._steps % STALE == 0):
            kept = np.sort(np.argsort(-probs, kind="stable")[: larger + 1])
        return tree if len(kept) == len(tree) else tree.part(kept)

    def _drafting_cost(self) -> float:
        """What drafting takes, in plain steps; not counted before it was done twice: a first time is no measure."""
        times, plain = self.learned.drafting, self.learned.costs.plain
        return _middle(times) / plain if plain and len(times) > 1 else 0.0

    def _settle(self, emitted: Sequence[int], seconds: float) -> None:
        """Learn from the step that emitted these tokens."""
        assert self._under_way is not None
        learned, (tree, size), self._under_way = self.learned, self._under_way, None
        if tree is not None and tree.num_draft and tree.probs is not None:
            known, right = judged(tree, emitted)
            learned.trust.add(tree.probs[known], right)
        if num_compiled() != self._compiled:
            return
        learned.costs.add(size, seconds, self._length)
        if tree is None:
            learned.credit = min(learned.credit + EARNED, MOST_CREDIT)
        else:
            learned.drafting.append(self._drafting)
            gain = len(emitted) - learned.costs.step([size])[0] - self._drafting_cost()
            learned.credit = float(np.clip(learned.credit + gain, LEAST_CREDIT, MOST_CREDIT))
