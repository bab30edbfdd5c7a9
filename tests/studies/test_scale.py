"""The simulated schedule by hand, and the list of what a GPU is to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np
import pytest
from support.configs import composed

from ngram_trie.bench.config import check_values
from ngram_trie.cli import shorthand
from ngram_trie.cli.hydra_app import hydra_options
from scripts.studies import gpu
from scripts.studies.scale import LOAD, REQUEUE, schedule


class Losses:
    """Seconds until each worker is lost, as told."""

    def __init__(self, *seconds: float) -> None:
        self.seconds: Iterator[float] = iter(seconds)

    def exponential(self, _: float) -> float:
        return next(self.seconds)


def test_shards_go_to_whoever_is_free() -> None:
    shards = [np.array([10.0]), np.array([20.0]), np.array([30.0])]
    hours, lost = schedule(shards, 2, 0, np.random.default_rng())
    assert 3600 * hours == pytest.approx(LOAD + 10 + LOAD + 30) and lost == 0


def test_a_lost_node_loses_the_answer_under_way_and_no_other() -> None:
    losses = Losses(LOAD + 150, 1e9)
    hours, lost = schedule([np.array([100.0, 100.0])], 1, 1, losses)  # type: ignore[arg-type]
    assert 3600 * lost == pytest.approx(50)
    assert 3600 * hours == pytest.approx(LOAD + 150 + REQUEUE + LOAD + 100)


@pytest.mark.parametrize("part", gpu.PARTS)
def test_what_a_gpu_is_to_run_composes(part: str) -> None:
    for command in gpu.PARTS[part]:
        script, *words = shlex.split(command.format(folder="F", traces="T", llama="L"))
        assert script in ("run", "bench_gpu", "reproduce")
        if script == "run":
            options = hydra_options(words, is_run=True)
            check_values(composed(*shorthand.written_out(options.overrides, shorthand.values(options))))
