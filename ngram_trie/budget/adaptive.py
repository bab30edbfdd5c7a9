"""An adaptive draft length, on a machine and a model of which nothing was known before: `budget=auto` of runs, replays
and the library.

Three things are learned while answers are made. What a step over q nodes costs, relative to a plain one: the steps'
own times (`OnlineCosts`; a replay, which has none, is given a curve, `KnownCosts`). How likely nodes are to be accepted
of which the drafter says p (`budget.trust`). And whether it pays to ask the drafter at all: a step that it had a part
in earns the tokens it emitted and costs what it cost, both in plain steps. Gains and losses are one account, the
credit. It is bounded above, so that a long copy doesn't pay for a long loss later; without credit the drafter is not
asked, and each plain step earns a little of it back. So whatever the text does, an answer can lose no more than the
credit and that little share of its time.

Given both, a draft is cut by the rule of `budget.rule`. Tokens never depend on any of this, times do. A step in
which something was compiled teaches nothing of times; of other times that are too long, medians forget single ones.

The constants below were set by hand: no fit of them is on record, and none has changed since it was first written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from ngram_trie.budget.compiling import num_compiled
from ngram_trie.budget.rule import StepCosts, nodes_that_pay
from ngram_trie.budget.trust import Trust
from ngram_trie.drafter import MAX_COUNT, Drafter, WrappedDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import content_hash
from ngram_trie.tree import DraftTree, FloatArray

#: What a node is taken to cost, in plain steps, where no step so large was timed yet.
NODE_COST = 0.05
#: Credit, in plain steps: at first, at most, at least, and what a plain step earns.
FIRST_CREDIT, MOST_CREDIT, LEAST_CREDIT, EARNED = 2.0, 3.0, -1.0, 0.01
#: As many steps may pass without a plain one, and without one that is larger than seems best.
STALE = 64
#: Exponent of the costs (`budget.rule`).
CAUTION = 1.25
#: The drafter is asked for at least so many nodes, and for twice as many as were worth drafting in the last few steps:
#: what is drafted and cut takes time, too.
LEAST_ASKED, RECENT = 15, 8


def _size_class(nodes: int) -> int:
    """0 for a plain step, then by tokens of the step: 2, to 4, to 8, to 16 and so on."""
    return int(nodes).bit_length()


def _middle(values: Iterable[float]) -> float:
    """The lower median: of two values the smaller one, since what disturbs a clock makes times longer."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


class OnlineCosts:
    """What steps cost, in plain steps, learned from steps as they are taken.

    Steps are timed in classes of 1, 2, up to 4, 8, 16, ... tokens, each relative to the plain steps around it, so that
    a longer text or a slower clock changes all alike. Of each class the last few count.
    """

    def __init__(self) -> None:
        self._plain: deque[float] = deque(maxlen=5)
        self._classes: dict[int, deque[tuple[int, float]]] = {}
        self._curve = np.zeros(1), np.ones(1)  # sizes that were timed, and their costs
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
            points = [(0.0, 1.0)]
            for _, timed in sorted(self._classes.items()):
                sizes, costs = zip(*timed, strict=True)
                points.append((sum(sizes) / len(sizes), _middle(costs)))
            sizes, costs = np.array(points).T
            self._curve = sizes, np.maximum.accumulate(costs)

    def num_timed(self, nodes: int) -> int:
        """How many steps of about this size count."""
        return len(self._classes.get(_size_class(nodes), ()))

    def is_due(self, nodes: int, num_steps: int) -> bool:
        """Whether a step of this size should be timed, the `num_steps`-th with a draft."""
        return self.num_timed(nodes) < 2 or num_steps % STALE == 0

    @property
    def most(self) -> int:
        """The most nodes that a step may have: the next class is entered from the one below, in case it is ruinous."""
        return int(2 ** (1 + max(self._classes, default=0)) - 1)

    def step(self, nodes: Sequence[int]) -> FloatArray:
        """(k,) costs of steps over `nodes` drafted nodes, in plain steps, at the present context: never falling, linear
        between what was timed, and beyond as from a plain step to the largest, at least `NODE_COST` a node.
        """
        sizes, costs = self._curve
        asked = np.asarray(nodes, float)
        slope = max(NODE_COST, (costs[-1] - 1) / max(1, sizes[-1]))
        return np.asarray(np.interp(asked, sizes, costs) + slope * np.maximum(0, asked - sizes[-1]), float)


