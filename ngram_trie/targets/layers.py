"""The layers of a language model for a few tokens, in one compiled function over the products of `small_gemm`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from ngram_trie.store.compiled import compiled, kernel
from ngram_trie.targets.small_gemm import (
    AHEAD,
    FLOAT,
    INT32,
    MAX_ROWS,
    PANEL,
    PRANGE,
    WIDTH,
    Team,
    address,
    call,
    fma_of,
    product,
    untyped_intrinsic,
)

# without NaN in mind, and sums in any order, so that loops become vectors
ANY_ORDER = {"contract", "nnan", "nsz", "reassoc"}

#: For `rms_norm`.
NOTHING = np.empty((0, 0), np.float32)
#: The score of a key that a query does not see.
UNSEEN = np.float32(-1e30)


@untyped_intrinsic
def _exp(typing: Any, value: Any) -> Any:
    """e^value to its last digit or two, for values to 80; 0 from -80 down. Loops of it become vectors.

    2^k * e^r for the nearest whole k, with |r| at most log(2) / 2 and the exponential of r by its series.
    """

    def generate(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> Any:
        (value,) = arguments
        is_large = builder.fcmp_ordered(">", value, FLOAT(-80))
        held = builder.select(is_large, value, FLOAT(-80))
        whole = builder.call(
            cgutils.get_or_insert_function(builder.module, ir.FunctionType(FLOAT, [FLOAT]), "llvm.floor.f32"),
            [builder.call(fma_of(builder, FLOAT), [held, FLOAT(1.44269504), FLOAT(0.5)])],
        )
        rest = builder.call(fma_of(builder, FLOAT), [whole, FLOAT(-0.693359375), held])
        rest = builder.call(fma_of(builder, FLOAT), [whole, FLOAT(2.12194440e-4), rest])
        series = FLOAT(1 / 5040)
        for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = builder.call(fma_of(builder, FLOAT), [series, rest, FLOAT(factor)])
        exponent = builder.shl(builder.add(builder.fptosi(whole, INT32), INT32(127)), INT32(23))
        power = builder.fmul(series, builder.bitcast(exponent, FLOAT))
        return builder.select(is_large, power, FLOAT(0))

    return types.float32(types.float32), generate


@untyped_intrinsic
def _larger(typing: Any, value: Any, other: Any) -> Any:
    """The larger of two numbers. Loops of it become vectors, which those of `max` don't."""

    def generate(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(FLOAT, [FLOAT, FLOAT])
        larger = cgutils.get_or_insert_function(builder.module, kind, "llvm.maxnum.f32")
        return builder.call(larger, arguments, fastmath=("nnan", "nsz"))

    return types.float32(types.float32, types.float32), generate


@kernel(_nrt=True, fastmath=ANY_ORDER, error_model="numpy")
def gated(gate_up: np.ndarray, is_gelu: bool) -> np.ndarray:
    """silu(gate) * up (q, I) of (q, 2 I), or with GELU by its tanh: both are gate * sigmoid(...)."""
    rows, size = len(gate_up), gate_up.shape[1] // 2
    result = np.empty((rows, size), np.float32)
    for row in range(rows):
        for place in range(size):
            gate = turned = gate_up[row, place]
            if is_gelu:
                turned = np.float32(1.5957691) * gate * (np.float32(1) + np.float32(0.044715) * gate * gate)
            power = _exp(-turned if turned > np.float32(-80) else np.float32(80))  # the sigmoid of less is 0, rounded
            result[row, place] = gate / (np.float32(1) + power) * gate_up[row, size + place]
    return result


@compiled(fastmath=ANY_ORDER, error_model="numpy")
def rms_norm(text: np.ndarray, weight: np.ndarray, eps: np.float32, added: np.ndarray) -> np.ndarray:
    """text / sqrt(mean(text^2) + eps) * weight + added, for each row of (q, H). An empty `added` adds nothing."""
    rows, size = text.shape
    normed = np.empty((rows, size), np.float32)
    for row in range(rows):
        total = np.float32(0)
        for place in range(size):
            total += text[row, place] * text[row, place]
        scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
        for place in range(size):
            normed[row, place] = text[row, place] * scale * weight[place]
        if len(added):
            for place in range(size):
                normed[row, place] += added[row, place]
    return normed


@kernel(fastmath=ANY_ORDER, error_model="numpy")
def norm_parts(text: np.ndarray, weight: np.ndarray, first: int, last: int, eps: np.float32) -> None:
    """`rms_norm` in place of every `len(weight)` numbers from `first` to `last` of each row; of none, if that is 0."""
    size = len(weight)
    for row in range(len(text)):
        for start in range(first, last, max(1, size)):
            total = np.float32(0)
            for place in range(size):
                total += text[row, start + place] * text[row, start + place]
            scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
            for place in range(size):
                text[row, start + place] *= scale * weight[place]


@kernel(fastmath=ANY_ORDER, error_model="numpy")
def turn_and_store(
    qkv: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    slots: np.ndarray,
    num_heads: int,
) -> None:
    """Turn queries of `qkv` (q, a + 2 h, d) in place, and write turned keys and values to `slots` of a layer's cache.

    Args:
        cos, sin: (q, 1, r), of which the first r numbers of a head are turned; see `plan.rotary_tables`.
        keys, values: as in `attention`.
    """
    rows, _, size = qkv.shape
    key_heads, turned = len(keys), cos.shape[2]
    half = turned // 2
    for row in range(rows):
        panel, lane = divmod(slots[row], PANEL)
        for head in range(num_heads + key_heads):
            for place in range(half):
                low, high = qkv[row, head, place], qkv[row, head, place + half]
                turned_low = low * cos[row, 0, place] + high * sin[row, 0, place]
                turned_high = high * cos[row, 0, place + half] + low * sin[row, 0, place + half]
                if head < num_heads:
                    qkv[row, head, place] = turned_low
                    qkv[row, head, place + half] = turned_high
                else:
                    keys[head - num_heads, panel, place, lane] = turned_low
                    keys[head - num_heads, panel, place + half, lane] = turned_high
            if head >= num_heads:
                for place in range(turned, size):
                    keys[head - num_heads, panel, place, lane] = qkv[row, head, place]
        for head in range(key_heads):
            for place in range(size):
                values[head, slots[row], place] = qkv[row, num_heads + key_heads + head, place]


@kernel(_nrt=True, error_model="numpy")
def _attend(
    asked: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    past: int,
    unseen: np.ndarray,
    starts: np.ndarray,
    cap: np.float32,
    tiles: int,
    tile: int,
    first: int,
    last: int,
    highest: np.ndarray,
    totals: np.ndarray,
    seen: np.ndarray,
) -> None:
    """What lanes `asked` (h, lanes, d), some at a time, see of the panels from `first` to `last`: the sums of values
    (h, lanes, width), each weighted by e^(score - highest), of these the totals, and the highest scores (h, lanes).
    """
    (shared, lanes, size), width, group = asked.shape, seen.shape[2], asked.shape[1] // len(starts)
    start, stride = first * PANEL, (last - first) * PANEL
    panel_bytes, value_bytes = 4 * size * PANEL, 4 * size
    scores = np.empty((tile, stride), np.float32)
    for head in range(shared):
        of_keys = address(keys) + panel_bytes * (head * keys.shape[1] + first)
        of_values = address(values) + value_bytes * (head * values.shape[1] + start)
        for top in range(0, lanes, tile):
            height = min(tile, lanes - top)
            until = min(last * PANEL, past + (top + height - 1) // group + 1)  # of what the tile's last query sees
            if until <= start:
                for lane in range(top, top + height):
                    highest[head, lane], totals[head, lane] = UNSEEN, np.float32(0)
                    for place in range(width):
                        seen[head, lane, place] = np.float32(0)
                continue
            source = address(asked) + 4 * size * (head * lanes + top)
            for panel in range(-(-(until - start) // PANEL)):
                weights, to = of_keys + panel_bytes * panel, address(scores) + 4 * PANEL * panel
                call(
                    tiles, height, PANEL, size, source, 4 * size, weights, 4 * PANEL, to, 4 * stride,
                    weights + 4 * PANEL * AHEAD, weights + panel_bytes, 4 * PANEL, 0,
                )  # fmt: skip
            for lane in range(height):
                row, of_lane = (top + lane) // group, scores[lane, : until - start]
                if cap > 0:
                    _to_capped(of_lane, cap)
                for key in range(start, min(starts[row], until)):
                    of_lane[key - start] = UNSEEN
                for key in range(max(start, past), until):
                    if unseen[row, key - past]:
                        of_lane[key - start] = UNSEEN
                highest[head, top + lane], totals[head, top + lane] = _to_exponentials(of_lane)
            to = address(seen) + 4 * (head * lanes + top) * width
            call(
                tiles, height, width, until - start, address(scores), 4 * stride, of_values, value_bytes, to,
                4 * width, of_values + value_bytes * AHEAD, of_values + value_bytes * 2 * AHEAD, value_bytes, 0,
            )  # fmt: skip


@kernel(_nrt=True, parallel=PRANGE, nogil=True, error_model="numpy")
def attention(
    queries: np.ndarray,
    heads: int,
    keys: np.ndarray,
    values: np.ndarray,
    length: int,
    unseen: np.ndarray,
    starts: np.ndarray,
    scale: np.float32,
    cap: np.float32,
    team: Team,
) -> np.ndarray:
    """What queries (q, at least a, d) of a heads see of the first `length` keys and values: (q, a * d).

    The queries of the heads that share keys are lanes below each other, so that a key is read once for a tile of them.
    Each thread attends to a part of the keys; what they saw is weighted by the sums of their exponentials.

    Args:
        keys: (h, panels, d, `PANEL`), a key is a column of a panel.
        values: (h, c, d); may be read to a vector's length behind the last one that is seen.
        unseen: (q, q), which of the last q keys each query doesn't see. None sees those of later queries.
        starts: (q,) of the keys before these, the first that each query sees.
        scale: of scores.
        cap: scores x become cap tanh(x / cap); 0 leaves them.
    """
    (rows, _, size), (threads, tiles, _, _) = queries.shape, team
    shared, past = len(keys), length - rows
    group, width = heads // shared, -(-size // WIDTH) * WIDTH
    first = starts[0]
    for row in range(1, rows):
        if starts[row] < first:
            first = starts[row]
    before = first // PANEL  # panels that nobody sees
    lanes, panels = group * rows, -(-length // PANEL) - before
    tile = -(-lanes // -(-lanes // MAX_ROWS))
    asked = np.empty((shared, lanes, size), np.float32)
    for row in range(rows):
        for head in range(heads):
            for place in range(size):
                asked[head // group, row * group + head % group, place] = queries[row, head, place] * scale
    # written by loops: numba would compile a parallel function for each np.zeros
    highest = np.empty((threads, shared, lanes), np.float32)
    totals = np.empty((threads, shared, lanes), np.float32)
    seen = np.empty((threads, shared, lanes, width), np.float32)
    for thread in numba.prange(threads):
        first, last = before + panels * thread // threads, before + panels * (thread + 1) // threads
        _attend(  # a function of its own: numba would compile what stands in a parallel loop twice
            asked, keys, values, past, unseen, starts, cap, tiles, tile, first, last, highest[thread], totals[thread],
            seen[thread],
        )  # fmt: skip
    result = np.empty((rows, heads, size), np.float32)
    for row in range(rows):
        for head in range(heads):
            for place in range(size):
                result[row, head, place] = np.float32(0)
            of, lane = head // group, row * group + head % group
            high, total = UNSEEN, np.float32(0)
            for thread in range(threads):
                high = max(high, highest[thread, of, lane])
            for thread in range(threads):
                total += _exp(highest[thread, of, lane] - high) * totals[thread, of, lane]
            for thread in range(threads):
                weight = _exp(highest[thread, of, lane] - high) / total
                for place in range(size):
                    result[row, head, place] += weight * seen[thread, of, lane, place]
    return result.reshape((rows, heads * size))


@kernel(fastmath=ANY_ORDER, error_model="numpy")
def _to_capped(scores: np.ndarray, cap: np.float32) -> None:
    """Scores (k,) become cap tanh(score / cap), by the exponential."""
    for key in range(len(scores)):
        twice = np.float32(2) * scores[key] / cap
        power = _exp(twice if twice < np.float32(40) else np.float32(40))
        scores[key] = cap - np.float32(2) * cap / (power + np.float32(1))


@kernel(fastmath=ANY_ORDER, error_model="numpy")
def _to_exponentials(scores: np.ndarray) -> tuple[np.float32, np.float32]:
    """Scores (k,) become e^(score - highest); returns the highest, and the sum of what they became."""
    highest, total = UNSEEN, np.float32(0)
    for key in range(len(scores)):
        highest = _larger(highest, scores[key])
    for key in range(len(scores)):
        scores[key] = _exp(scores[key] - highest)
        total += scores[key]
    return highest, total


@compiled(error_model="numpy")
def move(keys: np.ndarray, values: np.ndarray, past: int, path: np.ndarray) -> None:
    """Of all layers' keys (layers, h, panels, d, `PANEL`) and values (layers, h, c, d), move the rows `past` + `path`,
    which increase, to those from `past` on.
    """
    for place in range(len(path)):
        to, source = past + place, past + path[place]  # never before the source: nothing is overwritten unread
        if to != source:
            for layer in range(len(keys)):
                for head in range(keys.shape[1]):
                    for at in range(keys.shape[3]):
                        key = keys[layer, head, source // PANEL, at, source % PANEL]
                        keys[layer, head, to // PANEL, at, to % PANEL] = key
                    for at in range(values.shape[3]):
                        values[layer, head, to, at] = values[layer, head, source, at]


#: Parts of `Layers` that are products.
PRODUCTS = ("qkv", "out", "gate_up", "down")


class Layers(NamedTuple):
    """All layers' weights, as compiled functions read them: norms (n, size), products n times `packed`, biases (n,
    out); (n, 0) without.

    Attributes:
        out_norm, down_norm: behind attention and behind the MLP.
        span, table: (n,) which of the windows and of the rotary tables is a layer's.
    """

    norm: np.ndarray
    out_norm: np.ndarray
    mlp_norm: np.ndarray
    down_norm: np.ndarray
    query_norm: np.ndarray
    key_norm: np.ndarray
    qkv: np.ndarray
    qkv_bias: np.ndarray
    out: np.ndarray
    out_bias: np.ndarray
    gate_up: np.ndarray
    gate_up_bias: np.ndarray
    down: np.ndarray
    down_bias: np.ndarray
    span: np.ndarray
    table: np.ndarray


class Numbers(NamedTuple):
    """What else a plan says, the same in all layers."""

    num_heads: int
    eps: np.float32
    scale: np.float32
    cap: np.float32
    is_gelu: bool


@compiled(nogil=True, error_model="numpy")
def run_layers(
    text: np.ndarray,
    layers: Layers,
    numbers: Numbers,
    cos: np.ndarray,
    sin: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    slots: np.ndarray,
    unseen: np.ndarray,
    starts: np.ndarray,
    team: Team,
) -> np.ndarray:
    """The text (q, H) behind all layers. Keys and values are written to `slots` of the layers' caches, which are the
    last that it sees; a layer's cache as in `attention`.

    Args:
        cos, sin: (tables, q, 1, r), as in `turn_and_store`.
        unseen, starts: (spans, q, q) and (spans, q), as in `attention`.
    """
    rows, width = text.shape
    heads, size, nothing = numbers.num_heads + 2 * keys.shape[1], keys.shape[3], np.empty((0, 0), np.float32)
    queries, of_keys = numbers.num_heads * size, (numbers.num_heads + keys.shape[1]) * size
    for i in range(len(keys)):
        normed = rms_norm(text, layers.norm[i], numbers.eps, nothing) if layers.norm.shape[1] else text
        qkv = product(normed, layers.qkv[i], layers.qkv_bias[i], nothing, heads * size, team)
        if layers.query_norm.shape[1]:
            norm_parts(qkv, layers.query_norm[i], 0, queries, numbers.eps)
            norm_parts(qkv, layers.key_norm[i], queries, of_keys, numbers.eps)
        by_head, table, span = qkv.reshape((rows, heads, size)), layers.table[i], layers.span[i]
        turn_and_store(by_head, cos[table], sin[table], keys[i], values[i], slots, numbers.num_heads)
        seen = attention(
            by_head, numbers.num_heads, keys[i], values[i], slots[-1] + 1, unseen[span], starts[span], numbers.scale,
            numbers.cap, team,
        )  # fmt: skip
        if layers.out_norm.shape[1]:
            said = product(seen, layers.out[i], layers.out_bias[i], nothing, width, team)
            text = rms_norm(said, layers.out_norm[i], numbers.eps, text)
        else:
            text = product(seen, layers.out[i], layers.out_bias[i], text, width, team)
        normed = rms_norm(text, layers.mlp_norm[i], numbers.eps, nothing) if layers.mlp_norm.shape[1] else text
        gate_up = product(normed, layers.gate_up[i], layers.gate_up_bias[i], nothing, 2 * layers.down.shape[2], team)
        inner = gated(gate_up, numbers.is_gelu)
        if layers.down_norm.shape[1]:
            said = product(inner, layers.down[i], layers.down_bias[i], nothing, width, team)
            text = rms_norm(said, layers.down_norm[i], numbers.eps, text)
        else:
            text = product(inner, layers.down[i], layers.down_bias[i], text, width, team)
    return text


def compile_all() -> None:
    """Compile `run_layers` and `rms_norm` by the types of what they are given: another thread can do so meanwhile."""

    def of(dimensions: int, kind: Any = types.float32) -> types.Array:
        return types.Array(kind, dimensions, "C")

    places = dict.fromkeys(("span", "table"), of(1, types.int64))
    weights = {name: places.get(name, of(4 if name in PRODUCTS else 2)) for name in Layers._fields}
    numbers = (types.int64, types.float32, types.float32, types.float32, types.boolean)
    kinds = (types.NamedTuple(list(weights.values()), Layers), types.NamedTuple(numbers, Numbers))
    cache, team = (of(5), of(4), of(1, types.int64)), types.UniTuple(types.int64, 4)
    run_layers.compile((of(2), *kinds, of(4), of(4), *cache, of(3, types.boolean), of(2, types.int64), team))
    rms_norm.compile((of(2), of(1), types.float32, of(2)))
