"""A layer for a few tokens, part by part, against PyTorch's functions in double precision."""

from __future__ import annotations

import os
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from ngram_trie.targets import layers, small_gemm
from ngram_trie.targets.small_gemm import threads_and_kernel as team

NO_BIAS, NOTHING = np.empty(0, np.float32), np.empty((0, 0), np.float32)

#: Parts of `through`, which only compiled functions call.
attention = numba.njit(lambda *given: layers.attention(*given))
gated = numba.njit(lambda gate_up, is_gelu: layers.gated(gate_up, is_gelu))


def rows_of(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_panels(keys: torch.Tensor) -> np.ndarray:
    """Keys (h, c, d) as a cache holds them; what is behind the last whole panel is left out."""
    panels = keys[:, : keys.shape[1] // small_gemm.PANEL * small_gemm.PANEL].unflatten(1, (-1, small_gemm.PANEL))
    return panels.transpose(2, 3).contiguous().numpy()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 3 * small_gemm.MAX_ROWS + 1),
    size=st.integers(1, 70),
    outputs=st.integers(1, 3 * small_gemm.PANEL + 1),
    threads=st.integers(1, 3),
    block=st.sampled_from([4, 64, 1 << 20]),
    has_bias=st.booleans(),
    is_added=st.booleans(),
)
def test_products_are_right_for_every_number_of_rows_outputs_and_threads(
    rows: int, size: int, outputs: int, threads: int, block: int, has_bias: bool, is_added: bool
) -> None:
    inputs, weight = rows_of(1, rows, size), rows_of(2, outputs, size)
    bias = rows_of(3, outputs).numpy() if has_bias else NO_BIAS
    added = rows_of(4, rows, outputs).numpy() if is_added else NOTHING
    panels = small_gemm.packed([[weight.flip(0)], weight.split(7)])[1].numpy()  # of the second product, in parts
    its_team = (*team(threads)[:2], block, 2 * block)
    found = small_gemm.product(inputs.numpy(), panels, bias, added, outputs, its_team)
    right = F.linear(inputs.double(), weight.double()).numpy()
    right += (bias if has_bias else 0) + (added if is_added else 0)
    np.testing.assert_allclose(found, right, atol=1e-4)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    inputs, panels = rows_of(1, 20, 96).numpy(), small_gemm.packed([[rows_of(2, 100, 96)]])[0].numpy()
    together = small_gemm.product(inputs, panels, NO_BIAS, NOTHING, 100, (*team(2)[:2], 64, 64))
    for row in range(20):
        assert (
            small_gemm.product(inputs[row : row + 1], panels, NO_BIAS, NOTHING, 100, team(2)) == together[row]
        ).all()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 20),
    past=st.integers(0, 3 * small_gemm.PANEL),
    shared=st.integers(1, 3),
    group=st.integers(1, 3),
    size=st.sampled_from([2, 8, 16, 24, 80]),
    threads=st.integers(1, 3),
    cap=st.sampled_from([0.0, 2.0]),
)
def test_attention_is_right_behind_any_number_of_tokens(
    rows: int, past: int, shared: int, group: int, size: int, threads: int, cap: float
) -> None:
    """A tree's mask hides tokens of the step from each other; before it, all are seen."""
    length, heads = past + rows, shared * group
    queries = rows_of(1, rows, heads + 2 * shared, size)
    cache = rows_of(2, 2, shared, -(-length // small_gemm.PANEL) * small_gemm.PANEL + small_gemm.WIDTH, size)
    is_seen = (rows_of(3, rows, rows) > 0).tril() | torch.eye(rows, dtype=torch.bool)
    laid_out = in_panels(cache[0]), cache[1].numpy()
    starts = rows_of(4, rows).abs().mul(past / 3).long().clip(0, past)
    found = attention(
        queries.numpy(), heads, *laid_out, length, (~is_seen).numpy(), starts.numpy(), np.float32(size**-0.5),
        np.float32(cap), team(threads),
    )  # fmt: skip
    mask = torch.cat([torch.arange(past) >= starts[:, None], is_seen], 1)
    keys, values = cache[:, :, :length].double().repeat_interleave(group, 1)
    scores = queries[:, :heads].transpose(0, 1).double() @ keys.mT * size**-0.5
    scores = cap * torch.tanh(scores / cap) if cap else scores
    right = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ values
    np.testing.assert_allclose(found, right.transpose(0, 1).flatten(1), atol=1e-5)


def test_scores_far_apart_neither_overflow_nor_lose_the_highest() -> None:
    queries, (keys, values) = np.full((1, 3, 8), 30, np.float32), rows_of(1, 2, 1, 2 * small_gemm.PANEL, 8)
    found = attention(
        queries, 1, in_panels(keys), values.numpy(), 20, np.zeros((1, 1), bool), np.zeros(1, np.int64),
        np.float32(8**-0.5), np.float32(0), team(2),
    )  # fmt: skip
    scores = keys[0, :20].double().sum(1) * 30 / np.sqrt(8)
    assert scores.max() - scores.min() > 100
    np.testing.assert_allclose(found[0], scores.softmax(0) @ values[0, :20].double(), rtol=1e-4)


@given(
    path=st.sets(st.integers(0, 3 * small_gemm.PANEL - 1), min_size=1).map(sorted),
    past=st.integers(0, small_gemm.PANEL),
)
def test_accepted_nodes_are_moved_behind_the_text(path: list[int], past: int) -> None:
    cache = rows_of(1, 2, 2, 3, 4 * small_gemm.PANEL, 5)  # keys and values of two layers and three heads
    keys, values = np.stack([in_panels(layer) for layer in cache[0]]), cache[1].numpy().copy()
    layers.move(keys, values, past, np.array(path))
    kept = [*range(past), *(past + node for node in path)]
    assert (values[:, :, : len(kept)] == cache[1][:, :, kept].numpy()).all()
    found = keys.swapaxes(3, 4).reshape(cache[0].shape)
    assert (found[:, :, : len(kept)] == cache[0][:, :, kept].numpy()).all()


def test_the_gate_is_right_from_where_it_is_shut_to_where_it_is_open() -> None:
    gate_up = torch.cat([torch.linspace(-200, 200, 999)[None], rows_of(1, 1, 999)], 1)
    gate, up = gate_up.double().chunk(2, 1)
    np.testing.assert_allclose(gated(gate_up.numpy(), False), F.silu(gate) * up, rtol=1e-5, atol=1e-30)
    turned = F.gelu(gate, approximate="tanh") * up
    np.testing.assert_allclose(gated(gate_up.numpy(), True), turned, rtol=1e-4, atol=1e-6)


def test_norms_are_right() -> None:
    text, weight = rows_of(1, 5, 33), rows_of(2, 33)
    right = F.rms_norm(text.double(), (33,), weight.double(), 1e-5)
    for added in (layers.NOTHING, np.float32(3) * text.numpy()):
        normed = layers.rms_norm(text.numpy(), weight.numpy(), np.float32(1e-5), added)
        np.testing.assert_allclose(normed, right + (added if len(added) else 0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(small_gemm.WIDTH == 8, reason="this processor has no AVX-512: the other tests are this one")
def test_vectors_of_eight_are_right_too(tmp_path: object) -> None:
    """As on a processor with AVX2 alone, and on two threads."""
    settings = {
        "NUMBA_NUM_THREADS": "2",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma",
        "NUMBA_CACHE_DIR": str(tmp_path),
    }
    lines = "from ngram_trie.targets import small_gemm; assert small_gemm.WIDTH == 8; import pytest, sys; "
    lines += f"sys.exit(pytest.main([{__file__!r}, '-q', '-p', 'no:cacheprovider', '-n0', '-m', 'not slow']))"
    subprocess.run([sys.executable, "-c", lines], check=True, env={**os.environ, **settings})