class KnownCosts:
    """What steps cost, in plain steps, by a curve, behind a text as long as its prompt; to the drafter what
    `OnlineCosts` is, with nothing to learn.

    Args:
        curve: in any unit.
        length: tokens of the prompt.

    Raises:
        ValueError: a cost that is not above 0.
    """

    plain = None
    most = MAX_COUNT

    def __init__(self, curve: StepCosts, length: int) -> None:
        self._curve, self._length = curve, length
        self._costs = np.ones(0)

    def holds(self, length: int) -> bool:
        return True

    def is_due(self, nodes: int, num_steps: int) -> bool:
        return False

    def add(self, nodes: int, seconds: float, length: int) -> None:
        return

    def step(self, nodes: Sequence[int]) -> FloatArray:
        """As of `OnlineCosts`."""
        if (most := max(nodes)) >= len(self._costs):
            costs = self._curve.step(range(most + 1), [self._length] * (most + 1))
            if not (costs > 0).all():
                raise ValueError(f"costs of steps must be positive, not {costs.min():g}")
            self._costs = costs / costs[0]
        return self._costs[np.asarray(nodes)]


@dataclass
class Learned:
    """What was learned of a model with a drafter, for the next answer to begin with.

    Attributes:
        credit: gains less losses by drafting, in plain steps.
        drafting: seconds that the drafter took of late, a step.
    """

    costs: OnlineCosts | KnownCosts = field(default_factory=OnlineCosts)
    trust: Trust = field(default_factory=Trust)
    credit: float = FIRST_CREDIT
    drafting: deque[float] = field(default_factory=lambda: deque(maxlen=7))


class AdaptiveDrafter(WrappedDrafter):
    """A drafter that is asked as long as it pays, and whose drafts are cut to the nodes that pay; see the module.

    A step is timed from the draft's leaving to the next `observe`. Where the drafter reads tokens alone, those emitted
    while it was not asked are kept for it until it is.

    Args:
        drafter: its draft trees must have `probs`.
        learned: where to begin and what to go on with; by default nothing is known.
        cost: what steps cost, where that is known.
        clock: seconds, for tests.

    Raises:
        ValueError: a drafter that does not say how likely its nodes are.
    """

    def __init__(
        self,
        drafter: Drafter,
        learned: Learned | None = None,
        *,
        cost: StepCosts | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(drafter)
        if not drafter.traits.scores_nodes:
            raise ValueError(
                f"budget=auto: {type(drafter).__name__} does not say how likely its nodes are; give budget='fixed'"
            )
        if cost is not None:  # a replay meets its answers in order, as a run does
            self.traits = replace(drafter.traits, keeps_answers=True)
        self.learned, self.cost, self.clock = learned or Learned(), cost, clock
        self._unread: list[int] = []
        self._kept: deque[int] = deque(maxlen=RECENT)
        self._steps = 0

    def identity(self) -> str:
        known = content_hash(vars(self.cost)) if self.cost else ""
        return " ".join(filter(None, [self.drafter.identity(), known]))

    def start(self, prompt: Prompt) -> None:
        if self.cost is not None:
            self.learned.costs = KnownCosts(self.cost, len(prompt.ids))
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
        if self.traits.reads != "tokens":  # what else it reads, the next step overwrites
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
            tree = self.drafter.propose(min(budget, max(LEAST_ASKED, 2 * max(self._kept, default=0) + 1)))
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
        probs = self.learned.trust.of(tree)
        prices = (costs.step(range(len(tree))) + drafting) ** CAUTION
        prices[costs.most + 1 :] = np.inf
        kept = nodes_that_pay(probs, prices)
        self._kept.append(len(kept) - 1)
        self._steps += 1
        larger = 2 ** (_size_class(len(kept) - 1) + 1) - 1
        if larger <= min(tree.num_draft, costs.most) and costs.is_due(larger, self._steps):
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
            learned.trust.judge(tree, emitted)
        if num_compiled() != self._compiled:
            return
        learned.costs.add(size, seconds, self._length)
        if tree is None:
            learned.credit = min(learned.credit + EARNED, MOST_CREDIT)
        else:
            learned.drafting.append(self._drafting)
            gain = len(emitted) - learned.costs.step([size])[0] - self._drafting_cost()
            learned.credit = float(np.clip(learned.credit + gain, LEAST_CREDIT, MOST_CREDIT))
