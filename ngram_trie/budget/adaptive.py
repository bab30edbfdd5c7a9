"""An adaptive draft length, `budget=auto` of runs, replays and the library: as many nodes as pay, and none where
drafting doesn't.

A draft is cut by the rule of `budget.rule`, which wants to know two things. What steps cost: the target has timed them
(`ngram_trie.targets.costs`), and live steps correct that slowly (`StepTimes`); a replay is given a curve. And how
likely nodes are to be accepted of which the drafter says p (`budget.trust`).

Whether it pays to ask the drafter at all is seen by what its steps gained: the tokens that they emitted, less what such
steps and drafts cost, in plain steps. Once the last `WINDOW` of them have lost more than `MOST_LOST` between them, the
drafter rests for `REST` steps; then it is looked at again, and rests as soon as it has lost `LOOK` more. Costs in this
sum are those that are known, not this step's own time: a clock that is disturbed takes nothing from it.

Tokens never depend on any of this, times do.
"""

from __future__ import annotations

import copy
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from time import perf_counter
from typing import Any

import numpy as np

from ngram_trie.budget.compiling import num_compiled
from ngram_trie.budget.rule import StepCosts, nodes_that_pay
from ngram_trie.budget.trust import Trust
from ngram_trie.drafter import Drafter, WrappedDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import content_hash
from ngram_trie.tree import DraftTree, FloatArray

#: Steps with a draft that are looked back on, what they may lose together, in plain steps, the steps for which the
#: drafter then rests, and what it may lose when it is looked at again.
WINDOW, MOST_LOST, REST, LOOK = 64, 4.0, 32, 1.0
#: Exponent of the costs (`budget.rule`).
CAUTION = 1.5
#: The drafter is asked for at least so many nodes, and for twice as many as were worth drafting in the last few steps:
#: what is drafted and cut takes time, too.
LEAST_ASKED, RECENT = 7, 8
#: Steps that are remembered for what they took, of these the ones that make up the pace, what the curve counts beside
#: them, and how little of it may be left. A step that took this many times as long as expected counts as no more.
MEMORY, LATELY, PRIOR, LEAST_AMOUNT, DISTURBED = 128, 16, 0.005, 0.25, 1.5
#: As many steps may pass without a plain one, first and later.
SOON, STALE = 16, 64
#: Costs are those of a text whose length is a multiple of this.
BLOCK = 64


