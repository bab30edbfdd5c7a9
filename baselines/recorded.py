"""Drafters that others ran and recorded with the answers: how many tokens each step emitted, at every position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ngram_trie.drafter import Drafter, Traits, check_bool, check_choice, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


class Recorded(Drafter):
    """A recorded drafter, as far as its accept lengths tell: it drafts the tokens that it had accepted.

    Only a replay of the answers that it was recorded with can run it (`bench.traces.Trace.recorded`).

    Args:
        recording: its name there: acc_NAME of SpecDecode-Bench's lines.
        num_draft: most tokens of a draft; the recording's steps are cut to it.
        full: whether it always drafts `num_draft` tokens, as a trained drafter does: a rejected one is verified, too.
            Otherwise only accepted tokens are counted as nodes, fewer than were verified: what a drafter that looks up
            n-grams drafted in vain was not recorded.
        trained: whether its weights were trained for it.
    """

    traits = Traits(reads="recording", drafts_chains=True)

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """It keeps its size, which is in its name."""
        return {}

    def __init__(self, *, recording: str, num_draft: int = 20, full: bool = False, trained: bool = False) -> None:
        check_choice("recording", recording, ("ngram", "eagle"))
        check_int("num_draft", num_draft, 1)
        check_bool("full", full)
        check_bool("trained", trained)
        self.recording, self.num_draft, self.full = recording, num_draft, full
        if trained:
            self.traits = replace(self.traits, state="trained")

    def bind(self, target: Any) -> None:
        """Raises:
        ValueError: the target is no recorded answer, or nothing of this drafter was recorded with it.
        """
        trace = getattr(target, "trace", None)
        if trace is None or self.recording not in trace.recorded:
            raise ValueError(
                f"recording={self.recording}: no such recording; only a replay of recorded answers has one"
            )
        self._answer, self._lengths = trace.output_ids, trace.recorded[self.recording]

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._position = 0

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self._position += len(new_ids)

    def num_accepted(self) -> int:
        """How many of its tokens the next step accepts."""
        known = self._lengths[self._position] if self._position < len(self._lengths) else 1
        return min(known - 1, self.num_draft)

    def propose(self, budget: int) -> DraftTree:
        start, most = self._position, min(self.num_draft, budget)
        tokens = list(self._answer[start : start + min(self.num_accepted(), most)])
        if self.full and len(tokens) < most:
            behind = self._answer[start + len(tokens) : start + len(tokens) + 1]
            rejected = int(behind[0] == 0) if behind else 0
            tokens += [rejected] * (most - len(tokens))
        return DraftTree.chain(self.root, tokens)
