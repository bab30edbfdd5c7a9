"""Which drafted tokens of a batch pay, learned while serving: drafting that loses switches itself off.

A step over b requests emits b tokens and those of the q drafted ones that are accepted. It takes v(q) seconds: v(0)
without drafts, and base + price x q with some, where the base may be well above v(0), since engines run steps without
drafts another way. What pays in the long run are the drafts that make tokens over seconds largest over all steps, not
in each by itself: with r tokens a second at present, the likeliest q tokens that make

    p_1 + ... + p_q - r v(q)

largest; none, where the batch is so large that every token more is paid for and not likely enough. All is learned: v by
batch size from how long steps took, by least squares that forget; r from what steps emitted; how likely a drafted token
is, from how many were accepted of those that were said to be as likely.

`budget.adaptive` does the same for one request, in another way. What steps cost is known there before the first one;
here they are an engine's. And a guard bounds there what a wrong belief costs, so that its probabilities may lean on
what the drafter says of nodes that were never tried; here nothing else stops a drafter that is sure and wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngram_trie.budget.trust import Trust
from ngram_trie.drafter import check_positive
from ngram_trie.tree import DraftTree, FloatArray

#: What a step keeps of its weight with each one after it: half is left after about 140.
_KEEP = 0.995
#: What a drafter says is worth this number of accepted or rejected tokens.
_TRUST = 20.0
#: What steps of long ago weigh when they are forgotten.
_FORGOTTEN = 1e-3
#: Steps that the assumed price is worth.
_PRIOR = 4.0
#: Steps in a row in which nothing paid, until drafts are made in one step of PATIENCE only, to see whether they would.
PATIENCE = 16
#: Steps in a row with drafts, until one without shows again what it would take.
PLAIN_EVERY = 64


class StepTimes:
    """Seconds of steps at one batch size over how many tokens were drafted, and tokens emitted per second.

    Args:
        price: of a drafted token, in plain steps, before anything was seen.
    """

    def __init__(self, price: float) -> None:
        self._assumed = price
        self._plain = np.zeros(2)  # of steps without drafts: weights, s
        self._sums = np.zeros(5)  # of all others: weights, q, q^2, s, s q
        self._emitted = 0.0
        self.since_plain = 0

    def take(self, num_drafted: int, num_emitted: int, seconds: float) -> None:
        """A step was timed. One that took thrice as long as expected, for reasons of its own, counts as that long."""
        q = float(num_drafted)
        if self._plain[0] + self._sums[0] >= _PRIOR:
            seconds = min(seconds, 3 * float(self.costs(num_drafted)[-1]))
        self.since_plain = self.since_plain + 1 if num_drafted else 0
        self._plain, self._sums = _KEEP * self._plain, _KEEP * self._sums
        for sums in (self._plain, self._sums):
            if sums[0] < _FORGOTTEN:  # before numbers become too small to be divided by each other
                sums[:] = 0.0
        if num_drafted:
            self._sums += [1, q, q * q, seconds, seconds * q]
        else:
            self._plain += [1, seconds]
        self._emitted = _KEEP * self._emitted + num_emitted

    @property
    def rate(self) -> float | None:
        """Tokens emitted per second of late; None before a step was seen."""
        seconds = self._plain[1] + self._sums[3]
        return self._emitted / seconds if seconds else None

    def costs(self, most: int) -> FloatArray:
        """(most + 1,) seconds of steps over 0, 1, ... drafted tokens, above 0 and never falling; in plain steps, as
        assumed, before a step was seen.
        """
        weight, q, qq, s, sq = self._sums
        seen = self._plain[0] + weight
        if not seen:
            return 1.0 + self._assumed * np.arange(most + 1.0)
        # the assumed price, in mean steps, is worth a few of them, of which half drafted 4 tokens and half none
        price = self._assumed * (self._plain[1] + s) / seen / (1 + self._assumed * q / seen)
        base = plain = self._plain[1] / self._plain[0] if self._plain[0] else s / weight
        if weight:
            prior = 4.0 * _PRIOR
            price = (sq - s * q / weight + prior * price) / (max(qq - q * q / weight, 0.0) + prior)
            price = min(max(price, 1e-3 * s / weight), s / weight)
            base = max((s - price * q) / weight, 1e-2 * s / weight)
            # Each kind of step is as dear as the other says until a few were timed. What was timed long ago weighs
            # little, so that drafts which were too dear are tried again.
            plain = (self._plain[1] + _PRIOR * base) / (self._plain[0] + _PRIOR)
            if self._plain[0]:
                base = (weight * base + _PRIOR * self._plain[1] / self._plain[0]) / (weight + _PRIOR)
        costs = base + price * np.arange(most + 1.0)
        costs[0] = min(plain, costs[min(1, most)]) if most else plain
        return np.asarray(costs, float)


class BatchDraftLength:
    """Chooses among the drafted tokens of a batch; see the module.

    Args:
        price: what a drafted token costs of a plain step, before anything was seen; above 0.

    Raises:
        ValueError: a price that is not allowed.
    """

    def __init__(self, price: float = 0.05) -> None:
        check_positive("token_price", price)
        self.price = price
        self._times: dict[int, StepTimes] = {}
        self._trust = Trust(prior=_TRUST)
        self._unpaid: dict[int, int] = {}

    def times(self, batch: int) -> StepTimes:
        """Of steps over `batch` requests; sizes above 4 share one with those up to twice as large."""
        size = batch if batch <= 4 else 1 << (batch - 1).bit_length()
        return self._times.setdefault(size, StepTimes(self.price))

    def is_due(self, batch: int) -> bool:
        """Whether it is worth while to draft at all in this step, and no step without drafts is wanted."""
        times = self.times(batch)
        if times.since_plain >= PLAIN_EVERY:
            times.since_plain = 0  # also if this step cannot be timed, since rows come and go
            return False
        unpaid = self._unpaid.get(batch, 0)
        if unpaid >= PATIENCE and unpaid % PATIENCE:
            self._unpaid[batch] = unpaid + 1
            return False
        return True

    def take_step(self, batch: int, num_drafted: int, num_emitted: int, seconds: float) -> None:
        """A step over `batch` requests, none of them new, with `num_drafted` drafted tokens emitted `num_emitted` in
        `seconds`.
        """
        self.times(batch).take(num_drafted, num_emitted, seconds)

    def take_draft(self, predicted: Sequence[float], num_accepted: int) -> None:
        """Of a draft with these probabilities of whole paths the first `num_accepted` tokens were accepted."""
        self._trust.judge(_chain(predicted), [*range(1, num_accepted + 1), -1])

    def acceptance(self, predicted: Sequence[float]) -> FloatArray:
        """(k,) how likely the tokens of a draft are to be accepted."""
        return self._trust.of(_chain(predicted))[1:]

    def choose(self, predicted: Sequence[Sequence[float]], batch: int) -> list[int]:
        """How many tokens of each row's draft to verify.

        Args:
            predicted: by row, how likely each token was said to be, as probabilities of whole paths.
            batch: rows of the step, those without a draft included.
        """
        likely = [self.acceptance(each) for each in predicted]
        times = self.times(batch)
        drafted: FloatArray = np.array([prob for each in likely for prob in each], float)
        costs = times.costs(len(drafted))
        rate = times.rate or batch / costs[0]
        order = np.argsort(-drafted, kind="stable")
        gains = np.concatenate([[0.0], drafted[order].cumsum()]) - rate * costs
        kept = order[: int(np.argmax(gains))]
        ends = np.cumsum([len(each) for each in likely])
        counts = np.bincount(np.searchsorted(ends, kept, side="right"), minlength=len(predicted))
        if len(drafted):  # a step without a match says nothing
            self._unpaid[batch] = 0 if len(kept) else self._unpaid.get(batch, 0) + 1
        return [int(count) for count in counts]


def _chain(predicted: Sequence[float]) -> DraftTree:
    """A draft of the tokens 1, 2, ... with these probabilities of whole paths."""
    return DraftTree.chain(0, range(1, len(predicted) + 1), np.array([1.0, *predicted]))
