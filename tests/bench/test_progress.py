"""What a run says while it goes on."""

from __future__ import annotations

import joblib
import psutil
import pytest
from support.records import record

from ngram_trie.bench import progress
from ngram_trie.bench.progress import Progress, standing, warn_of_load


def test_how_methods_stand_is_said_after_1_2_4_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(18, {"vanilla": 9, "pld": 9}, num_methods=2, is_timed=True) as shown:
        for number in range(5):
            for method, seconds in (("vanilla", 2.0), ("pld", 1.0)):
                shown.add(record(method, f"q{number}", seconds=seconds))
    said = [line for line in capsys.readouterr().err.replace("\r", "\n").split("\n") if line.startswith("after")]
    assert [line.partition(":")[0] for line in said] == ["after 1 prompt", "after 2 prompts", "after 4 prompts"]
    assert "vanilla 2.0 tokens/s, pld 2.00x" in said[0]


def test_the_time_left_is_that_of_the_methods_whose_answers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first answer counts by its own clock: compiling went before it."""
    now = 0.0
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now)
    with Progress(6, {"vanilla": 3, "pld": 3}, num_methods=2, is_timed=True) as shown:
        for took, method, seconds, left in (
            (50.0, "vanilla", 4.0, 2 * 4 + 3 * 4), (30.0, "pld", 1.0, 2 * 4 + 2 * 1), (6.0, "vanilla", 6.0, 1 * 5 + 2),
        ):  # fmt: skip
            now += took
            shown.left[method] -= 1
            assert shown.seconds_left(record(method, "q", seconds=seconds)) == pytest.approx(left)


def test_a_replay_says_nothing_of_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, {"vanilla": 1}, num_methods=1, is_timed=False) as shown:
        shown.add(record("vanilla", "q"))
    assert "after" not in capsys.readouterr().err
    assert standing({}) == ""


def test_a_busy_machine_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil, "getloadavg", lambda: (1.9, 0, 0))
    warn_of_load(4)
    assert not capsys.readouterr().err
    monkeypatch.setattr(psutil, "getloadavg", lambda: (7.0, 0, 0))
    warn_of_load(4)
    said = capsys.readouterr().err
    assert "load 7.0 on 4 cores" in said and "engine.num_threads=1" in said


def test_more_threads_than_cores_are_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 2)
    monkeypatch.setattr(psutil, "getloadavg", lambda: (0.1, 0, 0))
    warn_of_load(2)
    assert not capsys.readouterr().err
    warn_of_load(8)
    assert "8 threads on 2 cores" in capsys.readouterr().err
