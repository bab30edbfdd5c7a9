"""What counts as a disturbance of an answer (what follows from it: `test_live`)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ngram_trie.bench import others


def test_memory_is_compared_with_the_quarter_point_of_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now, readings = [0.0], list[float]()
    monkeypatch.setattr(others, "_seconds_of_others", lambda: 0.0)
    monkeypatch.setattr(others, "perf_counter", lambda: now[0])
    monkeypatch.setattr(others.Others, "_reading", lambda _: readings.pop(0))
    watch = others.Others()

    def answer(*read: float, seconds: float = 2.0) -> float:
        readings[:] = read
        watch.begin()
        now[0] += seconds
        disturbance = watch.end()
        assert not readings
        return disturbance

    assert answer(1, 0.5) == 0 and [answer(read) for read in (1, 1, 1, 3, 3, 3, 3, 3)] == [0] * 8  # too few as yet
    assert answer(seconds=0.2) == 0  # too short: nothing is read behind it
    assert answer(3) == 2 and answer(2) == 2 and answer(2) == 1  # of two beside it, the slower one
    now[0] += 2
    assert answer(1, 1) == 0  # what was read behind the last answer says nothing now


def test_seconds_of_others_are_the_machine_s_but_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = SimpleNamespace(user=5.0, system=2.0, steal=1.5, idle=100.0, iowait=50.0, guest=5.0)  # guests are users
    monkeypatch.setattr(others.psutil, "cpu_times", lambda: spent)
    monkeypatch.setattr(others, "process_time", lambda: 3.0)
    assert others._seconds_of_others() == 5.5 and others.Others()._reading() > 0
