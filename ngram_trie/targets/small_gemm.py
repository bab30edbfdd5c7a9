"""Products of a few rows with a model's weights, near the speed at which memory gives these.

Libraries compute products of few rows as small cases of large ones. Here a tile of rows and outputs stays in vector
registers while the weights stream past once, asked for ahead of their use. The tile is written in LLVM's vectors, which
numba compiles for the processor at hand: no C compiler is needed. Arrays are float32, one line behind the other.

An output is one sum over the inputs, in order, however many rows there are. So the values of a token don't depend on
how many others are verified beside it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from functools import cache
from itertools import chain
from itertools import product as product_of
from typing import Any, TypeAlias

import llvmlite.binding
import numba
import numpy as np
import torch
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from ngram_trie.store.compiled import address_of, compiled, kernel

#: What numba compiles for: its own setting, else this processor's.
FEATURES: str = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()  # type: ignore[attr-defined]

#: Outputs in a vector, and rows of the largest tile: AVX-512 has 32 registers of 16 numbers, AVX2 16 of 8.
WIDTH, MAX_ROWS = (16, 9) if "+avx512f" in FEATURES else (8, 4)

#: Vectors of outputs in a tile. Its sums, as many vectors of weights and an input fill the registers.
VECTORS = 3

#: Outputs whose weights lie beside each other.
PANEL = VECTORS * WIDTH

_HOST = llvmlite.binding.get_host_cpu_name()

#: Most rows of a low tile; the weights of high ones are best fetched otherwise, as measured.
_LOW = MAX_ROWS * 3 // 4

#: Into which caches weights are fetched (3: the nearest), how many inputs before their use (into a second cache twice
#: as many), and the highest tile without. `TURNS` is how many inputs of a panel several low tiles, and several high
#: ones, take in turns, so that those after the first find its weights in a cache, while memory gives the next ones.
_CACHES, AHEAD, _UNFETCHED, TURNS = (
    # one cache is too little: the nearest has few places for what is on its way
    ((3, 2), 16, 0, (64, 64))
    if not _HOST.startswith("znver")
    # AMD's Zen 4 fetches the weights of low tiles itself, faster if not asked, and others late into its nearest cache
    else ((2,), 64, _LOW, (1024, 1024))
    if _HOST < "znver5"
    else ((3,), 32, 0, (128, 1024))
)

# of parallel loops, only those that are written as such
PRANGE: Any = {
    **dict.fromkeys(("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion"), False),
    "prange": True,
}

FLOAT, _INT, INT32, _BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_VECTOR = ir.VectorType(FLOAT, WIDTH)
_BYTES = 4 * WIDTH


# compiled code calls an intrinsic with other arguments than those of the function that defines it
untyped_intrinsic: Any = intrinsic


def packed(weights: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """The weights of n products, each (out, in) in parts below each other, as `product` reads them: (n, panels, in,
    `PANEL`), with zeros behind the last output.
    """
    outputs, inputs = sum(map(len, weights[0])), weights[0][0].shape[1]
    whole, rest = divmod(outputs, PANEL)
    # numpy asks the kernel for large pages, PyTorch does not
    found = torch.from_numpy(np.empty((len(weights), -(-outputs // PANEL), inputs, PANEL), np.float32))
    for parts, panels in zip(weights, found, strict=True):
        weight = torch.cat([*parts]) if len(parts) > 1 else parts[0]
        panels[:whole] = weight[: whole * PANEL].unflatten(0, (whole, PANEL)).transpose(1, 2)
        if rest:
            panels[whole, :, :rest], panels[whole, :, rest:] = weight[whole * PANEL :].T, 0
    return found


@untyped_intrinsic
def address(typing: Any, array: Any) -> Any:
    """Where an array's first number lies. (Functions that read `array.ctypes` are not kept on disk.)"""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, arguments[0]).data, _INT)

    return types.intp(array), generate


def fma_of(builder: ir.IRBuilder, kind: Any) -> Any:
    """LLVM's a * b + c in one rounding, of floats or vectors of them."""
    name = "llvm.fma.f32" if kind == FLOAT else f"llvm.fma.v{WIDTH}f32"
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


