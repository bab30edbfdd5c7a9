"""The GPU measurement, run on a CPU over a tiny network through the same code: what it writes, not how fast it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.teacher_forced import TINY, traces
from support.tiny import tiny_target

from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.gpu_bench import Settings, measure
from ngram_trie.bench.records import read_records
from ngram_trie.bench.step_costs import copy_bandwidth, step_bytes
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.app import invoke, parse
from ngram_trie.prompt import Prompt
from ngram_trie.report import derive
from ngram_trie.targets.cuda_graph import CudaGraphTarget
from scripts.bench_gpu import main


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY | {"initializer_range": 0.2}))
    (tmp_path / "traces.jsonl").write_text("".join(trace.to_json() + "\n" for trace in traces()))
    text = "--device cpu --dtype float32 --nodes 8 --rounds 2 --copy-mb 1 --budget 6000"
    text += " --contexts 20 --contexts 40 --sizes 8 --sizes 16"
    named = {"architecture": "tiny", "traces": "traces.jsonl", "output": "out"}
    return [*text.split(), *(part for name, file in named.items() for part in (f"--{name}", str(tmp_path / file)))]


@pytest.mark.slow
def test_one_call_measures_everything(arguments: list[str], tmp_path: Path) -> None:
    found = measure(Settings(**parse(main, arguments)))
    assert found["failed"] == {} and found["left out"] == {}
    tokens = found["tokens in fp32"]
    assert tokens["tokens"] == 64 and tokens["distinct"] > 8 and list(tokens.values()).count("identical") == 8
    assert found["against the stock backend"]["equal_choices"] == 1
    assert found["against the stock backend"]["tree_logits"] < 1e-4
    assert set(found["variants"]["forward_seconds"]) == {"products", "whole", "split"}
    assert np.shape(found["steps"]["wall"]) == (3, 2) and np.isfinite(found["steps"]["device"]).all()
    assert np.allclose(found["steps"]["relative"][0], 1)
    trie = found["teacher_forced"]["methods"]["ngram_trie"]
    assert trie["prompts"] == 3 and trie["accept_length"] > 1 and trie["speedup_over_stock_vanilla"] > 0

    folder = tmp_path / "out"
    assert json.loads((folder / "bench.json").read_text())["variants"]["best"] == found["variants"]["best"]
    assert list(CostCurve.read(folder / "calibration").nodes) == [0, 7, 15]
    records = list(read_records(folder / "teacher_forced" / "records.jsonl"))
    assert {record.method for record in records} == {"vanilla", "ngram_trie", "pld", "suffix", "blend"}
    assert found["teacher_forced"]["title"] in derive.write(folder / "teacher_forced")  # anywhere, later


def test_bytes_of_a_step_by_hand() -> None:
    target = CudaGraphTarget(tiny_target("llama").model)
    # two layers of q, k, v, o, gate, up, down and two norms; the last norm; the head. And keys and values of 2 x 8.
    layer = 32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 48 + 2 * 32
    assert step_bytes(target, 0) == 4 * (2 * layer + 32 + 61 * 32)
    assert step_bytes(target, 10) - step_bytes(target, 0) == 4 * 10 * 2 * 2 * 2 * 8
    assert copy_bandwidth("cpu", 1 << 16, 3) > 0


def test_bad_input_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    wide = Trace("another model", Prompt(np.array([3, 250, 4]), {}, "rag", "0"), [7])
    (tmp_path / "wide.jsonl").write_text(wide.to_json() + "\n")
    for more, message in (
        (["--traces", str(tmp_path / "wide.jsonl")], "wide.jsonl: holds token 250, but the model's vocabulary has 200"),
        (["--nodes", "99"], "--nodes=99"),
    ):
        with pytest.raises(SystemExit) as error:
            invoke(main, [*arguments, *more])
        assert str(error.value).startswith("error:") and message in str(error.value)
        assert "\n" not in str(error.value)
