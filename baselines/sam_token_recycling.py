"""SAM-Decoding with Token Recycling, as its authors publish it (Hu et al. 2024, arXiv 2411.10666; `baselines.sam`): a
copy where a long suffix of the text occurred before, else Token Recycling's tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngram_trie.baselines.sam import SAMDecoding
from ngram_trie.baselines.token_recycling import TEMPLATE_NODES, TokenRecycling
from ngram_trie.drafter import Drafter, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.tree import DraftTree


class SAMTokenRecycling(Drafter):
    """The two drafters side by side (section 3.3 of the paper; `DraftModel.lookup` of the release): where the longest
    match has at least `min_match` tokens, a static one less `static_bias`, what followed it is drafted as a chain, else
    the tree. The matrix learns from every forward, whichever of the two made the draft, and, unlike Token Recycling's
    own, from the whole prompt (`prefill` of `samd/samd_model.py`).

    As in the release, the automaton forgets a prompt when the next one comes and the matrix does not (its `reset` does
    nothing there). So it remembers, with a datastore as well as without one. Against the release:

    - a copy that reaches the end of the text ends there; the release fills it up to 40 tokens with token 0;
    - a match that nothing could follow leaves the step to the tree.

    A draft's source (`DraftTree.sources`) is "copy" or "recycled".

    Args:
        num_draft: most tokens copied (`n_predicts` = 40 counts the pending one).
        tree_nodes: most nodes of the tree, at most the template's 80.
        min_match: the paper's l_threshold.
        static_bias: its l_bias.
        k: successors kept for a token.
        keep_between_prompts: whether the matrix outlives a prompt.
        context, datastore: as in `SAMDecoding`.
    """

    traits = TokenRecycling.traits

    def __init__(
        self,
        *,
        num_draft: int = 39,
        tree_nodes: int = TEMPLATE_NODES,
        min_match: int = 5,
        static_bias: int = 5,
        k: int = 8,
        keep_between_prompts: bool = True,
        context: str = "prompt",
        datastore: str | None = None,
    ) -> None:
        self.copies = SAMDecoding(
            num_draft=num_draft, min_match=min_match, alpha=None, require_full=True, context=context,
            datastore=datastore, static_bias=static_bias,
        )  # fmt: skip
        check_int("tree_nodes", tree_nodes, 1, TEMPLATE_NODES)
        self.recycled = TokenRecycling(num_draft=tree_nodes, k=k, keep_between_prompts=keep_between_prompts)
        traits = replace(self.recycled.traits, context=context)
        if datastore:
            traits = replace(traits, state=self.copies.traits.state, keeps_answers=traits.remembers)
        self.traits = traits

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        return {"num_draft": num_nodes, "tree_nodes": min(num_nodes, TEMPLATE_NODES)}

    def parts(self) -> Mapping[Path, str]:
        return self.copies.parts()

    def bind(self, target: Any) -> None:
        self.copies.bind(target)
        self.recycled.bind(target)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self.copies.start(prompt)
        self.recycled.start(prompt)
        self.recycled.learn_prompt(prompt)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        self.copies.observe(new_ids)
        self.recycled.observe(new_ids)

    def propose(self, budget: int) -> DraftTree:
        copy = self.copies.propose(budget)
        if not copy.num_draft:
            return self.recycled.propose(budget).owed_to("recycled")
        self.recycled.learn()
        return copy.owed_to("copy")
