"""Drafts that pay for themselves: what is learned, and that no text and no price makes an answer much slower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from support.fake_target import FakeTarget, answer, jumbled

from ngram_trie.baselines.jacobi import Jacobi
from ngram_trie.bench.cost import CostCurve, assumed_curve
from ngram_trie.blend.variants import BlendDrafter
from ngram_trie.budget import adaptive
from ngram_trie.budget.adaptive import LOOK, MOST_LOST, REST, SOON, STALE, AdaptiveDrafter, Guard, Learned, StepTimes
from ngram_trie.budget.trust import Trust
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, State, Traits
from ngram_trie.prompt import Prompt
from ngram_trie.targets.network import Forward
from ngram_trie.tree import DraftTree

PLAIN = 10.0
PRICES: dict[str, Callable[[int], float]] = {
    "free": lambda nodes: 1.0,
    "packed": lambda nodes: 1 + 0.04 * nodes,
    "stock": lambda nodes: 1 + (0.24 if nodes else 0) + 0.1 * nodes,
    "ruinous": lambda nodes: 1 + 3 * nodes,
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedTarget(FakeTarget):
    """Its steps take what a price list says, on a clock of their own, and thrice that while it is disturbed.

    Args:
        price: of a step, in plain steps, by drafted nodes; said: what it tells, by default the same.
        disturbed: which of its steps take longer.
    """

    def __init__(
        self,
        rule: Callable[[list[int]], int],
        price: Callable[[int], float],
        clock: Clock,
        said: Callable[[int], float] | None = None,
        disturbed: Callable[[int], bool] = lambda number: False,
    ) -> None:
        super().__init__(rule)
        self.price, self.clock, self.said, self.disturbed = price, clock, said or price, disturbed

    def verify(self, tree: DraftTree, top_k: int = 0) -> Forward:
        self.clock.now += PLAIN * self.price(tree.num_draft) * (3 if self.disturbed(len(self.forwards)) else 1)
        return super().verify(tree)

    def step_costs(self, top_k: int = 0) -> TimedTarget:
        return self

    def step(self, nodes: Iterable[int], contexts: Iterable[int]) -> np.ndarray:
        return PLAIN * np.array([self.said(count) for count in nodes])


class Guess(Drafter):
    """Drafts the next three tokens, each right or wrong as asked, and says what it likes. It takes `seconds`."""

    traits = Traits(scores_nodes=True)

    def __init__(self, rule: Callable[[list[int]], int], is_right: bool, said: float, clock: Clock, seconds: float):
        self.rule, self.is_right, self.said, self.clock, self.seconds = rule, is_right, said, clock, seconds

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self.text = prompt.ids.tolist()

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self.text += new_ids

    def propose(self, budget: int) -> DraftTree:
        self.clock.now += self.seconds
        tokens: list[int] = []
        for _ in range(3):
            tokens.append((self.rule(self.text + tokens) + (not self.is_right)) % 100)
        return DraftTree.chain(self.root, tokens, self.said ** np.arange(4.0))


def time_of(
    drafter: Callable[[Clock], Drafter], rule: Callable[[list[int]], int], price: Callable[[int], float], length: int
) -> tuple[float, list[int]]:
    """Seconds of an answer of `length` tokens in plain steps, and its tree sizes."""
    clock = Clock()
    target = TimedTarget(rule, price, clock)
    result = answer(target, AdaptiveDrafter(drafter(clock), clock=clock), [1, 2, 3, 4], length)
    return clock.now / PLAIN, result.tree_sizes


RULES = {"jumbled": jumbled(100), "copy": lambda text: (text[-1] + 1) % 7, "constant": lambda text: 5}


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("rule", RULES)
def test_blend_never_takes_longer_than_plain_decoding_but_for_what_may_be_lost(rule: str, price: str) -> None:
    taken, _ = time_of(lambda _: BlendDrafter(num_draft=31), RULES[rule], PRICES[price], 200)
    assert taken < 199 + MOST_LOST + 199 / REST * LOOK
    if rule != "jumbled" and price in ("free", "packed"):
        assert taken < 199 / 3  # and much less where drafts are copies


@pytest.mark.parametrize("seconds", [0.1, 1.0, 20.0])
def test_a_drafter_that_is_sure_and_always_wrong_is_soon_left_alone(seconds: float) -> None:
    """Even one that takes two plain steps to say so."""
    rule, length = RULES["jumbled"], 900
    taken, sizes = time_of(lambda clock: Guess(rule, False, 1.0, clock, seconds), rule, PRICES["stock"], length)
    looks, dearest = 1 + length / REST, PRICES["stock"](3) - 1 + seconds / PLAIN
    assert taken < length - 1 + MOST_LOST + looks * (LOOK + dearest)
    assert sum(size > 0 for size in sizes) < length / 10


def test_a_drafter_that_is_right_and_unsure_is_believed() -> None:
    rule = RULES["jumbled"]
    taken, sizes = time_of(lambda clock: Guess(rule, True, 0.1, clock, 0.1), rule, PRICES["packed"], 300)
    assert sizes[-50:-2].count(3) > 45 and taken < 150


def test_a_step_that_compiled_teaches_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = [0]
    monkeypatch.setattr(adaptive, "num_compiled", lambda: compiled[0])

    class Compiles(Guess):
        """Its first five drafts compile something."""

        def propose(self, budget: int) -> DraftTree:
            if compiled[0] < 5:
                compiled[0] += 1
                self.clock.now += 100 * PLAIN
            return super().propose(budget)

    rule = RULES["jumbled"]
    _, sizes = time_of(lambda clock: Compiles(rule, True, 0.9, clock, 0.1), rule, PRICES["packed"], 100)
    assert len(sizes) < 40


def test_what_the_caller_does_with_tokens_is_no_part_of_a_step() -> None:
    """A streamer that takes five plain steps for each token; and the last draft is cut to the tokens that are left."""
    clock, rule = Clock(), RULES["jumbled"]
    drafter = AdaptiveDrafter(Guess(rule, True, 0.9, clock, 0.1), clock=clock)

    def emit(new_ids: list[int]) -> None:
        clock.now += 5 * PLAIN * len(new_ids)

    decoder = SpeculativeDecoder(TimedTarget(rule, PRICES["stock"], clock), drafter)
    decoder.generate(Prompt(np.array([1, 2, 3])), Stop(max_new_tokens=100), emit=emit)
    times = drafter.learned.times
    assert times is not None and (times.pace, times.amount) == pytest.approx((1, 1))


@pytest.mark.parametrize("disturbed", [range(1, 30), range(0, 2000, 3)], ids=["at first", "again and again"])
def test_a_clock_that_is_disturbed_takes_nothing_from_drafts(disturbed: range) -> None:
    """What was lost before: the first steps were slow for another reason, and it drafted next to nothing for good."""
    sizes = []
    for steps in (range(0), disturbed):
        clock = Clock()
        target = TimedTarget(RULES["copy"], PRICES["packed"], clock, disturbed=steps.__contains__)
        drafter = AdaptiveDrafter(BlendDrafter(num_draft=31), clock=clock)
        sizes.append(answer(target, drafter, [1, 2, 3, 4], 400).tree_sizes)
    assert len(sizes[1]) <= 1.05 * len(sizes[0])


def test_a_copy_that_begins_late_is_found() -> None:
    text = jumbled(100)
    rule = lambda ids: text(ids) if len(ids) < 300 else (ids[-1] + 1) % 7  # noqa: E731
    _, sizes = time_of(lambda _: BlendDrafter(num_draft=31), rule, PRICES["packed"], 600)
    assert sum(sizes[:100]) < 100 and np.mean(sizes[-20:-5]) > 3


def test_the_next_answer_begins_with_what_was_learned() -> None:
    """A drafter that is right and unsure is believed from the first step on; not once that is forgotten."""
    clock, learned, rule = Clock(), Learned(), RULES["jumbled"]
    target = TimedTarget(rule, PRICES["stock"], clock)
    drafter = AdaptiveDrafter(Guess(rule, True, 0.2, clock, 0.1), learned, clock=clock)
    decoder = SpeculativeDecoder(target, drafter)
    before = decoder.learned.copy()
    sizes = [answer(target, drafter, [1, 2, 3], 200).tree_sizes for _ in range(2)]
    assert sum(sizes[0][:3]) == 0 and sum(sizes[1][:3]) >= 6 and decoder.learned is learned
    for _ in range(2):  # of what the copy knows, the answers between have changed nothing
        decoder.learned.become(before)
        assert answer(target, drafter, [1, 2, 3], 200).tree_sizes == sizes[0]


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_tokens_that_were_kept_back_reach_the_drafter_in_order(state: State) -> None:
    """One that remembers answers has all of an answer at its end: its memory may be saved then."""
    clock = Clock()
    heard: list[int] = []

    class Listens(Guess):
        traits = Traits(scores_nodes=True, state=state)

        def observe(self, new_ids: Sequence[int]) -> None:
            super().observe(new_ids)
            heard.extend(new_ids)

    rule = RULES["jumbled"]
    drafter = AdaptiveDrafter(Listens(rule, False, 1.0, clock, 5.0), clock=clock)
    result = answer(TimedTarget(rule, PRICES["stock"], clock), drafter, [1, 2, 3], 100)
    assert heard == result.output_ids[: len(heard)] and (len(heard) == 100) == (state == "warm")


def test_what_the_model_said_of_the_prompt_is_learned_though_the_first_step_is_plain() -> None:
    clock, learned, rule, said = Clock(), Learned(), RULES["jumbled"], []

    class Reads(Guess):
        traits = Traits(scores_nodes=True, reads="logits")

        def learn(self) -> None:
            said.append(len(self.text))

    learned.guard._resting = 10
    answer(TimedTarget(rule, PRICES["stock"], clock), AdaptiveDrafter(Reads(rule, True, 0.2, clock, 0.1), learned,
           clock=clock), [1, 2, 3], 60)  # fmt: skip
    assert said[0] == 4 and len(said) < 4


def test_costs_are_relative_to_plain_steps_and_corrected_by_what_steps_take() -> None:
    """Told 1 + 0.04 a node, where steps cost 1 + 0.08 a node; all of them slow down, and some are disturbed."""
    times, rng = StepTimes(TimedTarget(RULES["copy"], PRICES["packed"], Clock())), np.random.default_rng(0)
    assert times.costs(9, 100)[[0, 1, 8]].tolist() == pytest.approx([1, 1.04, 1.32])
    for number in range(400):
        nodes, slower = int(rng.integers(9)), 1 if number < 200 else 3
        disturbed = 100 if number % 50 == 49 else 1
        times.take(nodes, slower * disturbed * PLAIN * (1 + 0.08 * nodes), 100)
        if number > 60 and not 200 <= number < 260:
            assert times.costs(9, 100)[8] == pytest.approx(1.64, abs=0.2)
    assert times.plain_seconds(100) == pytest.approx(3 * PLAIN, rel=0.1)
    longer = times.over(TimedTarget(RULES["copy"], PRICES["packed"], Clock()))  # a text of another length
    assert longer.costs(9, 100)[8] == times.costs(9, 100)[8] and longer.plain_seconds(100) == times.plain_seconds(100)


def test_a_plain_step_is_due_where_none_was_taken_for_long() -> None:
    times = StepTimes(TimedTarget(RULES["copy"], PRICES["packed"], Clock()))
    for steps in (SOON, STALE, STALE):
        for _ in range(steps):
            assert not times.wants_plain
            times.take(8, 1.32 * PLAIN, 100)
        assert times.wants_plain and times.costs(9, 100)[8] == pytest.approx(1.32)
        times.take(0, PLAIN, 100)


def test_the_guard_rests_once_too_much_is_lost_and_looks_again() -> None:
    guard, asked = Guard(), []
    for _ in range(200):
        asked.append(guard.allows())
        if asked[-1]:
            guard.take(-0.5)
    losses = int(MOST_LOST / 0.5) + 1
    look = int(LOOK / 0.5) + 1
    assert asked[: losses + REST + look] == [True] * losses + [False] * REST + [True] * look
    gained = Guard()
    for gain in (*[-0.5] * (losses - 1), *[2.0] * 3, *[-0.5] * losses):
        gained.take(gain)
        assert gained.allows()


def judge_siblings(trust: Trust, predicted: float, right: int, wrong: int) -> None:
    """So many drafts of a node that was as likely as `predicted`."""
    for token in (*[1] * right, *[2] * wrong):
        trust.judge(DraftTree.chain(0, [token], np.array([1.0, predicted])), [1])


def learned(trust: Trust, predicted: Sequence[float]) -> np.ndarray:
    """What it makes of siblings' probabilities, but for their ranks."""
    trust._accepted[:] = trust._expected
    tree = DraftTree(
        np.arange(len(predicted) + 1), np.array([-1, *[0] * len(predicted)]), probs=np.array([1, *predicted])
    )
    return trust.of(tree)[1:]


