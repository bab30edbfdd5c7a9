"""A target for speed on a GPU: a cache that never moves, and a CUDA graph for every size of a step.

A step's nodes are padded to the next of a few sizes, and it attends to the cache up to the next of a few lengths; each
pair of the two is captured once, as one graph from tokens to choices (`FusedLlama` is the network), and to the
likeliest tokens behind each node where the drafter asks for them. What a step needs from the host, tokens, depths, mask
and the length of the text, lies in one buffer that is pinned and copied at once; what it gives back is read at once. On
a CPU the same code runs without graphs.

Padding nodes are rows like others that attend to the text and themselves; they are written behind the tree, nobody
reads them, and the next step overwrites them.

Shapes: m = tree nodes, q = m padded, k = cached tokens attended to, l = prompt tokens; others as in
`ngram_trie.targets.fused_llama`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ngram_trie.drafter import TopK
from ngram_trie.store.files import first_line
from ngram_trie.targets.fused_llama import FusedLlama, refusal
from ngram_trie.targets.model import Forward, TargetModel, check_finite, greedy
from ngram_trie.targets.top_k import top_k_on_device
from ngram_trie.tree import DraftTree, IntArray

#: Numbers of nodes, the root counted, that steps are padded to; the last is what `max_draft` asks for.
SIZES = (1, 8, 16, 32, 64, 128)
#: Cached tokens are attended to in multiples of this; a power of two.
CHUNK = 256
ATTENTION = ("products", "whole")
#: Key-value heads from which on the fused kernel fills a GPU. On an H100, behind about 1,000 tokens, a plain step took
#: 3.0 ms with "products" and 5.0 ms with "whole" at 3 heads (SmolLM2-135M, float32), 7.2 and 6.7 ms at 32 (Vicuna-7B,
#: bfloat16; docs/speed.md). Nothing was measured in between.
MANY_HEADS = 16


def attended(length: int, chunk: int = CHUNK) -> int:
    """Cached tokens that a step attends to which needs `length` of them: the next of at most four lengths to every
    doubling, so that there are few graphs and at most a quarter is read in vain (or one chunk).
    """
    step = max(chunk, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step


class StaticCache:
    """Keys and values of all layers in one buffer (layers, 2, h, c, d), of which the first p rows count."""

    def __init__(self, shape: tuple[int, int, int, int], capacity: int, like: torch.Tensor) -> None:
        layers, both, heads, size = shape
        # zeros: what is masked out still meets a weight of 0, and 0 times what memory happens to hold may be NaN
        self.rows = like.new_zeros(layers, both, heads, capacity, size)
        self.capacity = capacity
        self.length = 0

    def truncate(self, length: int) -> None:
        self.length = length

    def keep(self, past: int, path: list[int]) -> None:
        """Keep the first `past` rows and, moved right behind them, those of the tree nodes in `path` (increasing).

        All layers are moved at once, by four launches at most and without waiting for them.
        """
        still = next((place for place, node in enumerate(path) if place != node), len(path))
        if still < len(path):
            rows = torch.tensor([path[still:], range(still, len(path))]) + past
            if self.rows.is_cuda:
                rows = rows.pin_memory().to(self.rows.device, non_blocking=True)
            # index_select copies, so that source and destination rows may overlap
            self.rows.index_copy_(3, rows[1], self.rows.index_select(3, rows[0]))
        self.length = past + len(path)


class Stage:
    """What a step of q nodes needs from the host, in one buffer: the text's length, tokens, depths and mask.

    Attributes:
        past: (1,) int32; tokens, depths: (q,) int32; mask: (q, q) bool, whether node i sees node j. On the device.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        parts = [4, 8 * size, size * size]  # bytes
        self._host = torch.zeros(sum(parts), dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._device = self._host.to(device)
        past, nodes, mask = self._device.split(parts)
        self.past, (self.tokens, self.depths) = past.view(torch.int32), nodes.view(torch.int32).view(2, size)
        self.mask = mask.view(torch.bool).view(size, size)
        past, nodes, mask = (part.numpy() for part in self._host.split(parts))
        self._past, self._nodes = past.view(np.int32), nodes.view(np.int32).reshape(2, size)
        self._mask = mask.view(np.bool_).reshape(size, size)

    def fill(self, tree: DraftTree, past: int) -> None:
        """Lay out the tree behind `past` tokens and send it off; what is left of an earlier one is wiped."""
        nodes = len(tree)
        self._past[0] = past
        self._nodes[:, :nodes] = tree.tokens, tree.depths
        self._nodes[:, nodes:] = 0
        self._mask[nodes:] = False
        np.fill_diagonal(self._mask, True)
        self._mask[:nodes, :nodes] = tree.ancestor_mask
        self._device.copy_(self._host, non_blocking=True)


@dataclass
class Step:
    """A step of one size, one attended length and one k: `run` it and read what it left, (q, *) each, on the device.

    Attributes:
        said: (q, 1 + 2 k) int32: the choice, the k likeliest tokens, and their probabilities' bits as floats.
    """

    run: Callable[[], None]
    hidden: torch.Tensor
    logits: torch.Tensor
    said: torch.Tensor


class CudaGraphTarget(TargetModel):
    """A target that runs a compact network over static buffers, through captured graphs where there is a GPU.

    Args:
        model: a stock Llama, Mistral, Qwen2 or Phi-3 model; others are refused. It stays usable.
        max_draft, context_limit: as in `TargetModel`.
        attention: "products" is two batched matrix products with a softmax in between, which fill a GPU however few the
            nodes and the key-value heads are; "whole" lets PyTorch's fused kernel read all attended rows. None takes
            "whole" for a model of `MANY_HEADS` and more, else "products".
        compiled: as in `FusedLlama`.
        sizes: numbers of nodes that steps are padded to; `max_draft` + 1 is added.
        chunk: the least difference of two attended lengths; a power of two.

    Raises:
        ValueError: the network does not know such a model.
    """

    cache: StaticCache  # type: ignore[assignment]

    def __init__(
        self,
        model: PreTrainedModel,
        max_draft: int = 256,
        context_limit: int | None = None,
        attention: str | None = None,
        compiled: bool = False,
        sizes: Sequence[int] = SIZES,
        chunk: int = CHUNK,
    ) -> None:
        super().__init__(model, max_draft, context_limit)
        if reason := refusal(model.config, self.context_limit):
            raise ValueError(reason)
        attention = attention or ("whole" if model.config.num_key_value_heads >= MANY_HEADS else "products")
        if attention not in ATTENTION:
            raise ValueError(f"attention={attention}: must be one of {', '.join(ATTENTION)}")
        if chunk < 8 or chunk & (chunk - 1):
            raise ValueError(f"chunk={chunk}: must be a power of two of at least 8")
        self.attention, self.chunk = attention, chunk
        self.sizes = [*(size for size in sorted(sizes) if size <= max_draft), max_draft + 1]
        capacity = attended(self.context_limit + max_draft + 1, chunk)
        self.network = FusedLlama(model, capacity, compiled)
        self.cache = StaticCache(self.network.cache_shape, capacity, self.network.embedding)
        self._stages = {size: Stage(size, self.device) for size in self.sizes}
        self._steps: dict[tuple[int, int, int], Step] = {}
        self._pool: Any = None
        self._stream: Any = None  # that all graphs are captured on
        self._said: dict[int, torch.Tensor] = {}  # by k, where a step's answer arrives on the host
        self._slots = torch.arange(capacity, device=self.device)

    @torch.inference_mode()
    def verify(self, tree: DraftTree) -> IntArray:
        started = perf_counter()
        nodes = len(tree)
        size = self.padded(nodes)
        self._stages[size].fill(tree, self.cache.length)
        self.build_seconds += perf_counter() - started
        step = self._step(size, attended(self.cache.length + size, self.chunk))
        step.run()
        said = self._read(step, nodes)
        choices = check_finite(said[:, 0].astype(np.int64), self.model)
        self.last = Forward(tree, step.hidden[:nodes], step.logits[:nodes], choices)
        if k := said.shape[1] // 2:
            tokens, probs = said[:, 1 : 1 + k].astype(np.int64), said[:, 1 + k :].copy().view(np.float32)
            self.last.top_k = TopK(np.arange(nodes), tokens, probs.astype(np.float64))
        return choices

    def _read(self, step: Step, nodes: int) -> np.ndarray:
        """What a step said of its nodes, (m, 1 + 2 k), in one copy."""
        width = step.said.shape[1]
        if width not in self._said:
            is_pinned = self.device.type == "cuda"
            self._said[width] = torch.zeros(self.max_draft + 1, width, dtype=torch.int32, pin_memory=is_pinned)
        said = self._said[width][:nodes]
        said.copy_(step.said[:nodes], non_blocking=True)
        self.synchronize()
        return said.numpy()

    @torch.inference_mode()
    def capture(self) -> int:
        """Capture the graphs of all steps, so that none is captured while a clock runs; returns how many there are.
        Forgets the text. Without a GPU there is nothing to do.
        """
        if self.device.type != "cuda":
            return 0
        self.forget()
        for size in self.sizes:
            self._stages[size].fill(DraftTree.root_only(0), 0)
            lengths = range(size, self.context_limit + size + 1)
            for length in sorted({attended(length, self.chunk) for length in lengths}):
                self._step(size, length)
        return len(self._steps)

    @torch.inference_mode()
    def forward_seconds(self, nodes: int, repeats: int = 20) -> float:
        """Seconds that the bare forward of a step of `nodes` takes at the present length: one after the other on the
        device, nothing sent and nothing read in between.
        """
        size = self.padded(nodes)
        self._stages[size].fill(DraftTree.chain(0, [0] * (nodes - 1)), self.cache.length)
        step = self._step(size, attended(self.cache.length + size, self.chunk))
        for count in (3, repeats):
            self.synchronize()
            started = perf_counter()
            for _ in range(count):
                step.run()
            self.synchronize()
        return (perf_counter() - started) / repeats

    def padded(self, nodes: int) -> int:
        """The number of nodes that a step of this many is padded to.

        Raises:
            ValueError: more than `max_draft` and the root.
        """
        if nodes > self.max_draft + 1:
            raise ValueError(f"a tree of {nodes} nodes, but max_draft={self.max_draft}")
        return next(size for size in self.sizes if nodes <= size)

    def _step(self, size: int, length: int) -> Step:
        """The step of `size` nodes that attends to `length` rows, and finds `keeps_top_k` tokens behind each; captured
        when it is first asked for.

        Raises:
            ValueError: this device or version of PyTorch cannot capture it.
        """
        key = size, length, self.keeps_top_k
        if key not in self._steps:
            make = self._captured if self.device.type == "cuda" else self._plain
            try:
                self._steps[key] = make(size, length)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise ValueError(
                    f"engine.backend=cuda_graph: a step of {size} nodes cannot be captured here "
                    f"({first_line(error)}); use engine.backend=stock"
                ) from error
        return self._steps[key]

    def _plain(self, size: int, length: int) -> Step:
        """The step without a graph."""

        def run() -> None:
            step.hidden, step.logits, step.said = self._nodes(size, length)

        step = Step(run, *[torch.empty(0)] * 3)
        return step

    def _captured(self, size: int, length: int) -> Step:
        """The step as a CUDA graph. What a step needs on the way lies in memory that all graphs share; what it leaves,
        mostly its logits, is kept apart for every graph, as long as there is one.
        """
        with torch.cuda.device(self.device):  # graphs and streams belong to the current one
            self._stream = self._stream or torch.cuda.Stream()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(2):  # kernels are loaded and chosen at their first calls
                    self._nodes(size, length)
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            # freed memory is used again by the stream that it was freed on: one for all graphs, or each takes its own
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                hidden, logits, said = self._nodes(size, length)
        self._pool = self._pool or graph.pool()
        return Step(graph.replay, hidden, logits, said)

    def _nodes(self, size: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Hidden states (q, H), logits (q, V) and what is said (q, 1 + 2 k) of the staged nodes."""
        stage = self._stages[size]
        slots = stage.past + self._slots[:size]
        # A key before the text's end is seen by all; one of the tree by those below it; one behind the tree by none.
        column = self._slots[:length] - stage.past
        seen = stage.mask.index_select(1, column.clamp(0, size - 1)) & (column < size) | (column < 0)
        hidden_score = torch.finfo(self.network.dtype).min / 4
        bias = torch.zeros_like(seen, dtype=self.network.dtype).masked_fill_(~seen, hidden_score)
        groups = self.network.num_heads // self.network.num_key_value_heads
        bias = bias.repeat(groups, 1)

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache.rows[number, :, :, :length]
            return attend_tree(queries, keys, values, bias, self.attention)

        positions = stage.past + stage.depths
        hidden = self.network.hidden("step", stage.tokens, positions, slots, self.cache.rows, attend)
        logits = self.network.logits(hidden)
        said = [greedy(logits)[:, None]]
        if self.keeps_top_k:
            tokens, probs = top_k_on_device(logits, self.keeps_top_k)
            said += [tokens, probs.contiguous().view(torch.int32)]
        return hidden, logits, torch.cat([part.to(torch.int32) for part in said], 1)

    def _forward(self, ids: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Logits (1, V) after the text (1, l), which is read into the empty cache."""
        length = ids.shape[-1]
        slots = self._slots[:length]

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache.rows[number, :, None, :, :length]
            grouped = self.network.num_heads > self.network.num_key_value_heads
            return F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None], keys, values, is_causal=True, enable_gqa=grouped
            )[0].transpose(0, 1)

        # a pinned source, where there is a GPU, so that the copy waits for nothing
        ids = ids[0].pin_memory() if self.device.type == "cuda" else ids[0]
        ids = ids.to(self.device, non_blocking=True)
        self._hidden = self.network.hidden("prompt", ids, slots, slots, self.cache.rows, attend)
        self.cache.truncate(length)
        return self.network.logits(self._hidden[-1:])


