"""A disk that is full or cannot be written to: one line, and nothing that was written before is lost."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from support.runs import run_script

from ngram_trie.bench.records import read_records
from ngram_trie.store.files import PROJECT

TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"


def replay(folder: Path, room: int | None = None) -> subprocess.CompletedProcess[str]:
    """A replay into `folder`, in which no file may become larger than `room` bytes."""

    def limit() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    arguments = ["engine=replay", f"engine.traces={TRACES}", "method=pld", "engine.num_jobs=1", f"output={folder}"]
    return run_script(*arguments, preexec_fn=limit)


def answers(folder: Path) -> list[tuple[object, list[int], list[int]]]:
    return [(each.key, each.output_ids, each.accept_lengths) for each in read_records(folder / "records.jsonl")]


def the_line(done: subprocess.CompletedProcess[str]) -> str:
    """What it ended with; nothing else may look like an error."""
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


@pytest.mark.slow
def test_a_full_disk_loses_at_most_the_record_being_written(tmp_path: Path) -> None:
    """Wherever the disk becomes full: in the manifest, or in the records."""
    assert replay(tmp_path / "whole").returncode == 0
    whole = answers(tmp_path / "whole")
    size = (tmp_path / "whole" / "records.jsonl").stat().st_size
    folder = tmp_path / "full"
    for room in (100, size // 3, size // 2, size * 3 // 4):
        done = replay(folder, room)
        assert done.returncode == 1 and "make room" in the_line(done)
        known = answers(folder) if (folder / "records.jsonl").exists() else []
        assert known == whole[: len(known)] and not list(folder.glob("*.tmp"))
        assert len(known) >= len(whole) * min(room, size) // size // 2
    assert replay(folder).returncode == 0
    assert answers(folder) == whole
