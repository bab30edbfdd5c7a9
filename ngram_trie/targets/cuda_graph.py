"""A network for speed on a GPU: texts that never move, and a CUDA graph for every size of a step.

A step's nodes are padded to the next of a few sizes, and it attends to the text up to the next of a few lengths; each
pair of the two is captured once, when it is first needed or before a run's clock starts, as one graph from tokens to
choices (`FusedDecoder` computes them), and to the likeliest tokens behind each node where the drafter asks for them.
What a step needs from the host, tokens, depths, mask and the length of the text, lies in one buffer that is pinned and
copied at once; what it gives back is read at once. On a CPU the same code runs without graphs.

Graphs hold addresses, of weights and of a text's buffers. So buffers outlive the text that they were made for, with
their graphs, and serve the next one; and a model whose weights have moved gets another network (`targets.state`).

Padding nodes are rows like others that attend to the text and themselves; they are written behind the tree, nobody
reads them, and the next step overwrites them.

Shapes: m = tree nodes, q = m padded, k = cached tokens attended to, l = prompt tokens; others as in
`ngram_trie.targets.fused`.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ngram_trie.drafter import TopK, check_choice
from ngram_trie.store.compiled import note_preparation
from ngram_trie.store.files import first_line
from ngram_trie.targets.fused import FusedDecoder
from ngram_trie.targets.network import Forward, States, greedy
from ngram_trie.targets.plan import Plan, rotary_tables
from ngram_trie.targets.top_k import top_k_on_device
from ngram_trie.tree import DraftTree, IntArray

#: Numbers of nodes, the root counted, that steps are padded to; beyond, multiples of the last.
SIZES = (1, 8, 16, 32, 64, 128)
#: Of a prompt, the queries that attend at once where scores are capped, which no fused kernel does; four times as many
#: where a window alone hides a part: a mask of the whole prompt would grow with the square of its length.
BLOCK = 256
#: Cached tokens are attended to in multiples of this; a power of two.
CHUNK = 256
#: Where a step was not captured beforehand, up to this many tokens more than it needs are attended to, so that fewer
#: are captured: a capture takes as long as several steps, and reading so many a small part of one.
SPARE = 512
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
class CapturedStep:
    """A step of one size, one attended length and one k: `run` it and read what it left, (q, *) each, on the device.

    Attributes:
        answer: (q, 1 + 2 k) int32: the choice, the k likeliest tokens, and their probabilities' bits as floats.
    """

    run: Callable[[], None]
    hidden: torch.Tensor
    logits: torch.Tensor
    answer: torch.Tensor


class Buffers:
    """What graphs hold the addresses of, for texts of up to `capacity` tokens, and these graphs.

    Attributes:
        rows: (layers, 2, h, c, d) keys and values of all layers.
        cos, sin: (kinds, c, 1, r), see `plan.rotary_tables`.
        slots: (c,) 0, 1, 2, ...
        stages: by size; steps: by size, attended length and k; answers: by 1 + 2 k, where they arrive on the host.
    """

    def __init__(self, decoder: FusedDecoder, capacity: int) -> None:
        plan, size = decoder.plan, decoder.plan.head_size
        # zeros: what is masked out still meets a weight of 0, and 0 times what memory happens to hold may be NaN
        self.rows = decoder.embedding.new_zeros(plan.num_layers, 2, plan.num_key_value_heads, capacity, size)
        self.cos, self.sin = rotary_tables(decoder.rotary, plan.kinds, capacity, decoder.embedding, size)
        self.slots = torch.arange(capacity, device=decoder.device)
        self.capacity = capacity
        self.stages: dict[int, Stage] = {}
        self.steps: dict[tuple[int, int, int], CapturedStep] = {}
        self.answers: dict[torch.Size, torch.Tensor] = {}


class GraphText:
    """A text in `Buffers`, which are another's when it is gone."""

    def __init__(self, buffers: Buffers) -> None:
        self.buffers, self.length = buffers, 0

    def truncate(self, length: int) -> None:
        self.length = length

    def keep(self, past: int, path: list[int]) -> None:
        """All layers are moved at once, by four launches at most and without waiting for them."""
        still = next((place for place, node in enumerate(path) if place != node), len(path))
        if still < len(path):
            rows = torch.tensor([path[still:], range(still, len(path))]) + past
            cache = self.buffers.rows
            if cache.is_cuda:
                rows = rows.pin_memory().to(cache.device, non_blocking=True)
            # index_select copies, so that source and destination rows may overlap
            cache.index_copy_(3, rows[1], cache.index_select(3, rows[0]))
        self.length = past + len(path)


