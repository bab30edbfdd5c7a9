"""The benchmark of a CPU on the tiny model: its tables' shapes, and that every way answers alike."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from omegaconf import DictConfig

from ngram_trie.cli import overrides as command_line
from ngram_trie.methods import ConfigError
from scripts import bench_cpu


def composed(*given: str) -> DictConfig:
    return command_line.composed(list(given))


@pytest.mark.slow
def test_tables_of_steps_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SIZES", (1, 4)), ("CONTEXTS", (64,)), ("NUM_TOKENS", 24), ("ROUNDS", 1)):
        monkeypatch.setattr(bench_cpu, name, value)
    bench_cpu.bench(composed("dataset=rag", "dataset.limit=2", "model.device=cpu", f"output={tmp_path}"))
    steps, answers = pd.read_csv(tmp_path / "steps.csv"), pd.read_csv(tmp_path / "answers.csv")
    assert list(zip(steps.backend, steps.tokens, strict=True)) == [
        (bench_cpu.READ, 0), ("stock", 1), ("stock", 4), ("cpu", 1), ("cpu", 4),
    ]  # fmt: skip
    assert (steps.ms > 0).all() and steps.of_plain.tolist()[1::2] == [1, 1] and steps.of_reading[0] == 1
    assert answers.way[0] == bench_cpu.GENERATE and answers.speedup[0] == 1
    assert (answers.same == 1).all()  # in single precision every way gives the same tokens
    assert (answers.low <= answers.speedup + 1e-3).all() and (answers.speedup <= answers.high + 1e-3).all()
    first = pd.read_csv(tmp_path / "first.csv").set_index("compiled").seconds
    assert first["nothing"] > first["all"] > 0
    assert (tmp_path / "manifest.json").exists()


def test_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_cpu, "settle", lambda config: None)
    with pytest.raises(ConfigError, match=r"model\.device=cuda: this measures a CPU"):
        bench_cpu.bench(composed("model.device=cuda"))
