"""The layers of a language model for a few tokens, near the speed at which memory gives their weights.

Libraries compute products of few rows as small cases of large ones. Here a tile of rows and outputs stays in vector
registers while the weights stream past once, asked for ahead of their use. The tile is written in LLVM's vectors, which
numba compiles for the processor at hand: no C compiler is needed. Arrays are float32, one line behind the other.

An output is one sum over the inputs, in order, however many rows there are. So the values of a token don't depend on
how many others are verified beside it.
"""

from __future__ import annotations

from itertools import chain
from itertools import product as product_of
from typing import Any, Literal, NamedTuple

import llvmlite.binding
import numba
import numpy as np
import torch
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

#: What numba compiles for: its own setting, else this processor's.
FEATURES: str = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()  # type: ignore[attr-defined]

#: Outputs in a vector, and rows of the largest tile: AVX-512 has 32 registers of 16 numbers, AVX2 16 of 8.
WIDTH, MAX_ROWS = (16, 9) if "+avx512f" in FEATURES else (8, 4)

#: Vectors of outputs in a tile. Its sums, as many vectors of weights and an input fill the registers.
VECTORS = 3

#: Outputs whose weights lie beside each other.
PANEL = VECTORS * WIDTH

#: How many inputs before its use a weight is fetched.
AHEAD = 16

# without NaN in mind, and sums in any order, so that loops become vectors
_NO_NAN = {"contract", "nnan", "nsz"}
_ANY_ORDER = {*_NO_NAN, "reassoc"}

# of parallel loops, only those that are written as such
_PRANGE: Any = {
    **dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion"), False),
    "prange": True,
}

#: The score of a key that a query does not see.
_UNSEEN = np.float32(-1e30)

_FLOAT, _INT, _INT32, _BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_BYTES = 4 * WIDTH


# compiled code calls an intrinsic with other arguments than those of the function that defines it
_untyped_intrinsic: Any = intrinsic


def packed(weight: torch.Tensor) -> torch.Tensor:
    """The weights (out, in) as `product` reads them: (panels, in, `PANEL`), with zeros behind the last output."""
    outputs, inputs = weight.shape
    panels = weight.new_zeros(-(-outputs // PANEL), inputs, PANEL)
    for panel, rows in zip(panels, weight.split(PANEL), strict=True):
        panel[:, : len(rows)] = rows.T
    return panels


@_untyped_intrinsic
def _address(typing: Any, array: Any) -> Any:
    """Where an array's first number lies. (Functions that read `array.ctypes` are not kept on disk.)"""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, arguments[0]).data, _INT)

    return types.intp(array), generate


def _fma(builder: ir.IRBuilder, kind: Any) -> Any:
    """LLVM's a * b + c in one rounding, of floats or vectors of them."""
    name = "llvm.fma.f32" if kind == _FLOAT else f"llvm.fma.v{WIDTH}f32"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


def _tile_with(adjacent: Literal["rows", "inputs"]) -> Any:
    """A tile whose values lie beside each other in memory, row by row or input by input. `step` is the bytes from one
    input, or one row, to the next. One step that is known leaves registers for addresses.
    """

    @_untyped_intrinsic
    def generated(
        typing: Any,
        rows: Any,
        vectors: Any,
        values: Any,
        step: Any,
        weights: Any,
        weight_step: Any,
        outputs: Any,
        output_step: Any,
        num_inputs: Any,
        fetched: Any,
        fetched_step: Any,
    ) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
            rows, vectors, values, step, *others = arguments
            steps = (step, _INT(4)) if adjacent == "rows" else (_INT(4), step)
            end = builder.append_basic_block("end")
            switch = builder.switch(builder.add(builder.mul(rows, _INT(VECTORS + 1)), vectors), end)
            for size in product_of(range(1, MAX_ROWS + 1), range(1, VECTORS + 1)):
                block = builder.append_basic_block("size")
                switch.add_case(_INT(size[0] * (VECTORS + 1) + size[1]), block)
                builder.position_at_end(block)
                _generate_tile(builder, *size, values, *steps, *others)
                builder.branch(end)
            builder.position_at_end(end)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 11), generate

    return generated