def test_trust_is_what_turned_out_and_keeps_the_order() -> None:
    trust, predicted = Trust(), np.linspace(0, 1, 21)
    assert learned(trust, predicted) == pytest.approx(predicted)
    judge_siblings(trust, 0.8, right=100, wrong=300)
    judge_siblings(trust, 0.25, right=400, wrong=0)
    found = learned(trust, predicted)
    assert found[16] > 0.9 and (np.diff(found) >= 0).all() and found[5] == pytest.approx(1, abs=0.05)
    trust = Trust()
    judge_siblings(trust, 0.8, right=100, wrong=300)
    assert learned(trust, [0.8])[0] < 0.65  # 0.6, of which nothing is known, holds it up


def test_nodes_are_judged_as_far_as_the_text_is_known() -> None:
    #  0 - 1 right - 2 right - 3 unknown; 1 - 4 wrong - 5 unknown; 0 - 6 wrong; one probability for each
    parents, shares = np.array([-1, 0, 1, 2, 1, 4, 0]), np.array([1, 0.9, 0.6, 0.4, 0.25, 0.12, 0.06])
    probs = shares.copy()
    for node in range(1, 7):
        probs[node] *= probs[parents[node]]
    trust = Trust()
    trust.judge(DraftTree(np.array([9, 1, 2, 3, 7, 8, 6]), parents, probs=probs), [1, 2])
    expected = [(right + 8 * share) / 9 for share, right in zip(shares[[1, 2, 4, 6]], (1, 1, 0, 0), strict=True)]
    assert learned(trust, [0.9, 0.6, 0.25, 0.06]) == pytest.approx(expected)
    assert learned(trust, [0.4, 0.12]) == pytest.approx([0.4, 0.12])