class StepTimes:
    """What steps cost, in plain steps: a curve, corrected by steps as they are taken.

    A machine's memory and its cores change their speed apart from each other, as others use them, so a step over q
    nodes is taken to cost 1 + amount * (v(q) / v(0) - 1) plain steps, v being the curve. The amount is that by which
    steps differ from the step just before them (least squares): of what slows both down it knows nothing.

    Args:
        curve: in any unit; in seconds where steps are timed.

    Attributes:
        pace: what plain steps take of late over what the curve says.
        amount: see above; 1 before a step was taken.

    Raises:
        ValueError: by `costs`: one that is not above 0.
    """

    def __init__(self, curve: StepCosts) -> None:
        self.curve = curve
        self.pace, self.amount = 1.0, 1.0
        self._since_plain = STALE - SOON
        self._last: tuple[float, float] | None = None  # the last step's x and y; see `take`
        self._squares = self._products = PRIOR
        # a length of text, in BLOCKs, and what `_look` found there
        self._known: tuple[int, float, FloatArray] = (-1, 1.0, np.zeros(0))

    def over(self, curve: StepCosts) -> StepTimes:
        """What was learned, for texts of another length on the same machine."""
        other = copy.copy(self)
        other.curve, other._known, other._last = curve, (-1, 1.0, np.zeros(0)), None
        return other

    def plain_seconds(self, length: int) -> float:
        """Of a plain step behind `length` tokens."""
        return self.pace * self._look(1, length)[0]

    def cost(self, nodes: int, length: int) -> float:
        """Of a step over `nodes` drafted nodes behind `length` tokens, in plain steps."""
        return 1 + self.amount * float(self._look(nodes + 1, length)[1][nodes])

    def costs(self, size: int, length: int) -> FloatArray:
        """(size,) of steps over 0, 1, ... drafted nodes behind `length` tokens, in plain steps; never falling."""
        return 1 + self.amount * self._look(size, length)[1][:size]

    @property
    def wants_plain(self) -> bool:
        """Whether it is time for a plain step."""
        return self._since_plain >= STALE

    def take(self, nodes: int, seconds: float, length: int) -> None:
        """Take note of a step over `nodes` drafted nodes behind `length` tokens."""
        self._since_plain = self._since_plain + 1 if nodes else 0
        plain, extra = self._look(nodes + 1, length)
        x, y = float(extra[nodes]), seconds / plain
        cost = 1 + self.amount * x
        if self._last is None:
            self.pace = y / cost
        else:
            y = min(y, DISTURBED * self.pace * cost)
            self.pace += (y / cost - self.pace) / LATELY
            apart, longer = x - self._last[0], (y - self._last[1]) / self.pace
            self._squares += apart * apart - (self._squares - PRIOR) / MEMORY
            self._products += apart * longer - (self._products - PRIOR) / MEMORY
            self.amount = max(LEAST_AMOUNT, self._products / self._squares)
        self._last = x, y

    def _look(self, size: int, length: int) -> tuple[float, FloatArray]:
        """Of the curve behind so many tokens: a plain step, and v(q) / v(0) - 1 of at least `size` sizes, never
        falling. What was found last is kept as one, since the threads of a model share what is learned of it.
        """
        at, plain, extra = self._known
        if at != length // BLOCK or len(extra) < size:
            at = length // BLOCK
            found = self.curve.step(range(size), [at * BLOCK] * size)
            if not (found > 0).all():
                raise ValueError(f"costs of steps must be positive, not {found.min():g}")
            plain, extra = float(found[0]), np.maximum.accumulate(found / found[0]) - 1
            self._known = at, plain, extra
        return plain, extra


class Guard:
    """Whether the drafter is asked; see the module."""

    def __init__(self) -> None:
        self._gains: deque[float] = deque(maxlen=WINDOW)
        self._resting = 0

    def allows(self) -> bool:
        """Whether the drafter is asked in this step; counts the steps in which it rests."""
        self._resting = max(0, self._resting - 1)
        return not self._resting

    def take(self, gain: float) -> None:
        """Take note of what a step gained in which the drafter was asked."""
        self._gains.append(gain)
        if sum(self._gains) < -MOST_LOST:
            self._gains.clear()
            self._gains.append(LOOK - MOST_LOST)
            self._resting = REST + 1


@dataclass
class Learned:
    """What was learned of a model with a drafter, for the next answer to begin with.

    Attributes:
        times: None before there is a target that tells what steps cost.
        drafting: seconds that the drafter took of late, a step.
    """

    times: StepTimes | None = None
    trust: Trust = field(default_factory=Trust)
    guard: Guard = field(default_factory=Guard)
    drafting: deque[float] = field(default_factory=lambda: deque(maxlen=7))

    def copy(self) -> Learned:
        """The same, to go on apart from this one; the target's costs stay one object."""
        return copy.deepcopy(self, {id(self.times.curve): self.times.curve} if self.times else {})

    def become(self, other: Learned) -> None:
        """Know what `other` knows and no more, for all that go on with this one."""
        vars(self).update(vars(other.copy()))


