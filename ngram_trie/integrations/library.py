"""The library as a method of runs: `speculative_generate` as it comes, timed like any other."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ngram_trie.baselines.hf_generate import greedy_options
from ngram_trie.decoding import Decoder, GenerationResult, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.generate import Speculator
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel


class Library(Decoder):
    """A `Speculator` with its own defaults, which is what people get who ask for nothing: its drafter, draft length and
    network. Its time is that of the whole call; where a prompt is read once for all methods, it is charged for that
    reading in place of its own, as they are.
    """

    def bind(self, target: TargetModel) -> None:
        self.target = target
        self._speculator = Speculator(target.model)
        # room for the run's longest text from the first answer on, as every method has it
        self._speculator._capacity = target.context_limit

    @property
    def drafter(self) -> Drafter:
        return self._speculator.drafter

    def generate(self, prompt: Prompt, stop: Stop) -> GenerationResult:
        room = self.room(prompt)
        self.target.synchronize()
        started = perf_counter()
        emitted, answer = self._speculator(prompt, **greedy_options(prompt, stop, room))
        total = perf_counter() - started
        kept, reason = stop.trim([], emitted, room)
        assert reason and kept == emitted, "the library stopped for a reason of its own"
        seconds = replace(answer.seconds, total=total)
        if self.target.keeps_prompt:
            self.target.prefill(prompt.ids)  # the one reading, if nobody has done it
            shared = self.target.prefill(prompt.ids).saved_seconds
            seconds = replace(seconds, prefill=shared, total=total - seconds.prefill + shared)
        return GenerationResult(kept, answer.accept_lengths, answer.tree_sizes, seconds, reason, answer.draft_us)