class GraphNetwork:
    """A compact network over static buffers, through captured graphs where there is a GPU.

    Args:
        model: it stays usable; its weights are joined.
        plan: what it computes.
        attention: "products" is two batched matrix products with a softmax in between, which fill a GPU however few the
            nodes and the key-value heads are; "whole" lets PyTorch's fused kernel read all attended rows. None takes
            "whole" for a model of `MANY_HEADS` and more whose scores are not capped, else "products".
        compiled: as in `FusedDecoder`.
        sizes: numbers of nodes that steps are padded to.
        chunk: the least difference of two attended lengths; a power of two.
        spare: tokens, see `SPARE`.

    Raises:
        ValueError: weights that cannot be read.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        plan: Plan,
        attention: str | None = None,
        compiled: bool = False,
        sizes: Sequence[int] = SIZES,
        chunk: int = CHUNK,
        spare: int = SPARE,
    ) -> None:
        is_whole = plan.num_key_value_heads >= MANY_HEADS and not plan.attention_cap
        attention = attention or ("whole" if is_whole else "products")
        check_choice("attention", attention, ATTENTION)
        if chunk < 8 or chunk & (chunk - 1):
            raise ValueError(f"chunk={chunk}: must be a power of two of at least 8")
        self.plan, self.attention, self.chunk, self.spare = plan, attention, chunk, spare
        self.sizes = [(least + 1, size) for least, size in itertools.pairwise([0, *sorted(sizes)])]
        self.decoder = FusedDecoder(model, plan, compiled)
        self.device = model.device
        self._free: list[Buffers] = []
        self._taking = threading.Lock()
        self._pool: Any = None
        self._stream: Any = None  # that all graphs are captured on

    def text(self, capacity: int) -> GraphText:
        capacity = attended(capacity + self.sizes[-1][1], self.chunk)  # padding is written, too
        with self._taking:
            fitting = [buffers for buffers in self._free if buffers.capacity >= capacity]
            if fitting:  # the last one that was in use: it has the graphs of such answers
                self._free.remove(fitting[-1])
            else:
                self._free.clear()  # their memory is free before more is taken
        buffers = fitting[-1] if fitting else Buffers(self.decoder, capacity)
        text = GraphText(buffers)
        weakref.finalize(text, self._free.append, buffers)
        return text

    def read(self, text: GraphText, ids: IntArray) -> States:
        buffers, length = text.buffers, len(ids)
        slots = buffers.slots[:length]
        # a pinned source, where there is a GPU, so that the copy waits for nothing
        given = torch.from_numpy(ids)
        given = (given.pin_memory() if self.device.type == "cuda" else given).to(self.device, non_blocking=True)

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            keys, values = buffers.rows[number, :, :, :length]
            return attend_prompt(queries, keys, values, self.plan, self.plan.windows[number])

        tables = [(cos[:length], sin[:length]) for cos, sin in zip(buffers.cos, buffers.sin, strict=True)]
        hidden = self.decoder.hidden("prompt", given, tables, slots, buffers.rows, attend)
        text.length = length
        return States(hidden, self.decoder.logits(hidden[-1:]))

    def step(self, text: GraphText, tree: DraftTree, top_k: int) -> Forward:
        started = perf_counter()
        nodes, buffers = len(tree), text.buffers
        size = self.padded(nodes)
        self._stage(buffers, size).fill(tree, text.length)
        built = perf_counter() - started
        step = self._step(buffers, size, text.length + size, top_k)
        step.run()
        answer = self._read(buffers, step, nodes)
        seen = Forward(
            choices=answer[:, 0].astype(np.int64),
            build_seconds=built,
            tree=tree,
            hidden=step.hidden[:nodes],
            logits=step.logits[:nodes],
        )
        if k := answer.shape[1] // 2:
            tokens, probs = answer[:, 1 : 1 + k].astype(np.int64), answer[:, 1 + k :].copy().view(np.float32)
            seen.top_k = TopK(np.arange(nodes), tokens, probs.astype(np.float64))
        return seen

    @torch.inference_mode()
    def capture(self, text: GraphText, max_nodes: int, length: int, top_k: int) -> int:
        buffers = text.buffers
        for size in sorted({self.padded(nodes) for nodes in range(1, max_nodes + 1)}):
            self._stage(buffers, size).fill(DraftTree.root_only(0), 0)
            for reach in sorted({attended(end, self.chunk) for end in range(size, length + size + 1)}):
                self._made(buffers, size, reach, top_k)
        return len(buffers.steps)

    @torch.inference_mode()
    def forward_seconds(self, text: Any, nodes: int, repeats: int = 20) -> float:
        """Seconds that the bare forward of a step of `nodes` takes at the present length: one after the other on the
        device, nothing sent and nothing read in between.
        """
        size = self.padded(nodes)
        self._stage(text.buffers, size).fill(DraftTree.chain(0, [0] * (nodes - 1)), text.length)
        step = self._step(text.buffers, size, text.length + size, 0)
        for count in (3, repeats):
            self._synchronize()
            started = perf_counter()
            for _ in range(count):
                step.run()
            self._synchronize()
        return (perf_counter() - started) / repeats

    def padded(self, nodes: int) -> int:
        """The number of nodes that a step of this many is padded to."""
        largest = self.sizes[-1][1]
        return next((size for _, size in self.sizes if nodes <= size), -(-nodes // largest) * largest)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _stage(self, buffers: Buffers, size: int) -> Stage:
        if size not in buffers.stages:
            buffers.stages[size] = Stage(size, self.device)
        return buffers.stages[size]

    def _read(self, buffers: Buffers, step: CapturedStep, nodes: int) -> np.ndarray:
        """What a step answers of its nodes, (m, 1 + 2 k), in one copy."""
        shape = step.answer.shape
        if shape not in buffers.answers:
            buffers.answers[shape] = torch.zeros(shape, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        answer = buffers.answers[shape][:nodes]
        answer.copy_(step.answer[:nodes], non_blocking=True)
        self._synchronize()
        return answer.numpy()

    def _step(self, buffers: Buffers, size: int, length: int, top_k: int) -> CapturedStep:
        """The step of `size` nodes that attends to `length` rows or a few more and finds `top_k` tokens behind each."""
        reach = attended(length, self.chunk)
        if (size, reach, top_k) not in buffers.steps:
            most = min(reach + self.spare, buffers.capacity)
            kept = [each for nodes, each, k in buffers.steps if (nodes, k) == (size, top_k) and reach < each <= most]
            reach = min(kept) if kept else most if attended(most, self.chunk) == most else reach
        return self._made(buffers, size, reach, top_k)

    def _made(self, buffers: Buffers, size: int, length: int, top_k: int) -> CapturedStep:
        """The step that attends to `length` rows, captured when it is first asked for.

        Raises:
            ValueError: this device or version of PyTorch cannot capture it.
        """
        key = size, length, top_k
        if key not in buffers.steps:
            note_preparation()  # this step's time says nothing of the next one's
            make = self._captured if self.device.type == "cuda" else self._plain
            try:
                buffers.steps[key] = make(lambda: self._nodes(buffers, *key))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise ValueError(
                    f"engine.backend=cuda_graph: a step of {size} nodes cannot be captured here "
                    f"({first_line(error)}); use engine.backend=stock"
                ) from error
        return buffers.steps[key]

    def _plain(self, nodes: Callable[[], Sequence[torch.Tensor]]) -> CapturedStep:
        """The step without a graph."""

        def run() -> None:
            step.hidden, step.logits, step.answer = nodes()

        step = CapturedStep(run, *[torch.empty(0)] * 3)
        return step

    def _captured(self, nodes: Callable[[], Sequence[torch.Tensor]]) -> CapturedStep:
        """The step as a CUDA graph. What a step needs on the way lies in memory that all graphs share; what it leaves,
        mostly its logits, is kept apart for every graph, as long as there is one.
        """
        with torch.cuda.device(self.device):  # graphs and streams belong to the current one
            self._stream = self._stream or torch.cuda.Stream()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(2):  # kernels are loaded and chosen at their first calls
                    nodes()
            torch.cuda.current_stream().wait_stream(self._stream)
            # torch.compile frees cuBLAS' workspaces when it captures: this graph's shall lie in its own memory
            torch._C._cuda_clearCublasWorkspaces()
            graph = torch.cuda.CUDAGraph()
            # freed memory is used again by the stream that it was freed on: one for all graphs, or each takes its own
            # what other threads do with the device meanwhile is their own
            mode: Any = {"pool": self._pool, "stream": self._stream, "capture_error_mode": "thread_local"}
            with uncollected(), torch.cuda.graph(graph, **mode):
                left = nodes()
        self._pool = self._pool or graph.pool()
        return CapturedStep(graph.replay, *left)

    def _nodes(self, buffers: Buffers, size: int, length: int, top_k: int) -> Sequence[torch.Tensor]:
        """Hidden states (q, H), logits (q, V) and the answer (q, 1 + 2 k) of the staged nodes."""
        stage, plan = buffers.stages[size], self.plan
        slots = stage.past + buffers.slots[:size]
        positions = stage.past + stage.depths
        groups = plan.num_heads // plan.num_key_value_heads
        biases, rows = {}, {}
        for window in plan.spans:
            # Of a long text, layers with a window read the rows that it may reach, from the first of them on.
            reach = attended(window + size, self.chunk) if window else length
            index = buffers.slots[: min(reach, length)]
            if reach < length:
                rows[window] = index = index + (stage.past - (window or 0) + 1).clamp(0, length - reach)
            # A key before the text's end is seen by all; one of the tree by those below it; one behind it by none.
            column = index - stage.past
            node = column.clamp(0, size - 1)
            seen = stage.mask.index_select(1, node) & (column < size) | (column < 0)
            if window:
                behind = torch.where(column < 0, index, positions.index_select(0, node))
                seen &= positions[:, None] - behind < window
            biases[window] = _bias(seen, groups, self.decoder.dtype)

        def attend(number: int, queries: torch.Tensor) -> torch.Tensor:
            window = plan.windows[number]
            keys, values = buffers.rows[number, :, :, :length]
            if window in rows:
                keys, values = keys.index_select(1, rows[window]), values.index_select(1, rows[window])
            return attend_tree(
                queries, keys, values, biases[window], self.attention, plan.attention, plan.attention_cap
            )

        tables = [
            (cos.index_select(0, positions), sin.index_select(0, positions))
            for cos, sin in zip(buffers.cos, buffers.sin, strict=True)
        ]
        hidden = self.decoder.hidden("step", stage.tokens, tables, slots, buffers.rows, attend)
        logits = self.decoder.logits(hidden)
        answer = [greedy(logits)[:, None]]
        if top_k:
            tokens, probs = top_k_on_device(logits, top_k)
            answer += [tokens, probs.contiguous().view(torch.int32)]
        return hidden, logits, torch.cat([part.to(torch.int32) for part in answer], 1)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """While this is entered, no garbage is collected: it may hold graphs, and CUDA lets none be freed during a
    capture.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def attend_prompt(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: Plan, window: int | None
) -> torch.Tensor:
    """Attention (l, a, d) of a prompt's queries (l, a, d) to its keys and values (h, l, d), with what its layer's
    `window` leaves of them.
    """
    length, heads, _ = queries.shape
    window = min(window or length, length)
    if window == length and not plan.attention_cap:
        return F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys[None],
            values[None],
            is_causal=True,
            enable_gqa=heads > len(keys),
            scale=plan.attention,
        )[0].transpose(0, 1)
    places = torch.arange(length, device=queries.device)
    size = BLOCK if plan.attention_cap else 4 * BLOCK
    parts = []
    for start in range(0, length, size):
        own = slice(start, min(start + size, length))
        read = slice(max(0, start + 1 - window), own.stop)
        distance = places[own, None] - places[read]
        bias = _bias((distance >= 0) & (distance < window), heads // len(keys), queries.dtype)
        rows = queries[own], keys[:, read], values[:, read]
        parts.append(attend_tree(*rows, bias, "whole", plan.attention, plan.attention_cap))
    return torch.cat(parts)


def _bias(seen: torch.Tensor, groups: int, dtype: torch.dtype) -> torch.Tensor:
    """(groups * q, k) that hides from each query what it has not `seen` (q, k), for all heads that share keys."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min / 4).repeat(groups, 1)


def attend_tree(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    bias: torch.Tensor,
    attention: str,
    scale: float,
    cap: float | None = None,
) -> torch.Tensor:
    """Attention (q, a, d) of queries (q, a, d) to keys and values (h, k, d) under a bias (a/h * q, k); a `cap` of
    scores takes "products".

    The queries of the heads that share keys stand below each other, so that no key is repeated.
    """
    nodes, heads, size = queries.shape
    shared = keys.shape[0]
    rows = queries.transpose(0, 1).reshape(shared, -1, size)
    if attention == "products" or cap:
        result = torch.bmm(_weights(rows, keys, bias, scale, cap), values)
    else:
        result = F.scaled_dot_product_attention(rows[None], keys[None], values[None], attn_mask=bias, scale=scale)[0]
    # not a view: what a GPU's kernels give has the rows before the heads
    return result.reshape(heads, nodes, size).transpose(0, 1)


def _weights(
    rows: torch.Tensor, keys: torch.Tensor, bias: torch.Tensor, scale: float, cap: float | None
) -> torch.Tensor:
    """The weights (h, r, k) that the rows (h, r, d) give to the keys (h, k, d), in the rows' precision; scores are in
    single precision, as in a fused kernel.
    """
    if rows.dtype == torch.float32 and not cap:
        return torch.baddbmm(bias, rows, keys.mT, alpha=scale).softmax(-1)
    if rows.is_cuda:
        scores = torch.bmm(rows, keys.mT, out_dtype=torch.float32)
    else:
        scores = torch.bmm(rows.float(), keys.mT.float())
    if cap:
        scores, scale = torch.tanh(scores * (scale / cap)), cap
    return torch.add(bias, scores, alpha=scale).softmax(-1).to(rows.dtype)
