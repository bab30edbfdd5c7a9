"""A target over a network: the text that it has read, and what a drafter may ask about it.

Shapes: l = prompt tokens, m = tree nodes, H = hidden size, V = vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from weakref import WeakSet

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ngram_trie.drafter import TopK
from ngram_trie.targets.costs import MeasuredCosts, step_costs
from ngram_trie.targets.load import draft_limit, longest_text
from ngram_trie.targets.network import Forward, Network, greedy
from ngram_trie.targets.stock import StockNetwork
from ngram_trie.targets.top_k import top_k_rows
from ngram_trie.tree import DraftTree, IntArray

#: Of a prompt, logits that are made at once, 16 MB of them. In blocks of 64 places an H100 took 6 ms for 1,000.
PROMPT_LOGITS = 1 << 22
#: Networks whose logits `_head` is known to give.
_HEADS: WeakSet[Network] = WeakSet()


class TargetModel:
    """Greedy next tokens of a causal language model, for prompts and for draft trees.

    Args:
        model: a causal model of transformers.
        max_draft: the largest number of draft nodes that `verify` will be given; sizes the text.
        context_limit: largest number of tokens of prompt and output together; the model's own by default.
        network: what computes it, see `ngram_trie.targets.choose`; the model's own modules by default.

    Raises:
        ValueError: the model cannot verify draft trees.

    Attributes:
        draft_limit: length of a text up to which drafts may be verified behind the prompt.
        last: the last forward of `prefill` or `verify`, for drafters that read more than tokens.
        keeps_prompt: whether a prompt that was the last to be read is not read again: its rows are still there.
    """

    draft_limit: int
    last: Forward
    keeps_prompt = False
    _prompt: tuple[bytes, Forward, float] | None = None

    def __init__(
        self,
        model: PreTrainedModel,
        max_draft: int = 256,
        context_limit: int | None = None,
        network: Network | None = None,
    ) -> None:
        self.model, self.device = model, model.device
        self.network: Network = network or StockNetwork(model)
        self.context_limit = longest_text(model.config, context_limit)
        self.max_draft = max_draft
        self.cache = self.network.text(self.context_limit + max_draft + 1)

    def prefill(self, prompt_ids: IntArray) -> Forward:
        """Read the prompt (l,) as a text of its own.

        Raises:
            ValueError: a logit is not finite, here and in `verify`.
        """
        self.begin_prefill(prompt_ids)
        return self.end_prefill()

    @torch.inference_mode()
    def begin_prefill(self, prompt_ids: IntArray) -> None:
        """Let the device begin to read the prompt; until `end_prefill` the host is free."""
        started = perf_counter()
        self.draft_limit = draft_limit(self.model.config, len(prompt_ids))
        self._begun, name = None, prompt_ids.tobytes()
        if self.keeps_prompt and self._prompt and self._prompt[0] == name:
            self.cache.truncate(len(prompt_ids))
            return
        self.forget()
        states = self.network.read(self.cache, prompt_ids)
        self._begun = (name, int(prompt_ids[-1]), states, greedy(states.logits), perf_counter() - started)

    def end_prefill(self) -> Forward:
        """Wait for what `begin_prefill` began."""
        started = perf_counter()
        if self._begun is None:
            assert self._prompt is not None
            _, self.last, self.last.saved_seconds = self._prompt
        else:
            name, token, (hidden, logits), chosen, seconds = self._begun
            choices = self._finite(chosen.cpu().numpy())
            tree = DraftTree.root_only(token)
            self.last = Forward(choices=choices, tree=tree, hidden=hidden[-1:], logits=logits, path=[0], prompt=hidden)
            if self.keeps_prompt:
                self._prompt = name, replace(self.last), seconds + perf_counter() - started
        return self.last

    def capture(self, top_k: int = 0) -> int:
        """Prepare steps of every size, before a clock runs; returns how many there are. Forgets the text."""
        self.forget()
        return self.network.capture(self.cache, self.max_draft + 1, self.context_limit, top_k)

    def step_costs(self, top_k: int = 0) -> MeasuredCosts:
        """What its steps cost here (`ngram_trie.targets.costs`). Forgets the text."""
        self.forget()
        return step_costs(self.model, self.network, self.cache, self.context_limit, self.max_draft + 1, top_k)

    def forget(self) -> None:
        """Empty the text."""
        self.cache.truncate(0)
        self._prompt = None

    @torch.inference_mode()
    def verify(self, tree: DraftTree, top_k: int = 0) -> Forward:
        """One forward over the tree's m nodes.

        The nodes' keys and values stay behind the text until `commit` says which of them were accepted.

        Args:
            top_k: how many of the likeliest tokens behind every node will be asked for.

        Raises:
            ValueError: more nodes than `max_draft` and the root, or a logit that is not finite.
        """
        if len(tree) > self.max_draft + 1:
            raise ValueError(f"a tree of {len(tree)} nodes, but max_draft={self.max_draft}")
        self.last = self.network.step(self.cache, tree, top_k)
        self._finite(self.last.choices)
        return self.last

    def _finite(self, choices: IntArray) -> IntArray:
        """The (m,) choices that `greedy` made, of which none may be -1."""
        if choices.min() < 0:
            name, kind = self.model.name_or_path or type(self.model).__name__, str(self.model.dtype)
            raise ValueError(
                f"model {name}: a logit is NaN or infinite: its weights are damaged, or {kind.removeprefix('torch.')} "
                "is too small for it (model.dtype)"
            )
        return choices

    @torch.inference_mode()
    def commit(self, past: int, path: list[int]) -> None:
        """Keep the accepted nodes' rows behind the `past` tokens of the text before `verify`."""
        self.last.path = path
        self.cache.keep(past, path)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read next is true."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def top_k(self, k: int, nodes: IntArray | None = None, least: float = 0.0) -> TopK:
        """Behind each node of the last tree, or `nodes` of it alone; after `prefill` behind the prompt's last token.
        What is less likely than `least` may have probability 0.
        """
        last = self.last
        rows = slice(None) if nodes is None else nodes
        places = np.arange(len(last.tree))[rows]
        if last.top_k is not None and k <= last.top_k.tokens.shape[1]:
            return TopK(places, last.top_k.tokens[rows, :k], last.top_k.probs[rows, :k])
        logits = last.logits if nodes is None else last.logits[torch.from_numpy(nodes)]
        return top_k_rows(places, logits, k, None if last.peaks is None else last.peaks[rows], least)

    @torch.inference_mode()
    def top_k_in_prompt(self, places: IntArray, k: int, among: IntArray | None = None, least: float = 0.0) -> TopK:
        """Behind the prompt's tokens at `places`, at least one, after `prefill`: one more product with the model's
        head, some rows at a time, since a row of logits is as long as the vocabulary.

        Args:
            among: (s,) increasing, the tokens that are looked at, and that probabilities are shared among: as many
                times cheaper as there are fewer of them; None for the vocabulary.
            least: as in `top_k`.

        Raises:
            ValueError: the model does something with its logits that is not known here.
        """
        rows, prompt = None if among is None else torch.from_numpy(among).to(self.device), self.last.prompt
        assert prompt is not None
        if self.network not in _HEADS and not self._finds_head():
            raise ValueError(
                f"{type(self.model).__name__} changes its logits behind the head in a way that is not known here, "
                "so nothing can be said of its prompt: take a drafter that reads tokens, or blend_logits_answer"
            )
        columns = self.model.get_input_embeddings().num_embeddings if among is None else len(among)
        size = max(1, PROMPT_LOGITS // columns)
        blocks = [places[start : start + size] for start in range(0, len(places), size)]
        parts = [top_k_rows(block, self._head(prompt[block], rows), k, least=least) for block in blocks]
        found = TopK(*map(np.concatenate, zip(*parts, strict=True)))
        return found if among is None else found._replace(tokens=among[found.tokens])

    def knows_head(self) -> bool:
        """Whether a prompt's logits can be had of its states (`top_k_in_prompt`); reads a token to find out."""
        if self.network not in _HEADS:
            self.prefill(np.zeros(1, np.int64))
            self.forget()
        return self.network in _HEADS or self._finds_head()

    @torch.inference_mode()
    def _finds_head(self) -> bool:
        """Whether `_head` gives the last forward's logits."""
        own, said = self._head(self.last.hidden[-1:]).float(), self.last.logits[-1:].float()
        is_known = torch.allclose(own, said, rtol=0.02, atol=0.02 * float(said.abs().max()))
        if is_known:
            _HEADS.add(self.network)
        return is_known

    def _head(self, hidden: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (n, V) of last hidden states (n, H), scaled and capped as the model's own forward does; of the tokens
        `rows` (s,) alone, (n, s), by these rows of a head that is a plain product.
        """
        config, head = self.model.config.get_text_config(), self.model.get_output_embeddings()
        if rows is not None and type(head) is torch.nn.Linear:
            logits = F.linear(hidden, head.weight[rows], None if head.bias is None else head.bias[rows])
        else:
            logits = head(hidden) if rows is None else head(hidden)[:, rows]
        logits = logits / (getattr(config, "logits_scaling", None) or 1)  # Granite
        logits = logits * (getattr(config, "logit_scale", None) or 1)  # Cohere
        cap = getattr(config, "final_logit_softcapping", None)  # Gemma 2
        return cap * torch.tanh(logits / cap) if cap else logits

    @torch.inference_mode()
    def near_tie(self, ids: list[int], candidates: list[int]) -> tuple[float, bool]:
        """Whether the choice among `candidates` after `ids` (l,) may fall either way by rounding alone.

        Returns:
            The distance of the lowest candidate's logit from the largest logit of all, and whether it lies within two
            steps of the model's precision. In single precision nothing is excused.
        """
        self.forget()
        logits = self.network.read(self.cache, np.array(ids)).logits[-1].float()
        gap = float(logits.max() - logits[candidates].min())
        if self.model.dtype == torch.float32:
            return gap, False
        # Logits are rounded to the model's precision, and so are the sums before them. The 16 answers of
        # Qwen2.5-Coder-0.5B that differed in bfloat16 on an H100 all did so where the gap was at most one such step.
        return gap, gap <= 2 * torch.finfo(self.model.dtype).eps * float(logits.max().abs())
