"""The counts of `adversarial.run_all`."""

from __future__ import annotations

from pathlib import Path

from adversarial import run_all

from ngram_trie.store.files import PROJECT


def test_its_tests_are_there() -> None:
    assert all((PROJECT / path).is_file() for paths in run_all.AREAS.values() for path in paths)


def test_cases_are_counted_by_their_outcome(tmp_path: Path) -> None:
    lines = ["import pytest", "def test_a(): pass", "def test_b(): assert False", "def test_c(): pytest.skip()"]
    (tmp_path / "test_three.py").write_text("\n".join(lines), encoding="utf-8")
    assert run_all.tried([str(tmp_path / "test_three.py")], {}) == (2, 1)
