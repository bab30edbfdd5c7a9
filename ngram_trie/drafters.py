"""The paper's drafters, and `vanilla`, which never drafts and which every other method is compared with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from ngram_trie.drafter import (
    Drafter,
    HistoryDrafter,
    Traits,
    check_bool,
    check_choice,
    check_context,
    check_int,
    check_token,
)
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree, IntArray
from ngram_trie.trie import NgramTrie, ReleasedTrie, Ties


class NoDraft(Drafter):
    """Vanilla: every step is a plain decoding step."""

    traits = Traits(drafts_chains=True)

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        return {}

    def propose(self, budget: int) -> DraftTree:
        return DraftTree.root_only(self.root)


class _TrieDrafter(HistoryDrafter):
    """A trie of one part of the prompt, matched with the end of the whole text so far."""

    traits = Traits(scores_nodes=True)
    _trie: NgramTrie | ReleasedTrie

    def __init__(self, n: int, prefix_len: int, num_draft: int, context: str, update_with_output: bool) -> None:
        check_int("n", n, 2)
        check_int("prefix_len", prefix_len, 1, n - 1)
        check_int("num_draft", num_draft, 1)
        check_context(context)
        check_bool("update_with_output", update_with_output)
        self.n, self.prefix_len, self.num_draft = n, prefix_len, num_draft
        self.context, self.update_with_output = context, update_with_output
        self.traits = replace(self.traits, context=context)

    @abstractmethod
    def _index(self, texts: Sequence[IntArray]) -> NgramTrie | ReleasedTrie:
        """The trie of `texts`; what is added to it follows the last one."""

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        texts = prompt.read_by_tries(self.context)
        self._trie = self._index(texts)
        if len(texts) > 1 or len(prompt.noise) or not prompt.ends_with(self.context):
            # The output does not follow this part of the prompt, so no window may run from one into the other.
            self._trie.begin_text()

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self.update_with_output:
            self._trie.extend(new_ids)


class NgramTrieDrafter(_TrieDrafter):
    """The paper's method: Algorithm 1 over the prompt, matching and pruning as in section 3.2; see `NgramTrie`.

    Args:
        n: length of the sampling window.
        prefix_len: L_p, the longest suffix of the text that is matched; 1 to n - 1.
        num_draft: most nodes of a draft; `propose` takes its budget where that is smaller.
        context: the part of the prompt that the trie is built from (`Prompt.part`).
        update_with_output: also index the output as it is emitted; the paper does not.
        ties: which of equally frequent nodes are kept, "deep" or "shallow" (`NgramTrie.draft`).
    """

    _trie: NgramTrie

    def __init__(
        self,
        *,
        n: int = 13,
        prefix_len: int = 3,
        num_draft: int = 32,
        context: str = "prompt",
        update_with_output: bool = False,
        ties: Ties = "shallow",
    ) -> None:
        super().__init__(n, prefix_len, num_draft, context, update_with_output)
        check_choice("ties", ties, get_args(Ties))
        self.ties: Ties = ties

    def _index(self, texts: Sequence[IntArray]) -> NgramTrie:
        trie = NgramTrie(texts[0], n=self.n, prefix_len=self.prefix_len)
        for text in texts[1:]:
            trie.begin_text()
            trie.extend(text)
        return trie

    def propose(self, budget: int) -> DraftTree:
        return self._trie.draft(self.text, min(self.num_draft, budget), self.ties)


class ReleasedNgramTrieDrafter(_TrieDrafter):
    """What the authors' released code drafts, which is not Algorithm 1; see `ReleasedTrie`.

    Args:
        n, prefix_len, num_draft, context, update_with_output: as in `NgramTrieDrafter`. The released code reads the
            user's turn alone on Spec-Bench, the retrieved texts one by one on TriviaQA, the whole prompt on Hagrid:
            "released" (`Prompt.read_by_tries`).
        eos_id: the token that pads the text; None for the model's own, or in a replay, where there is no model, for
            Llama's and Vicuna's.
        no_match_id: the token that is drafted where nothing matches.
    """

    _trie: ReleasedTrie

    def __init__(
        self,
        *,
        n: int = 13,
        prefix_len: int = 3,
        num_draft: int = 64,
        context: str = "prompt",
        update_with_output: bool = False,
        eos_id: int | None = None,
        no_match_id: int = 100,
    ) -> None:
        super().__init__(n, prefix_len, num_draft, context, update_with_output)
        if eos_id is not None:
            check_int("eos_id", eos_id, 0)
        check_int("no_match_id", no_match_id, 0)
        self.eos_id, self.no_match_id = eos_id, no_match_id
        self._padding = 2 if eos_id is None else eos_id

    def bind(self, target: Any) -> None:
        check_token("eos_id", self.eos_id, target.model)
        check_token("no_match_id", self.no_match_id, target.model)
        if self.eos_id is None and target.model is not None:
            ids = target.model.generation_config.eos_token_id
            if ids is not None:
                self._padding = int(ids if isinstance(ids, int) else ids[0])

    def _index(self, texts: Sequence[IntArray]) -> ReleasedTrie:
        return ReleasedTrie(
            *texts, n=self.n, prefix_len=self.prefix_len, eos_id=self._padding, no_match_id=self.no_match_id
        )

    def propose(self, budget: int) -> DraftTree:
        return self._trie.draft(self.text, min(self.num_draft, budget))
