"""Speculative sampling (Leviathan et al. 2023; Chen et al. 2023) at temperature 0: a small model writes the drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_trie.baselines.checkpoints import weight_parts
from ngram_trie.drafter import Drafter, Traits, check_choice, check_int, check_place
from ngram_trie.prompt import Prompt
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.load import load_model, longest_text
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.stock import StockNetwork
from ngram_trie.tree import DraftTree, num_shared


class SpS(Drafter):
    """A draft model with a cache of its own continues the text greedily; its tokens are drafted as a chain.

    How many is transformers' heuristic, which Spec-Bench runs too: gamma starts at 5, grows by 2 when all were accepted
    and shrinks by 1 otherwise, never below 1. It starts anew for every prompt (their "heuristic_transient").

    Args:
        draft_model: folder or hub id of a causal model with the target's vocabulary.
        revision: of the hub id.
        gamma: tokens drafted in the first step.
        schedule: "heuristic", or "constant" for the same number in every step.
        max_gamma: most tokens drafted; `propose` takes its budget where that is smaller.
        min_confidence: drafting stops behind a token that the draft model gives less probability than this
            (transformers' `assistant_confidence_threshold`, 0.4 there in newer versions; 0 turns it off, as published).
    """

    traits = Traits(state="trained", scores_nodes=True, drafts_chains=True, uses_device=True)
    not_sent = ("_draft", "_model")  # another process loads the weights itself
    _draft: Any = None
    _model: Any = None  # that the draft model was loaded beside

    def __init__(
        self,
        *,
        draft_model: str,
        revision: str | None = None,
        gamma: int = 5,
        schedule: str = "heuristic",
        max_gamma: int = 64,
        min_confidence: float = 0.0,
    ) -> None:
        check_int("gamma", gamma, 1)
        check_int("max_gamma", max_gamma, 1)
        check_choice("schedule", schedule, ("heuristic", "constant"))
        if not isinstance(min_confidence, int | float) or not 0 <= min_confidence < 1:
            raise ValueError(f"min_confidence={min_confidence!r}: must be a number of at least 0 and below 1")
        check_place("draft_model", draft_model, " or a hub id")
        self.draft_model, self.revision = draft_model, revision
        self.gamma, self.schedule, self.max_gamma, self.min_confidence = gamma, schedule, max_gamma, min_confidence

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        """The heuristic goes on choosing within it."""
        return {"max_gamma": num_nodes}

    def weights(self) -> Mapping[str, str | None]:
        return {self.draft_model: self.revision}

    def parts(self) -> Mapping[Path, str]:
        how = "`python -m scripts.studies.tiny.train draft-model` trains the tiny model's"
        return weight_parts(self.draft_model, self.revision, how)

    def bind(self, target: Any) -> None:
        """Load the draft model, where there is a network beside it: in its precision, on its device, computed by a
        network of its kind.

        Raises:
            FileNotFoundError, ValueError: no weights, or of another vocabulary.
        """
        model = target.model
        if self._draft and (model is None or model is self._model):
            return  # a replay binds anew for each answer, and a cache that grows is a new target of the same model
        place = {"dtype": str(model.dtype).removeprefix("torch."), "device": str(model.device)} if model else {}
        draft = load_model(self.draft_model, revision=self.revision, **place)
        own = draft.config.get_text_config().vocab_size
        if model and own != (size := model.config.get_text_config().vocab_size):
            raise ValueError(
                f"draft_model={self.draft_model}: has {own} tokens, the target model {size}; it must be one of the "
                "same vocabulary"
            )
        # computed as the target is: beside a network for speed, modules take several times as long as they need to
        backend = "stock" if model and isinstance(target.network, StockNetwork) else "auto"
        limit = longest_text(draft.config)
        network = network_for(draft, limit, backend)
        self._draft, self._model = TargetModel(draft, self.max_gamma, limit, network), model
        self._draft.capture(1)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._num_prompt = len(prompt.ids)
        self._output: list[int] = []
        self._cached: list[int] = []  # the draft model's cache behind the prompt: accepted tokens and its own drafts
        self._gamma = self.gamma
        self._drafted: list[int] = []
        if self._fits(0):
            self._draft.prefill(prompt.ids)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        count, drafted, self._drafted = len(new_ids), self._drafted, []
        if 0 < count <= len(drafted) + 1 and drafted and self.schedule == "heuristic":
            grown = self._gamma + 2 if count > len(drafted) else self._gamma
            if count <= len(drafted) and new_ids[-1] != drafted[count - 1]:  # else an adaptive length has cut it there
                grown = self._gamma - 1
            # Within what may be drafted: beyond it, many rejections would go by before a draft got shorter.
            self._gamma = min(max(grown, 1), self.max_gamma)
        self._output += new_ids

    def propose(self, budget: int) -> DraftTree:
        limit = min(self._gamma, self.max_gamma, budget)
        if not self._fits(limit):
            return DraftTree.root_only(self.root)
        same = num_shared(self._cached, self._output)
        same = min(same, len(self._output) - 1)  # a draft that was cut may have gone on as the target does
        self._draft.cache.truncate(self._num_prompt + same)
        unread, tokens, probs = self._output[same:], [], [1.0]
        while True:
            token, confidence = self._next(unread)
            tokens.append(token)
            probs.append(probs[-1] * confidence)
            if len(tokens) == limit or confidence < self.min_confidence:
                break
            unread = [token]
        self._cached = self._output + tokens[:-1]
        self._drafted = tokens
        return DraftTree.chain(self.root, tokens, np.array(probs))

    def _fits(self, num_draft: int) -> bool:
        """Whether the text and this many drafts fit the draft model's context."""
        return self._num_prompt + len(self._output) + num_draft <= self._draft.context_limit

    def _next(self, unread: list[int]) -> tuple[int, float]:
        """The draft model's token after `unread`, which it has not seen yet, and the probability that it gives it."""
        size = self._draft.max_draft + 1  # more are unread where it was not asked for some steps
        for block in (unread[start : start + size] for start in range(0, len(unread), size)):
            past = self._draft.cache.length
            choices = self._draft.verify(DraftTree.chain(block[0], block[1:]), 1).choices
            self._draft.commit(past, list(range(len(block))))
        return int(choices[-1]), float(self._draft.top_k(1, np.array([len(choices) - 1])).probs[0, 0])