def _generate_tile(
    builder: ir.IRBuilder,
    rows: int,
    vectors: int,
    inputs: Any,
    input_step: Any,
    row_step: Any,
    weights: Any,
    weight_step: Any,
    outputs: Any,
    output_step: Any,
    num_inputs: Any,
    fetched: Any,
    fetched_step: Any,
) -> None:
    """The tile of one size: a loop over the inputs, with all sums in registers."""
    module = builder.module
    fma = _fma(builder, _VECTOR)
    fetch = cgutils.get_or_insert_function(
        module, ir.FunctionType(ir.VoidType(), [_BYTE, _INT32, _INT32, _INT32]), "llvm.prefetch.p0i8"
    )

    def at(address: Any, offset: Any, pointer: Any) -> Any:
        return builder.inttoptr(builder.add(address, offset), pointer)

    def times(step: Any, number: int) -> Any:
        return builder.mul(step, _INT(number))

    start = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    place = builder.phi(_INT)
    place.add_incoming(_INT(0), start)
    sums = [[builder.phi(_VECTOR) for _ in range(vectors)] for _ in range(rows)]
    line = builder.add(weights, builder.mul(place, weight_step))
    values = builder.add(inputs, builder.mul(place, input_step))
    read = []
    for vector in range(vectors):
        read.append(builder.load(at(line, _INT(vector * _BYTES), _VECTOR.as_pointer()), align=4))
        ahead = at(builder.add(fetched, builder.mul(place, fetched_step)), _INT(vector * _BYTES), _BYTE)
        builder.call(fetch, [ahead, _INT32(0), _INT32(3), _INT32(1)])  # to read, to keep, data
    totals = []
    for row in range(rows):
        value = builder.load(at(values, times(row_step, row), _FLOAT.as_pointer()), align=4)
        first = builder.insert_element(_VECTOR(ir.Undefined), value, _INT32(0))
        spread = builder.shuffle_vector(first, _VECTOR(ir.Undefined), ir.Constant(ir.VectorType(_INT32, WIDTH), None))
        totals.append([builder.call(fma, [each, spread, sum_]) for each, sum_ in zip(read, sums[row], strict=True)])
    following = builder.add(place, _INT(1))
    place.add_incoming(following, loop)
    for sum_, total in zip(chain(*sums), chain(*totals), strict=True):
        sum_.add_incoming(ir.Constant(_VECTOR, None), start)
        sum_.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, num_inputs), loop, after)
    builder.position_at_end(after)
    for row in range(rows):
        line = builder.add(outputs, times(output_step, row))
        for vector in range(vectors):
            builder.store(totals[row][vector], at(line, _INT(vector * _BYTES), _VECTOR.as_pointer()), align=4)