class AdaptiveDrafter(WrappedDrafter):
    """A drafter that is asked as long as it pays, and whose drafts are cut to the nodes that pay; see the module.

    A step is timed from the draft's leaving to the next `observe`. Where the drafter reads tokens alone, those emitted
    while it was not asked are kept for it until it is. One that reads more learns what the model said of the prompt,
    and of plain steps that are taken for their times; not while it rests.

    Args:
        drafter: its draft trees must have `probs`.
        learned: where to begin and what to go on with; by default nothing is known.
        cost: what steps cost, where no target tells it: of recorded tokens. It is not corrected.
        clock: seconds, for tests.

    Raises:
        ValueError: a drafter that does not say how likely its nodes are.
    """

    not_sent = ("_target",)
    _target: Any = None

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
        self._drafting_cost = 0.0  # in plain steps

    def identity(self) -> str:
        known = content_hash(vars(self.cost)) if self.cost else ""
        return " ".join(filter(None, [self.drafter.identity(), known]))

    def bind(self, target: Any) -> None:
        """
        Raises:
            ValueError: neither the target nor anybody else says what steps cost.
        """
        super().bind(target)
        self._target = weakref.ref(target)  # its memory is free when others let go of it
        if self.cost is None and not hasattr(target, "step_costs"):
            raise ValueError("budget=auto: nothing says what steps cost, as a model's target does: give cost")
        curve = self.cost or target.step_costs(self.traits.reads_top_k)
        if self.learned.times is None:
            self.learned.times = StepTimes(curve)
        elif self.learned.times.curve is not curve:
            self.learned.times = self.learned.times.over(curve)

    def start(self, prompt: Prompt) -> None:
        self._unread = []
        Drafter.start(self, prompt)
        super().start(prompt)
        self._length, self._drafting, self._compiled = len(prompt.ids), 0.0, num_compiled()
        self._under_way: tuple[DraftTree | None, int] | None = None
        self._is_first = True

    def observe(self, new_ids: Sequence[int]) -> None:
        now = self.clock()
        if self._under_way is not None:
            self._learn(new_ids, now - self._left)
        Drafter.observe(self, new_ids)
        self._length += len(new_ids)
        self._unread += new_ids
        self._drafting, self._compiled = 0.0, num_compiled()
        # what else it reads, the next step overwrites; what it remembers may be asked for behind the answer's end
        if self.traits.reads != "tokens" or self.drafter.traits.remembers:
            now = self.clock()
            self._read()
            self._drafting = self.clock() - now

    def propose(self, budget: int) -> DraftTree:
        """
        Raises:
            ValueError: the drafter does not say how likely its nodes are.
        """
        tree = draft = None
        if self.learned.guard.allows() and not self._times.wants_plain:
            began = self.clock()
            self._read()
            tree = self.drafter.propose(min(budget, max(LEAST_ASKED, 2 * max(self._kept, default=0) + 1)))
            self._drafting += self.clock() - began
            if not isinstance(tree, DraftTree):
                return tree  # the loop says so
            draft = self._cut(tree)
        elif self._is_first or self._times.wants_plain:  # the next step overwrites what this one's forward said
            self.drafter.learn()
        self._is_first = False
        if draft is None:
            draft = DraftTree.root_only(self.root)
        self._under_way = tree, draft.num_draft
        self._left = self.clock()
        return draft

    @property
    def _times(self) -> StepTimes:
        assert self.learned.times is not None
        return self.learned.times

    def _read(self) -> None:
        """Let the drafter observe what it has not yet."""
        if self._unread:
            self.drafter.observe(self._unread)
            self._unread = []

    def _cut(self, tree: DraftTree) -> DraftTree:
        """The nodes that pay."""
        if not tree.num_draft:
            return tree
        if tree.probs is None:
            raise ValueError(f"{type(self.drafter).__name__} says of no node how likely it is; give budget='fixed'")
        costs = self._times.costs(len(tree), self._length)
        kept = nodes_that_pay(self.learned.trust.of(tree), costs, self._drafting_cost, CAUTION)
        self._kept.append(len(kept) - 1)
        return tree if len(kept) == len(tree) else tree.part(kept)

    def _learn(self, emitted: Sequence[int], seconds: float) -> None:
        """From the step that emitted these tokens."""
        assert self._under_way is not None
        learned, (tree, size), self._under_way = self.learned, self._under_way, None
        if self.cost is None:
            size = self._target().last.tree.num_draft  # less, where an answer's room has cut the draft
        if tree is not None and tree.num_draft and tree.probs is not None:
            learned.trust.judge(tree, emitted)
        if num_compiled() != self._compiled:
            return
        if self.cost is None:
            self._times.take(size, seconds, self._length)
        if tree is not None:
            if self.cost is None:  # of a replay it cannot be compared with a step's
                learned.drafting.append(self._drafting)
                usual = median_low(learned.drafting)  # of two the smaller: what disturbs a clock makes times longer
                self._drafting_cost = usual / self._times.plain_seconds(self._length)
            learned.guard.take(len(emitted) - self._times.cost(size, self._length) - self._drafting_cost)
