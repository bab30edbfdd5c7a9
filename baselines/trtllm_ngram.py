"""TensorRT-LLM's `NGram` drafter: a pool of keys of up to k tokens, each with the v tokens that followed it."""

from __future__ import annotations

from collections.abc import Sequence

from ngram_trie.drafter import HistoryDrafter, Traits, check_int
from ngram_trie.memory import KeepingDrafter
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


class NgramPool(KeepingDrafter, HistoryDrafter):
    """TensorRT-LLM's pool (tensorrt_llm/_torch/speculative/ngram.py, 1.0 and later), with `is_keep_all` and
    `is_use_oldest`, its defaults: the longest key that the text ends with drafts the oldest of the longest values that
    were seen behind it.

    A value that was cut by the end of the text is replaced when it has grown. With a pool of its own for each prompt
    that is prompt lookup (`PromptLookup`) with other sizes. By default all requests share one pool, prompts included,
    and nothing is ever removed from it (`keep_between_prompts`). The engine pads drafts to their full length; padding
    is not drafted here.

    Args:
        max_ngram: longest key, k.
        num_draft: length of values, v; `propose` takes its budget where that is smaller.
        keep_between_prompts: share the pool between prompts, the engine's `is_public_pool`. The state is then "warm".
    """

    traits = Traits(scores_nodes=True, drafts_chains=True)

    def __init__(self, *, max_ngram: int = 3, num_draft: int = 5, keep_between_prompts: bool = False) -> None:
        check_int("max_ngram", max_ngram, 1)
        check_int("num_draft", num_draft, 1)
        self.max_ngram, self.num_draft = max_ngram, num_draft
        super().__init__(keep_between_prompts)

    def forget(self) -> None:
        self._pool: dict[tuple[int, ...], tuple[int, ...]] = {}

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._add(0)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        # what lies further back had whole values before
        self._add(max(0, len(self.text) - len(new_ids) - self.num_draft - self.max_ngram + 1))

    def _add(self, first: int) -> None:
        """Take in the keys that begin at `first` or behind."""
        text = self.text[first:].tolist()
        for size in range(1, self.max_ngram + 1):
            for start in range(len(text) - size):
                key = tuple(text[start : start + size])
                value = tuple(text[start + size : start + size + self.num_draft])
                if len(value) > len(self._pool.get(key, ())):
                    self._pool[key] = value

    def propose(self, budget: int) -> DraftTree:
        end = self.text[-self.max_ngram :].tolist()
        for size in range(min(self.max_ngram, len(self.text) - 1), 0, -1):
            if value := self._pool.get(tuple(end[-size:])):
                return DraftTree.copied(self.root, value[:budget], size)
        return DraftTree.root_only(self.root)