@untyped_intrinsic
def _tile(
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
    near: Any,
    far: Any,
    fetched_step: Any,
    goes_on: Any,
) -> Any:
    """The tile of a size. `step` is the bytes from the values of one row to those of the next."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
        rows, vectors, *others = arguments
        end = builder.append_basic_block("end")
        switch = builder.switch(builder.add(builder.mul(rows, _INT(VECTORS + 1)), vectors), end)
        for size in product_of(range(1, MAX_ROWS + 1), range(1, VECTORS + 1)):
            block = builder.append_basic_block("size")
            switch.add_case(_INT(size[0] * (VECTORS + 1) + size[1]), block)
            builder.position_at_end(block)
            _generate_tile(builder, *size, *others)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 13), generate


def _generate_tile(
    builder: ir.IRBuilder,
    rows: int,
    vectors: int,
    inputs: Any,
    row_step: Any,
    weights: Any,
    weight_step: Any,
    outputs: Any,
    output_step: Any,
    num_inputs: Any,
    near: Any,
    far: Any,
    fetched_step: Any,
    goes_on: Any,
) -> None:
    """The tile of one size: a loop over the inputs, with all sums in registers."""
    module = builder.module
    fma = fma_of(builder, _VECTOR)
    fetch = cgutils.get_or_insert_function(
        module, ir.FunctionType(ir.VoidType(), [_BYTE, INT32, INT32, INT32]), "llvm.prefetch.p0i8"
    )

    def at(address: Any, offset: Any, pointer: Any) -> Any:
        return builder.inttoptr(builder.add(address, offset), pointer)

    def times(step: Any, number: int) -> Any:
        return builder.mul(step, _INT(number))

    places = [
        [
            at(outputs, builder.add(times(output_step, row), _INT(vector * _BYTES)), _VECTOR.as_pointer())
            for vector in range(vectors)
        ]
        for row in range(rows)
    ]
    begins, nothing = builder.icmp_signed("==", goes_on, _INT(0)), ir.Constant(_VECTOR, None)
    begun = [builder.select(begins, nothing, builder.load(each, align=4)) for each in chain(*places)]
    start = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    place = builder.phi(_INT)
    place.add_incoming(_INT(0), start)
    sums = [[builder.phi(_VECTOR) for _ in range(vectors)] for _ in range(rows)]
    line = builder.add(weights, builder.mul(place, weight_step))
    values = builder.add(inputs, builder.mul(place, _INT(4)))
    fetched = builder.mul(place, fetched_step)
    read = []
    for vector in range(vectors):
        read.append(builder.load(at(line, _INT(vector * _BYTES), _VECTOR.as_pointer()), align=4))
        # of high tiles, which take their time, the processor fetches the rest into the next cache
        caches = zip((near, far), _CACHES[: 1 if vector > 1 and rows > MAX_ROWS // 2 else 2], strict=False)
        for start_of, level in caches:
            ahead = at(builder.add(start_of, fetched), _INT(vector * _BYTES), _BYTE)
            builder.call(fetch, [ahead, INT32(0), INT32(level), INT32(1)])  # to read; data
    totals = []
    for row in range(rows):
        value = builder.load(at(values, times(row_step, row), FLOAT.as_pointer()), align=4)
        first = builder.insert_element(_VECTOR(ir.Undefined), value, INT32(0))
        spread = builder.shuffle_vector(first, _VECTOR(ir.Undefined), ir.Constant(ir.VectorType(INT32, WIDTH), None))
        totals.append([builder.call(fma, [each, spread, sum_]) for each, sum_ in zip(read, sums[row], strict=True)])
    following = builder.add(place, _INT(1))
    place.add_incoming(following, loop)
    for sum_, first, total in zip(chain(*sums), begun, chain(*totals), strict=True):
        sum_.add_incoming(first, start)
        sum_.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, num_inputs), loop, after)
    builder.position_at_end(after)
    for total, each in zip(chain(*totals), chain(*places), strict=True):
        builder.store(total, each, align=4)


@compiled(nogil=True, error_model="numpy")
def tiles(
    rows: int,
    width: int,
    num_inputs: int,
    values: int,
    value_step: int,
    weights: int,
    weight_step: int,
    outputs: int,
    output_step: int,
    near: int,
    far: int,
    fetched_step: int,
    goes_on: int,
) -> None:
    """outputs[row, j] = sum over i of values[row, i] * weights[i, j], in tiles whose sums stay in registers.

    An array is given by its address and the bytes from one of its lines to the next. Compiled code is given the address
    of this function: it is compiled once, and not again within each function that calls it.

    Args:
        width: outputs of a row, a multiple of `WIDTH`.
        num_inputs: 1 or more.
        near, far: with each input, a line of weights from here on is fetched into the nearest cache and the next one.
        goes_on: 0, or the outputs are what the sums begin with.
    """
    for row in range(0, rows, MAX_ROWS):
        height, source, target = min(MAX_ROWS, rows - row), values + row * value_step, outputs + row * output_step
        for first in range(0, width, PANEL):
            vectors, columns, to = min(VECTORS, (width - first) // WIDTH), weights + 4 * first, target + 4 * first
            _tile(
                height, vectors, source, value_step, columns, weight_step, to, output_step, num_inputs, near, far,
                fetched_step, goes_on,
            )  # fmt: skip


@untyped_intrinsic
def call(
    typing: Any,
    function: Any,
    rows: Any,
    width: Any,
    num_inputs: Any,
    values: Any,
    value_step: Any,
    weights: Any,
    weight_step: Any,
    outputs: Any,
    output_step: Any,
    near: Any,
    far: Any,
    fetched_step: Any,
    goes_on: Any,
) -> Any:
    """Call `tiles` by its address."""

    def generate(context: Any, builder: ir.IRBuilder, _: Any, arguments: Any) -> Any:
        function, *others = arguments
        kind = ir.FunctionType(ir.VoidType(), [_INT] * 13)
        builder.call(builder.inttoptr(function, kind.as_pointer()), others)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 14), generate


#: How many threads compute, the address of compiled `tiles`, and `TURNS`.
Team: TypeAlias = tuple[int, int, int, int]


@cache
def _address_of_tiles() -> int:
    return address_of(tiles, types.void(*[types.intp] * 13))


_one_at_a_time = threading.RLock()
#: The process in which parallel loops ran first.
_began_in: int | None = None


def _layer() -> str:
    """numba's layer of threads; "" before it has run any."""
    try:
        return str(numba.threading_layer())
    except ValueError:
        return ""


