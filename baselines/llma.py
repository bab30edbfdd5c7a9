"""LLMA, "Inference with Reference" (Yang et al. 2023, arXiv 2304.04487): where the last tokens of the output occur in a
reference, copy what follows them there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

from ngram_trie.drafter import HistoryDrafter, Traits, check_choice, check_context, check_int
from ngram_trie.prompt import Prompt
from ngram_trie.store.compiled import compiled
from ngram_trie.tree import DraftTree, IntArray

Which = Literal["first", "last"]


@compiled
def _find_copy(reference: IntArray, output: IntArray, least: int, most: int, last: bool) -> tuple[int, int]:
    """Where the tokens to copy begin, after the longest match of the output's end, of `least` to `most` tokens, that a
    token follows, among equally long ones after the first or the last; and how long it is. -1 first if there is none.
    """
    found, longest = -1, least - 1
    size = len(output)
    for end in range(len(reference) - 1):  # the last token has nothing behind it to copy
        room = min(most, size, end + 1)
        same = 0
        while same < room and reference[end - same] == output[size - 1 - same]:
            same += 1
        if same > longest or (last and found >= 0 and same == longest):
            found, longest = end + 1, same
            if longest == most and not last:
                break  # no later match can be better
    return found, longest


class LLMA(HistoryDrafter):
    """LLMA: where the last n tokens of the output occur in the reference, what follows them there is copied.

    Rules and defaults are those of the authors' released code (LMOps, `llma/src/decode.py` and its README), which
    settles what "match" and "copy" leave open: n = 1, k = 20, longer matches of up to 5 tokens preferred, the first of
    equally long ones. As there,
    - the trigger is looked for in the reference alone, never in the output, and consists of output tokens alone;
    - k counts the block that a step verifies, the pending token and k - 1 copied ones.
    Unlike there, a match with nothing behind it does not count, rather than win and draft nothing. And the reference is
    one piece of text: several documents in one part of the prompt are not kept apart.

    Prompt lookup differs in searching the output too, in taking its trigger from the prompt's end as well, and in n.

    Args:
        n: match length, the fewest tokens that trigger a copy.
        k: copy length, the tokens verified by a step that copies; `propose` takes its budget where that is less than
            k - 1.
        max_n: the longest match that is looked for, longest first; equal to `n`, every match is as good as another.
        context: the part of the prompt that is the reference (`Prompt.part`). The source hands over the documents.
        which: which of equally long matches is copied from, "first" or "last".
    """

    traits = Traits(scores_nodes=True, drafts_chains=True)

    def __init__(
        self, *, n: int = 1, k: int = 20, max_n: int = 5, context: str = "prompt", which: Which = "first"
    ) -> None:
        check_int("n", n, 1)
        check_int("k", k, 2)
        check_int("max_n", max_n, n)
        check_context(context)
        check_choice("which", which, get_args(Which))
        self.n, self.k, self.max_n, self.context = n, k, max_n, context
        self.traits = replace(self.traits, context=context)
        self.which: Which = which

    @classmethod
    def sized(cls, num_nodes: int) -> dict[str, Any]:
        return {"k": num_nodes + 1}

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self._reference, self._num_prompt = prompt.part(self.context), len(prompt.ids)

    def propose(self, budget: int) -> DraftTree:
        output = self.text[self._num_prompt :]
        start, matched = _find_copy(self._reference, output, self.n, self.max_n, self.which == "last")
        if start < 0:
            return DraftTree.root_only(self.root)
        return DraftTree.copied(self.root, self._reference[start : start + min(self.k - 1, budget)], matched)