def test_trust_is_in_a_node_behind_its_parent() -> None:
    """A chain of which the drafter says 0.8 each; the first is always wrong, what follows a right one always right."""
    chain, trust = DraftTree.chain(9, [1, 2, 3], 0.8 ** np.arange(4.0)), Trust()
    assert trust.of(chain) == pytest.approx(0.8 ** np.arange(4.0))
    for emitted in ([7], [1, 2, 3, 4], [7]):
        trust.judge(chain, emitted)
    share = (3 + 8 * 0.8) / (5 + 8)  # five were judged: 1 thrice, 2 and 3 once
    assert trust.of(chain)[1] < 0.95 * share  # by rank: one first node of three was right, where 2.4 were expected
    trust._accepted[:] = trust._expected
    assert trust.of(chain) == pytest.approx(share ** np.arange(4.0), rel=0.01)  # a little is forgotten


def test_the_last_nodes_of_a_draft_are_trusted_by_their_rank() -> None:
    """Of each of ten nodes 0.1 is said; the first two turn out as said, the others never."""
    tree, trust = DraftTree(np.arange(11), np.array([-1, *[0] * 10]), probs=np.array([1, *[0.1] * 10])), Trust()
    for number in range(200):
        trust.judge(tree, [1 if number % 10 == 0 else 2 if number % 10 == 5 else 99])
    found = trust.of(tree)
    assert found[1] == pytest.approx(0.1, abs=0.03) and (found[4:] < 0.02).all() and found[0] == 1
    assert (np.diff(found) <= 0).all()


