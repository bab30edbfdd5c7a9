"""The steps that are measured: their tables' shapes and bounds; no times are asserted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.families import cached_model, cached_target, plan
from support.tiny import tiny_target

from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.records import RunManifest
from ngram_trie.bench.step_costs import measure_steps, read_seconds
from ngram_trie.cli import overrides as command_line
from ngram_trie.targets.costs import binary_tree
from ngram_trie.targets.cuda_graph import GraphNetwork
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.network import Forward
from ngram_trie.tree import DraftTree
from scripts import bench_steps


def test_the_curve_is_full_and_keeps_to_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 6 drafted nodes and a context of 160."""
    target = TargetModel(tiny_target("llama").model, max_draft=6)
    seen: list[tuple[int, int]] = []
    verify = TargetModel.verify

    def watched(self: TargetModel, tree: DraftTree, top_k: int = 0) -> Forward:
        seen.append((tree.num_draft, self.cache.length))
        return verify(self, tree)

    monkeypatch.setattr(TargetModel, "verify", watched)
    curve = bench_steps.measured({"stock": target}, rounds=2, steps=4)["stock"].curve("tiny")
    assert isinstance(curve, CostCurve) and curve.name == "tiny"
    assert list(curve.nodes) == [0, 1, 3, 6]  # of NODES those that the target takes
    assert list(curve.contexts) == list(curve.prefill_lengths) == [64, 156]  # up to the limit, less room for a path
    assert np.shape(curve.step_seconds) == (4, 2)
    for seconds in (curve.step_seconds, curve.prefill_seconds):
        assert np.isfinite(seconds).all() and (np.array(seconds) > 0).all()
    assert curve.step([3], [100]) > 0
    # Four steps at every point in every round, and as many to warm up.
    assert Counter(seen) == {(size, context): 4 * 4 for size in curve.nodes for context in curve.contexts}


@pytest.mark.parametrize("num_draft", [0, 1, 2, 6, 256])
def test_binary_trees_are_full_and_of_the_size_asked_for(num_draft: int) -> None:
    tree = binary_tree(num_draft, np.random.default_rng(0), vocab_size=61)
    assert tree.num_draft == num_draft and tree.tokens.max() < 61
    counts = np.bincount(tree.depths)
    assert all(count == 2**depth for depth, count in enumerate(counts[:-1])) and counts[-1] <= 2 ** (len(counts) - 1)


@pytest.mark.slow
def test_every_backend_that_runs_here_is_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NODES", (0, 3)), ("CONTEXTS", (64,)), ("ROUNDS", 1)):
        monkeypatch.setattr(bench_steps, name, value)
    given = ["model=tiny", "model.device=cpu", "engine.max_draft=3", f"output={tmp_path}", "measure.repeats=1"]
    bench_steps.bench(command_line.composed(given))
    frame = pd.read_csv(tmp_path / "steps.csv")
    assert list(zip(frame.backend, frame.tokens, strict=True)) == [("stock", 1), ("stock", 4), ("cpu", 1), ("cpu", 4)]
    assert (frame.ms > 0).all() and frame.of_plain.tolist()[::2] == [1, 1] and (frame.of_reading > 0).all()
    ratios = bench_steps.beside(frame, [4])
    assert ratios.loc[(64, "stock"), 4] == 1
    assert ratios.loc[(64, "cpu"), 4] == pytest.approx(frame.ms[1] / frame.ms[3], rel=1e-3)
    assert list(CostCurve.read(tmp_path).nodes) == [0, 3]
    assert RunManifest.read(tmp_path / "manifest.json").config["engine"]["backend"] == "cpu"


def test_graphs_are_timed_without_the_host() -> None:
    model = cached_model("llama")
    network = GraphNetwork(model, plan(model), sizes=(1, 8))
    found = measure_steps(TargetModel(model, 7, 160, network), [1, 8], [40], 1)
    assert np.isfinite(found.device).all()
    assert read_seconds(cached_target("llama", "stock"), 3) > 0
