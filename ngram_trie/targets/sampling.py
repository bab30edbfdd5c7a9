"""Sampling in the decoding loop, and greedy decoding under logits processors: the target's own token for every node.

Each place of an answer has one random number of its own, u, drawn in order before anything is drafted there. A node's
token is the one at which its distribution p( . | text, path to the node), after temperature, top-k and so on, summed in
the order of the vocabulary, passes u. The step follows these tokens: from the root to the child that has the root's
token, and so on; where there is none the token is emitted and the step ends. So an answer is a function of the model,
the prompt and the numbers alone, each token distributed as plain sampling has it, whatever was drafted: the same seed
gives the same answer with any drafter and with none. The walk of greedy decoding, `verify_greedy`, serves here as well;
only the choices differ.

Two ways to lose this, both in REST's released code: to draw once more for the token after a rejection (a drafted token
then has two chances), and to draw for each row of a draft and keep the longest (one chance a row).

Shapes: m = tree nodes, V = vocabulary, l = tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import LogitsProcessorList

from ngram_trie.targets.internals import OF_LOGITS, OF_TEXT
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.network import Forward
from ngram_trie.tree import DraftTree, FloatArray, IntArray


class LogitsSampler:
    """Chooses each node's token from its processed logits: drawn, or the likeliest.

    Args:
        processors: transformers' processors, in order; those that read the text are given each node's own.
        do_sample: draw; else take the largest.
        generator: gives an answer its seed, one draw each; None takes torch's own.

    Raises:
        ValueError: a processor that is not known to be a function of one text and its logits alone.
    """

    def __init__(
        self, processors: LogitsProcessorList, do_sample: bool, generator: torch.Generator | None = None
    ) -> None:
        supported = OF_LOGITS + OF_TEXT
        for processor in processors:
            if type(processor) not in supported:
                raise ValueError(
                    f"logits processor {type(processor).__name__}: the nodes of a draft are many texts at once, and "
                    f"only these are known to treat each alone: {', '.join(kind.__name__ for kind in supported)}"
                )
        self.processors, self.do_sample, self.generator = processors, do_sample, generator
        self._reads_text = any(isinstance(processor, OF_TEXT) for processor in processors)

    @torch.inference_mode()
    def first(self, prompt_ids: IntArray, target: TargetModel) -> int:
        self._text: list[int] = prompt_ids.tolist()
        self._start = len(self._text)
        if self.do_sample:
            device = self.generator.device if self.generator else "cpu"
            seed = torch.randint(2**63 - 1, (), generator=self.generator, device=device)
            self._random, self._numbers = np.random.default_rng(int(seed)), np.empty(0)
        return int(self._choose(target.last)[0])

    @torch.inference_mode()
    def next_tokens(self, new_ids: Sequence[int], target: TargetModel) -> IntArray:
        self._text += new_ids
        return self._choose(target.last)

    def _choose(self, seen: Forward) -> IntArray:
        """(m,) a token for each node from its logits (m, V); nodes with one path share one."""
        tree = seen.tree
        scores = self._processed(tree, seen.logits.to(torch.float32, copy=True))
        if self.do_sample:
            scores = scores.cpu() if scores.device.type == "mps" else scores  # which has no double precision
            sums = scores.softmax(-1, dtype=torch.float64).cumsum(-1)
            numbers = torch.from_numpy(self._numbers_at(tree.depths)).to(sums)
            chosen = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
        else:
            chosen = scores.argmax(-1)
        return chosen.cpu().numpy()[first_of_path(tree)]

    def _numbers_at(self, depths: IntArray) -> FloatArray:
        """(m,) the random number of the place in the answer that a node of each depth chooses the token of."""
        places = len(self._text) - self._start + depths
        missing = int(places.max()) + 1 - len(self._numbers)
        if missing > 0:
            self._numbers = np.append(self._numbers, self._random.random(missing))
        return self._numbers[places]

    def _processed(self, tree: DraftTree, logits: torch.Tensor) -> torch.Tensor:
        if not self._reads_text:
            nothing = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device)
            return self.processors(nothing, logits)
        for depth in np.unique(tree.depths):  # texts of one length at a time
            nodes = np.flatnonzero(tree.depths == depth)
            texts = [self._text + tree.tokens[tree.path_to(int(node))[1:]].tolist() for node in nodes]
            rows = torch.from_numpy(nodes).to(logits.device)
            logits[rows] = self.processors(torch.tensor(texts, device=logits.device), logits[rows])
        return logits


def first_of_path(tree: DraftTree) -> IntArray:
    """(m,) for each node the first node with the same tokens from the root: itself, unless siblings repeat a token."""
    first = [0]
    seen: dict[tuple[int, int], int] = {}
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    for node in range(1, len(tree)):
        first.append(seen.setdefault((first[parents[node]], tokens[node]), node))
    return np.array(first)
