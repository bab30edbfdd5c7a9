"""The library as a method of runs: `speculative_generate` as it comes, timed like any other."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ngram_trie.baselines.hf_generate import StopStrings
from ngram_trie.decoding import Decoder, GenerationResult, PromptTooLong, Stop
from ngram_trie.generate import Speculator
from ngram_trie.prompt import Prompt
from ngram_trie.targets.model import TargetModel


class Library(Decoder):
    """A `Speculator` with its own defaults, which is what people get who ask for nothing: its drafter, draft length and
    network. Its time is that of the whole call.
    """

    def bind(self, target: TargetModel) -> None:
        self.target = target
        self._speculator = Speculator(target.model)

    def generate(self, prompt: Prompt, stop: Stop) -> GenerationResult:
        room = self.target.context_limit - len(prompt.ids)
        if room < 1:
            raise PromptTooLong(f"{len(prompt.ids)} prompt tokens, context limit {self.target.context_limit}")
        self.target.synchronize()
        started = perf_counter()
        emitted, answer = self._speculator(
            prompt,
            do_sample=False,
            # a hub model's own generation config may ask for more than greedy decoding
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            max_new_tokens=min(stop.max_new_tokens, room),
            eos_token_id=sorted(stop.eos_ids) or None,
            pad_token_id=0,
            stopping_criteria=[StopStrings(stop, len(prompt.ids))] * bool(stop.stop_strings),
        )
        total = perf_counter() - started
        kept, reason = stop.trim([], emitted, room)
        assert reason and kept == emitted, "the library stopped for a reason of its own"
        seconds = replace(answer.seconds, total=total)
        return GenerationResult(kept, answer.accept_lengths, answer.tree_sizes, seconds, reason, answer.draft_us)