_by_row, _by_input = _tile_with("rows"), _tile_with("inputs")


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _tiles(
    rows: int,
    width: int,
    num_inputs: int,
    values: tuple[int, int, int],
    weights: tuple[int, int],
    outputs: tuple[int, int],
    fetched: tuple[int, int],
) -> None:
    """outputs[row, j] = sum over i of values[row, i] * weights[i, j], in tiles whose sums stay in registers.

    An array is given by its address and the bytes from one of its lines to the next.

    Args:
        width: outputs of a row, a multiple of `WIDTH`.
        num_inputs: 1 or more.
        values: with the bytes from row to row and from input to input, of which one is 4.
        fetched: with each input, a line of weights from here on is fetched for later.
    """
    for row in range(0, rows, MAX_ROWS):
        height, source, target = min(MAX_ROWS, rows - row), values[0] + row * values[1], outputs[0] + row * outputs[1]
        for first in range(0, width, PANEL):
            vectors, columns, to = min(VECTORS, (width - first) // WIDTH), weights[0] + 4 * first, target + 4 * first
            if values[2] == 4:
                _by_input(height, vectors, source, values[1], columns, weights[1], to, outputs[1], num_inputs, *fetched)
            else:
                _by_row(height, vectors, source, values[2], columns, weights[1], to, outputs[1], num_inputs, *fetched)


def num_threads() -> int:
    """PyTorch's number of threads, for `product` as well: with one number for both, their teams are the same."""
    threads = min(torch.get_num_threads(), config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(threads)
    return threads


@numba.njit(parallel=_PRANGE, cache=True, nogil=True, error_model="numpy")
def product(
    inputs: np.ndarray, panels: np.ndarray, bias: np.ndarray, added: np.ndarray, num_outputs: int, threads: int
) -> np.ndarray:
    """inputs @ weights.T + bias + added (q, num_outputs) of inputs (q, in) and `packed` weights.

    Args:
        bias, added: (num_outputs,) and (q, num_outputs); empty ones are none.
    """
    rows, size = inputs.shape
    tiles = -(-rows // MAX_ROWS)
    height = -(-rows // tiles)
    outputs = np.empty((rows, num_outputs), np.float32)
    for thread in numba.prange(threads):
        edge = np.empty((rows, PANEL), np.float32)  # what a tile has behind the last output is left here
        for panel in range(len(panels) * thread // threads, len(panels) * (thread + 1) // threads):
            first, until = panel * PANEL, min((panel + 1) * PANEL, num_outputs)
            weights = _address(panels) + 4 * panel * size * PANEL
            is_whole = until - first == PANEL
            for number in range(tiles):  # those after the first find the panel in the processor's cache
                top, bottom = number * height, min((number + 1) * height, rows)
                to = _address(edge) + 4 * top * PANEL, 4 * PANEL
                if is_whole:
                    to = _address(outputs) + 4 * (top * num_outputs + first), 4 * num_outputs
                fetched = weights + 4 * PANEL * AHEAD, 4 * PANEL
                if tiles > 1:  # of the next panel, this tile's share
                    fetched = weights + 4 * PANEL * size * (tiles + number) // tiles, 4 * PANEL // tiles
                source = _address(inputs) + 4 * top * size, 4 * size, 4
                _tiles(bottom - top, PANEL, size, source, (weights, 4 * PANEL), to, fetched)
            for row in range(rows):
                if not is_whole:
                    for at in range(first, until):
                        outputs[row, at] = edge[row, at - first]
                if len(bias):
                    for at in range(first, until):
                        outputs[row, at] += bias[at]
                if len(added):
                    for at in range(first, until):
                        outputs[row, at] += added[row, at]
    return outputs


@_untyped_intrinsic
def _exp(typing: Any, value: Any) -> Any:
    """e^value to its last digit or two, for values to 80; 0 from -80 down. Loops of it become vectors.

    2^k * e^r for the nearest whole k, with |r| at most log(2) / 2 and the exponential of r by its series.
    """

    def generate(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> Any:
        (value,) = arguments
        is_large = builder.fcmp_ordered(">", value, _FLOAT(-80))
        held = builder.select(is_large, value, _FLOAT(-80))
        whole = builder.call(
            cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOAT, [_FLOAT]), "llvm.floor.f32"),
            [builder.call(_fma(builder, _FLOAT), [held, _FLOAT(1.44269504), _FLOAT(0.5)])],
        )
        rest = builder.call(_fma(builder, _FLOAT), [whole, _FLOAT(-0.693359375), held])
        rest = builder.call(_fma(builder, _FLOAT), [whole, _FLOAT(2.12194440e-4), rest])
        series = _FLOAT(1 / 5040)
        for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
            series = builder.call(_fma(builder, _FLOAT), [series, rest, _FLOAT(factor)])
        exponent = builder.shl(builder.add(builder.fptosi(whole, _INT32), _INT32(127)), _INT32(23))
        power = builder.fmul(series, builder.bitcast(exponent, _FLOAT))
        return builder.select(is_large, power, _FLOAT(0))

    return types.float32(types.float32), generate


@_untyped_intrinsic
def _larger(typing: Any, value: Any, other: Any) -> Any:
    """The larger of two numbers. Loops of it become vectors, which those of `max` don't."""

    def generate(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _FLOAT])
        larger = cgutils.get_or_insert_function(builder.module, kind, "llvm.maxnum.f32")
        return builder.call(larger, arguments, fastmath=("nnan", "nsz"))

    return types.float32(types.float32, types.float32), generate


@numba.njit(cache=True, fastmath=_ANY_ORDER, error_model="numpy")
def gated(gate_up: np.ndarray) -> np.ndarray:
    """SwiGLU's silu(gate) * up (q, I) of (q, 2 I)."""
    rows, size = len(gate_up), gate_up.shape[1] // 2
    result = np.empty((rows, size), np.float32)
    for row in range(rows):
        for place in range(size):
            gate = gate_up[row, place]
            power = _exp(-gate if gate > np.float32(-80) else np.float32(80))  # the sigmoid of less is 0, rounded
            result[row, place] = gate / (np.float32(1) + power) * gate_up[row, size + place]
    return result


@numba.njit(cache=True, fastmath=_ANY_ORDER, error_model="numpy")
def rms_norm(text: np.ndarray, weight: np.ndarray, eps: np.float32) -> np.ndarray:
    """text / sqrt(mean(text^2) + eps) * weight, of each row of (q, H)."""
    rows, size = text.shape
    normed = np.empty((rows, size), np.float32)
    for row in range(rows):
        total = np.float32(0)
        for place in range(size):
            total += text[row, place] * text[row, place]
        scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
        for place in range(size):
            normed[row, place] = text[row, place] * scale * weight[place]
    return normed


@numba.njit(cache=True, fastmath=_ANY_ORDER, error_model="numpy")
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
        cos, sin: (q, 1, d); the sine's first half is negative, as in `CompactModel`.
        keys, values: as in `attention`.
    """
    rows, _, size = qkv.shape
    key_heads, half = len(keys), size // 2
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
        for head in range(key_heads):
            for place in range(size):
                values[head, slots[row], place] = qkv[row, num_heads + key_heads + head, place]


@numba.njit(parallel=_PRANGE, cache=True, nogil=True, error_model="numpy")
def attention(
    queries: np.ndarray,
    heads: int,
    keys: np.ndarray,
    values: np.ndarray,
    length: int,
    unseen: np.ndarray,
    threads: int,
) -> np.ndarray:
    """What queries (q, at least a, d) of a heads see of the first `length` keys and values: (q, a * d).

    The queries of the heads that share keys are lanes below each other, so that a key is read once for a tile of them.
    Each thread attends to a part of the keys; what they saw is weighted by the sums of their exponentials.

    Args:
        keys: (h, panels, d, `PANEL`), a key is a column of a panel.
        values: (h, c, d); may be read to a vector's length behind the last one that is seen.
        unseen: (q, q), which of the last q keys each query doesn't see. None sees those of later queries.
    """
    rows, _, size = queries.shape
    shared, past = len(keys), length - rows
    group, width = heads // shared, -(-size // WIDTH) * WIDTH
    lanes, panels = group * rows, -(-length // PANEL)
    tile = -(-lanes // -(-lanes // MAX_ROWS))
    scale = np.float32(1 / np.sqrt(size))
    asked = np.empty((shared, lanes, size), np.float32)
    for row in range(rows):
        for head in range(heads):
            for place in range(size):
                asked[head // group, row * group + head % group, place] = queries[row, head, place] * scale
    highest = np.full((threads, shared, lanes), _UNSEEN)
    totals = np.zeros((threads, shared, lanes), np.float32)
    seen = np.zeros((threads, shared, lanes, width), np.float32)
    panel_bytes, value_bytes = 4 * size * PANEL, 4 * size
    for thread in numba.prange(threads):
        first, last = panels * thread // threads, panels * (thread + 1) // threads
        start, stride = first * PANEL, (last - first) * PANEL
        scores = np.empty((tile, stride), np.float32)
        for head in range(shared):
            of_keys = _address(keys) + panel_bytes * (head * keys.shape[1] + first)
            of_values = _address(values) + value_bytes * (head * values.shape[1] + start)
            for top in range(0, lanes, tile):
                height = min(tile, lanes - top)
                until = min(last * PANEL, past + (top + height - 1) // group + 1)  # of what the tile's last query sees
                if until <= start:
                    continue
                source = _address(asked) + 4 * size * (head * lanes + top), 4 * size, 4
                for panel in range(-(-(until - start) // PANEL)):
                    weights, to = of_keys + panel_bytes * panel, _address(scores) + 4 * PANEL * panel
                    fetched = weights + panel_bytes, 4 * PANEL
                    _tiles(height, PANEL, size, source, (weights, 4 * PANEL), (to, 4 * stride), fetched)
                for lane in range(height):
                    row, of_lane = (top + lane) // group, scores[lane, : until - start]
                    for key in range(max(start, past), until):
                        if unseen[row, key - past]:
                            of_lane[key - start] = _UNSEEN
                    high, total = _to_exponentials(of_lane)
                    highest[thread, head, top + lane], totals[thread, head, top + lane] = high, total
                of_scores = _address(scores), 4 * stride, 4
                to = _address(seen) + 4 * ((thread * shared + head) * lanes + top) * width, 4 * width
                fetched = of_values + value_bytes * AHEAD, value_bytes
                _tiles(height, width, until - start, of_scores, (of_values, value_bytes), to, fetched)
    result = np.zeros((rows, heads, size), np.float32)
    for row in range(rows):
        for head in range(heads):
            of, lane = head // group, row * group + head % group
            high, total = _UNSEEN, np.float32(0)
            for thread in range(threads):
                high = max(high, highest[thread, of, lane])
            for thread in range(threads):
                total += _exp(highest[thread, of, lane] - high) * totals[thread, of, lane]
            for thread in range(threads):
                weight = _exp(highest[thread, of, lane] - high) / total
                for place in range(size):
                    result[row, head, place] += weight * seen[thread, of, lane, place]
    return result.reshape((rows, heads * size))


@numba.njit(cache=True, fastmath=_ANY_ORDER, error_model="numpy")
def _to_exponentials(scores: np.ndarray) -> tuple[np.float32, np.float32]:
    """Scores (k,) become e^(score - highest); returns the highest, and the sum of what they became."""
    highest, total = _UNSEEN, np.float32(0)
    for key in range(len(scores)):
        highest = _larger(highest, scores[key])
    for key in range(len(scores)):
        scores[key] = _exp(scores[key] - highest)
        total += scores[key]
    return highest, total


@numba.njit(cache=True, error_model="numpy")
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
                    values[layer, head, to] = values[layer, head, source]


class Layers(NamedTuple):
    """All layers' weights, as compiled functions read them: norms (n, H), products n times `packed`, biases (n, out) or
    (n, 0) where there are none.
    """

    norm: np.ndarray
    qkv: np.ndarray
    qkv_bias: np.ndarray
    out: np.ndarray
    out_bias: np.ndarray
    mlp_norm: np.ndarray
    gate_up: np.ndarray
    gate_up_bias: np.ndarray
    down: np.ndarray
    down_bias: np.ndarray


@numba.njit(cache=True, nogil=True, error_model="numpy")
def through(
    text: np.ndarray,
    layers: Layers,
    eps: np.float32,
    cos: np.ndarray,
    sin: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    slots: np.ndarray,
    unseen: np.ndarray,
    num_heads: int,
    threads: int,
) -> np.ndarray:
    """The text (q, H) behind all layers. Keys and values are written to `slots` of the layers' caches, which are the
    last that it sees; a layer's cache and `unseen` as in `attention`, `cos` and `sin` as in `turn_and_store`.
    """
    rows, width = text.shape
    heads, size, nothing = num_heads + 2 * keys.shape[1], keys.shape[3], np.empty((0, 0), np.float32)
    for i in range(len(keys)):
        normed = rms_norm(text, layers.norm[i], eps)
        qkv = product(normed, layers.qkv[i], layers.qkv_bias[i], nothing, heads * size, threads)
        by_head = qkv.reshape((rows, heads, size))
        turn_and_store(by_head, cos, sin, keys[i], values[i], slots, num_heads)
        seen = attention(by_head, num_heads, keys[i], values[i], slots[-1] + 1, unseen, threads)
        text = product(seen, layers.out[i], layers.out_bias[i], text, width, threads)
        normed = rms_norm(text, layers.mlp_norm[i], eps)
        gate_up = product(normed, layers.gate_up[i], layers.gate_up_bias[i], nothing, 2 * layers.down.shape[2], threads)
        text = product(gated(gate_up), layers.down[i], layers.down_bias[i], text, width, threads)
    return text
