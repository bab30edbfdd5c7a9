"""A layer of a language model for a few tokens, near the speed at which memory gives its weights.

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
    fma = cgutils.get_or_insert_function(module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fma.v{WIDTH}f32")
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
def product(inputs: np.ndarray, panels: np.ndarray, bias: np.ndarray, num_outputs: int, threads: int) -> np.ndarray:
    """inputs @ weights.T + bias (q, num_outputs) of inputs (q, in) and `packed` weights; an empty bias is none."""
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
            if not is_whole:
                outputs[:, first:until] = edge[:, : until - first]
    if len(bias):
        outputs += bias
    return outputs


@numba.njit(cache=True, fastmath=_NO_NAN, error_model="numpy")
def _exp(value: np.float32) -> np.float32:
    """e^value to its last digit or two, for values to 80; 0 from -80 down. Loops of it become vectors.

    2^k * e^r for the nearest whole k, with |r| at most log(2) / 2 and the exponential of r by its series.
    """
    held = value if value > np.float32(-80) else np.float32(-80)
    whole = np.floor(held * np.float32(1.44269504) + np.float32(0.5))
    rest = held - whole * np.float32(0.693359375) + whole * np.float32(2.12194440e-4)
    series = np.float32(1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        series = series * rest + np.float32(factor)
    power = series * _float_of_bits((np.int32(whole) + np.int32(127)) * np.int32(1 << 23))
    return power if value > np.float32(-80) else np.float32(0)


@_untyped_intrinsic
def _float_of_bits(typing: Any, bits: Any) -> Any:
    def generate(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], _INT32), _FLOAT)  # numba's sums of int32 have 64 bits

    return types.float32(bits), generate


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
    qkv: np.ndarray, cos: np.ndarray, sin: np.ndarray, cache: np.ndarray, slots: np.ndarray, num_heads: int
) -> None:
    """Turn queries of `qkv` (q, a + 2 h, d) in place, and write turned keys and values to `slots` of (2, h, c, d).

    Args:
        cos, sin: (q, 1, d); the sine's first half is negative, as in `CompactModel`.
    """
    rows, _, size = qkv.shape
    key_heads, half = cache.shape[1], qkv.shape[2] // 2
    for row in range(rows):
        slot = slots[row]
        for head in range(num_heads + key_heads):
            for place in range(half):
                low, high = qkv[row, head, place], qkv[row, head, place + half]
                turned_low = low * cos[row, 0, place] + high * sin[row, 0, place]
                turned_high = high * cos[row, 0, place + half] + low * sin[row, 0, place + half]
                if head < num_heads:
                    qkv[row, head, place] = turned_low
                    qkv[row, head, place + half] = turned_high
                else:
                    cache[0, head - num_heads, slot, place] = turned_low
                    cache[0, head - num_heads, slot, place + half] = turned_high
        for head in range(key_heads):
            for place in range(size):
                cache[1, head, slot, place] = qkv[row, num_heads + key_heads + head, place]


@numba.njit(parallel=_PRANGE, cache=True, nogil=True, error_model="numpy")
def attention(
    queries: np.ndarray, heads: int, cache: np.ndarray, length: int, unseen: np.ndarray, threads: int
) -> np.ndarray:
    """What queries (q, at least a, d) of a heads see of the first `length` keys and values of (2, h, c, d): (q, a * d).

    The queries of the heads that share keys are lanes beside each other, so that a key is read once for all of them.
    Each thread attends to a part of the keys; what they saw is weighted by the sums of their exponentials.

    Args:
        cache: may be read to a vector's length behind the last value that is seen.
        unseen: (q, q), which of the last q keys each query doesn't see.
    """
    rows, _, size = queries.shape
    shared = cache.shape[1]
    group = heads // shared
    used = group * rows
    lanes, width = -(-used // WIDTH) * WIDTH, -(-size // WIDTH) * WIDTH
    turned = np.zeros((shared, size, lanes), np.float32)
    scale = np.float32(1 / np.sqrt(size))
    for row in range(rows):
        for head in range(heads):
            of, lane = head // group, head % group * rows + row
            for place in range(size):
                turned[of, place, lane] = queries[row, head, place] * scale
    highest = np.full((threads, shared, lanes), _UNSEEN)
    totals = np.zeros((threads, shared, lanes), np.float32)
    seen = np.zeros((threads, shared, lanes, width), np.float32)
    for thread in numba.prange(threads):
        start, end = length * thread // threads, length * (thread + 1) // threads
        scores = np.empty((end - start, lanes), np.float32)
        for head in range(shared if end > start else 0):
            keys = _address(cache) + 4 * size * (head * cache.shape[2] + start)
            values = keys + 4 * size * shared * cache.shape[2]
            of_head = _address(turned) + 4 * head * size * lanes
            of_queries, to = (of_head, 4 * lanes), (_address(scores), 4 * lanes)
            _tiles(end - start, lanes, size, (keys, 4 * size, 4), of_queries, to, (of_head, 0))
            for key in range(max(start, length - rows), end):
                for lane in range(used):
                    if unseen[lane % rows, key - length + rows]:
                        scores[key - start, lane] = _UNSEEN
            _to_exponentials(scores, highest[thread, head], totals[thread, head])
            to = _address(seen) + 4 * (thread * shared + head) * lanes * width, 4 * width
            of_values, ahead = (values, 4 * size), (values + 4 * size * AHEAD, 4 * size)
            _tiles(used, width, end - start, (_address(scores), 4, 4 * lanes), of_values, to, ahead)
    result = np.zeros((rows, heads, size), np.float32)
    for head in range(heads):
        for row in range(rows):
            of, lane = head // group, head % group * rows + row
            high, total = _UNSEEN, np.float32(0)
            for thread in range(threads):
                high = max(high, highest[thread, of, lane])
            for thread in range(threads):
                weight = _exp(highest[thread, of, lane] - high)
                total += weight * totals[thread, of, lane]
                for place in range(size):
                    result[row, head, place] += weight * seen[thread, of, lane, place]
            for place in range(size):
                result[row, head, place] /= total
    return result.reshape((rows, heads * size))


@numba.njit(cache=True, fastmath=_ANY_ORDER, error_model="numpy")
def _to_exponentials(scores: np.ndarray, highest: np.ndarray, totals: np.ndarray) -> None:
    """Scores (k, lanes) become e^(score - highest) of their lane; `highest` and `totals` (lanes,) are written."""
    for key in range(len(scores)):
        for lane in range(len(highest)):
            highest[lane] = max(highest[lane], scores[key, lane])
    for key in range(len(scores)):
        for lane in range(len(highest)):
            scores[key, lane] = _exp(scores[key, lane] - highest[lane])
            totals[lane] += scores[key, lane]


class Layer(NamedTuple):
    """A layer's weights, as compiled functions read them: norms (H,), products `packed`, biases empty where none is."""

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
    layer: Layer,
    eps: np.float32,
    cos: np.ndarray,
    sin: np.ndarray,
    cache: np.ndarray,
    slots: np.ndarray,
    unseen: np.ndarray,
    num_heads: int,
    threads: int,
) -> np.ndarray:
    """The text (q, H) behind a layer. Its keys and values are written to `slots` of the cache (2, h, c, d), which are
    the last that it sees; `unseen` as in `attention`, `cos` and `sin` as in `turn_and_store`.
    """
    rows, width = text.shape
    heads, size = num_heads + 2 * cache.shape[1], cache.shape[3]
    qkv = product(rms_norm(text, layer.norm, eps), layer.qkv, layer.qkv_bias, heads * size, threads)
    by_head = qkv.reshape((rows, heads, size))
    turn_and_store(by_head, cos, sin, cache, slots, num_heads)
    seen = attention(by_head, num_heads, cache, slots[-1] + 1, unseen, threads)
    text = text + product(seen, layer.out, layer.out_bias, width, threads)
    normed = rms_norm(text, layer.mlp_norm, eps)
    gate_up = product(normed, layer.gate_up, layer.gate_up_bias, 2 * layer.down.shape[1], threads)
    return text + product(gated(gate_up), layer.down, layer.down_bias, width, threads)