def is_usable() -> bool:
    """Whether parallel loops can run in this process. A fork of one in which they ran has none of its threads: OpenMP
    ends it, and other layers wait for ever; TBB's starts anew.
    """
    return _began_in in (None, os.getpid()) or _layer() == "tbb"


def alone() -> contextlib.AbstractContextManager[Any]:
    """To be entered around parallel loops: several threads at once end a process where numba has neither OpenMP nor TBB
    (libgomp is missing in slim images), so they take turns there.
    """
    global _began_in
    _began_in = _began_in or os.getpid()
    return contextlib.nullcontext() if _layer() in ("omp", "tbb") else _one_at_a_time


def threads_and_kernel(threads: int | None = None) -> Team:
    """What `product` computes with; by default with PyTorch's number of threads: with one number for both, their teams
    are the same.
    """
    threads = threads or min(torch.get_num_threads(), config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    numba.set_num_threads(min(threads, config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    return threads, _address_of_tiles(), *TURNS


@kernel(_nrt=True, error_model="numpy")
def _panels(
    inputs: np.ndarray, panels: np.ndarray, begin: int, end: int, bias: np.ndarray, added: np.ndarray, tiles: int,
    low: int, high: int, outputs: np.ndarray,
) -> None:  # fmt: skip
    """`product` of the panels from `begin` to `end`, in `outputs`."""
    (rows, size), num_outputs = inputs.shape, outputs.shape[1]
    parts = -(-rows // MAX_ROWS)
    height = -(-rows // parts)
    edge = np.empty((rows, PANEL), np.float32)  # what a tile has behind the last output is left here
    line, turn = 4 * PANEL, high if height > _LOW else low
    block = size if parts == 1 else -(-size // -(-size // turn))
    for panel in range(begin, end):
        first, until = panel * PANEL, min((panel + 1) * PANEL, num_outputs)
        is_whole = until - first == PANEL
        for start in range(0, size, block):
            weights = address(panels) + line * (panel * size + start)
            for number in range(parts):
                top, bottom = number * height, min((number + 1) * height, rows)
                to, step = address(edge) + line * top, line
                if is_whole:
                    to, step = address(outputs) + 4 * (top * num_outputs + first), 4 * num_outputs
                near, far, fetched = weights + line * AHEAD, weights + line * 2 * AHEAD, line
                if parts > 1:  # this tile's share of the next block, and of that behind it
                    near = weights + line * block * (parts + number) // parts
                    far, fetched = near + line * block, line // parts
                elif height <= _UNFETCHED:
                    fetched = 0  # one line again and again
                source = address(inputs) + 4 * (top * size + start)
                call(
                    tiles, bottom - top, PANEL, min(block, size - start), source, 4 * size, weights, line, to, step,
                    near, far, fetched, start,
                )  # fmt: skip
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


@compiled(parallel=PRANGE, nogil=True, error_model="numpy")
def product(
    inputs: np.ndarray, panels: np.ndarray, bias: np.ndarray, added: np.ndarray, num_outputs: int, team: Team
) -> np.ndarray:
    """inputs @ weights.T + bias + added (q, num_outputs) of inputs (q, in) and `packed` weights.

    Args:
        bias, added: (num_outputs,) and (q, num_outputs); empty ones are none.
    """
    threads, tiles, low, high = team
    outputs = np.empty((len(inputs), num_outputs), np.float32)
    for thread in numba.prange(threads):
        begin, end = len(panels) * thread // threads, len(panels) * (thread + 1) // threads
        # a function of its own: numba would compile what stands in a parallel loop twice
        _panels(inputs, panels, begin, end, bias, added, tiles, low, high, outputs)
    return outputs
