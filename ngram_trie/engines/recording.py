"""Answers of a model written down one by one, and what else the model would have said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.decoding import PromptTooLong, SpeculativeDecoder
from ngram_trie.drafter import LIKELY_TOKENS, Drafter, Likely, WrappedDrafter
from ngram_trie.engines.likely_file import LikelyWriter
from ngram_trie.engines.live import Live
from ngram_trie.engines.traces import Trace
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.tree import DraftTree


class KeepsLikely(WrappedDrafter):
    """A drafter beside which the model's likely tokens along prompt and answer are kept.

    The loop lets it observe every token that is kept, after the forward that gave it: the rows behind the accepted
    nodes are those behind the tokens before.

    Args:
        drafter: which one makes no difference to the answer; nor, but for rounding, to what is kept.
        k: tokens of a row.

    Attributes:
        likely: rows of the last answer, in the order of the text.
    """

    def __init__(self, drafter: Drafter, k: int) -> None:
        super().__init__(drafter)
        self.reads = LIKELY_TOKENS  # type: ignore[misc]
        self.k = k
        self.likely: list[Likely] = []

    def bind(self, target: Any) -> None:
        super().bind(target)
        self.target = target

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        places = np.arange(len(prompt.ids) - 1)
        self.likely = [self.target.likely_in_prompt(places, self.k)] if len(places) else []

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        last = self.target.last
        kept = None if last.tree is None else np.array(last.path[: len(new_ids)])
        self.likely.append(self.target.likely(self.k, kept))

    def propose(self, budget: int) -> DraftTree:
        return self.drafter.propose(budget)

    def write(self, file: LikelyWriter, trace: Trace) -> None:
        """Append the rows of the answer that was just given."""
        file.add(trace.prompt.ids, trace.output_ids, self.likely)


def record(
    engine: Live,
    decoder: SpeculativeDecoder,
    path: Path,
    known: Sequence[Trace],
    before: Callable[[Trace], None] = lambda trace: None,
) -> Iterator[Trace]:
    """Append the answers that are not `known` to the file of traces; a turn follows the answers to those before it.

    Args:
        before: called with each of them before its line is written.

    Raises:
        ValueError: the file holds answers of another model or to other prompts.
    """
    answered = {trace.key: trace for trace in known}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for key, item in engine.items.items():
            if isinstance(item, LaterTurn):
                earlier = [answered.get((*key[:2], turn)) for turn in range(item.turn)]
                if None in earlier:  # too long, so there is nothing to go on from
                    continue
                prompt = item.build([trace.output_ids for trace in earlier if trace])
            else:
                prompt = item
            if key in answered:
                if answered[key].model != engine.model or answered[key].prompt.ids.tolist() != prompt.ids.tolist():
                    raise ValueError(f"{path} holds answers of another model or to other prompts: give another file")
                continue
            try:
                result = decoder.generate(prompt, engine.stop)
            except PromptTooLong:
                continue
            room = min(engine.stop.max_new_tokens, decoder.target.context_limit - len(prompt.ids))
            answered[key] = Trace(engine.model, prompt, result.output_ids, room, result.stop_reason)
            before(answered[key])
            file.write(answered[key].to_json() + "\n")
            file.flush()
            yield answered[key]
