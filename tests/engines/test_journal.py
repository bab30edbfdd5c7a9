"""Measurements that are continued: a line each, one writer, checksums, and no line of another run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.forced import MANIFEST

from ngram_trie.engines.journal import Journal, read_journal
from ngram_trie.records import RunManifest


def manifest(run: str) -> RunManifest:
    return RunManifest(**{**vars(MANIFEST), "run": run})


def test_an_interruption_loses_the_line_under_way(tmp_path: Path) -> None:
    path = tmp_path / "laps.jsonl"
    for number in range(2):
        with Journal(path, manifest("a")) as journal:
            assert [row["lap"] for row in journal.rows] == list(range(number))
            journal.add({"lap": number})
        with path.open("a") as file:
            file.write('{"lap": 9')  # killed while it wrote
    assert read_journal(path) == [{"lap": 0}, {"lap": 1}]


def test_other_settings_are_refused_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "laps.jsonl"
    with Journal(path, manifest("a")) as journal:
        journal.add({"lap": 0})
    with pytest.raises(FileExistsError, match=r"holds another run \(a there, b here\): give another folder"):
        Journal(path, manifest("b"))
    with Journal(path, manifest("b"), force=True) as journal:
        assert journal.rows == []
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(FileExistsError, match="no manifest says of which run"):
        Journal(path, manifest("b"))


def test_a_changed_line_is_named_and_the_lock_let_go(tmp_path: Path) -> None:
    path = tmp_path / "laps.jsonl"
    with Journal(path, manifest("a")) as journal:
        journal.add({"lap": 0, "seconds": 1.5})
    path.write_text(path.read_text().replace("1.5", "1.4"))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"laps\.jsonl:1: its checksum is of another text"):
            Journal(path, manifest("a"))
    path.write_text("[1]\n")
    with pytest.raises(ValueError, match=r"laps\.jsonl:1: a list, not an object"):
        read_journal(path)