def test_nodes_behind_the_end_of_what_was_emitted_count_as_expected() -> None:
    """Half of the chains are copies to their end, the others fail at once. A step shows but three of a copy's tokens:
    were the others left out, they would be counted in failures alone, and never trusted.
    """
    chain, trust = DraftTree.chain(9, list(range(1, 9)), np.array([1, *[0.5] * 8])), Trust()
    for number in range(400):
        trust.judge(chain, [1, 2, 3] if number % 2 else [99])
    assert trust.of(chain)[1:] == pytest.approx(np.full(8, 0.5), abs=0.05)


def test_a_drafter_without_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^budget=auto: Jacobi does not say how likely its nodes are"):
        AdaptiveDrafter(Jacobi())


def test_costs_of_a_curve_are_in_plain_steps_and_above_0() -> None:
    curve = assumed_curve(q0=4, price=0.5)
    assert StepTimes(curve).costs(7, 100)[[0, 4, 6]].tolist() == pytest.approx([1, 1, 2])
    drafter = AdaptiveDrafter(BlendDrafter(), cost=curve)
    result = answer(FakeTarget(RULES["copy"]), drafter, [0, 1, 2, 3, 4, 5, 6] * 3, 60)
    assert set(result.tree_sizes[:5]) == {4}  # what is free of charge, from the first step on
    falls = CostCurve("falls", [0, 8], [1], [[2.0], [1.0]], [1], [1.0])  # below 0 beyond what was measured
    with pytest.raises(ValueError, match="costs of steps must be positive"):
        StepTimes(falls).costs(21, 5)
    with pytest.raises(ValueError, match="nothing says what steps cost"):
        AdaptiveDrafter(BlendDrafter()).bind(FakeTarget(RULES["copy"]))