def attend_tree(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor,
    attention: str = "products",
) -> torch.Tensor:
    """Attention (q, a, d) of queries (q, a, d) to keys and values (h, k, d) under a bias (a/h * q, k).

    The queries of the heads that share keys stand below each other, so that no key is repeated.
    """
    nodes, heads, size = queries.shape
    shared = keys.shape[0]
    rows = queries.transpose(0, 1).reshape(shared, -1, size)
    if attention == "products":
        result = torch.bmm(_weights(rows, keys, bias), values)
    else:
        result = F.scaled_dot_product_attention(rows[None], keys[None], values[None], attn_mask=bias)[0]
    # not a view: what a GPU's kernels give has the rows before the heads
    return result.reshape(heads, nodes, size).transpose(0, 1)


def _weights(rows: torch.Tensor, keys: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The weights (h, r, k) that the rows (h, r, d) give to the keys (h, k, d), in the rows' precision; scores are in
    single precision, as in a fused kernel.
    """
    scale = rows.shape[-1] ** -0.5
    if rows.dtype == torch.float32:
        return torch.baddbmm(bias, rows, keys.mT, alpha=scale).softmax(-1)
    if rows.is_cuda:
        scores = torch.bmm(rows, keys.mT, out_dtype=torch.float32)
    else:
        scores = torch.bmm(rows.float(), keys.mT.float())
    return torch.add(bias, scores, alpha=scale).softmax(-1).to(rows.dtype)
