"""The GPU measurement, run on a CPU over a tiny network through the same code: what it writes, not how fast it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.teacher_forced import TINY
from support.tiny import tiny_target

from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.records import RunManifest
from ngram_trie.bench.step_costs import copy_bandwidth, step_bytes
from ngram_trie.cli.app import invoke
from ngram_trie.targets.cuda_graph import CudaGraphTarget
from scripts.bench_gpu import main


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY | {"initializer_range": 0.2}))
    own = (
        "--device cpu --dtype float32 --nodes 8 --rounds 2 --copy-mb 1 --contexts 20 --contexts 40 --sizes 8 --sizes 16"
    )
    return [*own.split(), "--architecture", str(tmp_path / "tiny"), "--output", str(tmp_path / "out")]


@pytest.mark.slow
def test_one_call_measures_everything(arguments: list[str], tmp_path: Path) -> None:
    found = invoke(main, arguments)
    assert found["failed"] == {}
    tokens = found["tokens in fp32"]
    assert tokens["tokens"] == 64 and tokens["distinct"] > 8 and list(tokens.values()).count("identical") == 6
    assert found["against the stock backend"]["equal_choices"] == 1
    assert found["against the stock backend"]["tree_logits"] < 1e-4
    assert set(found["variants"]["forward_seconds"]) == {"products", "whole"}
    assert np.shape(found["steps"]["wall"]) == (3, 2) and np.isfinite(found["steps"]["device"]).all()
    assert np.allclose(found["steps"]["relative"][0], 1)

    folder = tmp_path / "out"
    assert json.loads((folder / "bench.json").read_text())["variants"]["best"] == found["variants"]["best"]
    assert list(CostCurve.read(folder / "calibration").nodes) == [0, 7, 15]
    assert RunManifest.read(folder / "manifest.json").config["model"]["weights"] == "random"


def test_bytes_of_a_step_by_hand() -> None:
    target = CudaGraphTarget(tiny_target("llama").model)
    # two layers of q, k, v, o, gate, up, down and two norms; the last norm; the head. And keys and values of 2 x 8.
    layer = 32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    assert step_bytes(target, 0) == 4 * (2 * layer + 32 + 61 * 32)
    assert step_bytes(target, 10) - step_bytes(target, 0) == 4 * 10 * 2 * 2 * 2 * 8
    assert copy_bandwidth("cpu", 1 << 16, 3) > 0


def test_bad_input_is_one_line(arguments: list[str]) -> None:
    for more, message in (
        (["--nodes", "99"], "--nodes=99"),
        (["--architecture", "nowhere"], "there is no config.json"),
    ):
        with pytest.raises(SystemExit) as error:
            invoke(main, [*arguments, *more])
        assert str(error.value).startswith("error:") and message in str(error.value)
        assert "\n" not in str(error.value)
