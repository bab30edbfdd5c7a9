"""Who may write into a run's folder: one process at a time, of the same run and the same code."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.runs import small_replay

from ngram_trie.bench.measure import measure, open_run
from ngram_trie.bench.records import seal
from ngram_trie.bench.replay import Replay
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.store import files

CONFIG = {"engine": {"name": "replay"}, "methods": {"none": {}}}
HOLD = """
import sys, time
from pathlib import Path
from ngram_trie.store.files import one_writer
lock = one_writer(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.2)


def engine(**fields: Any) -> Replay:
    return small_replay(3, **{"config": CONFIG, "commit": "aaa", **fields})


def run(folder: Path, **options: object) -> None:
    with open_run(folder, engine(), **options) as writer:  # type: ignore[arg-type]
        measure(engine(), writer)


def test_a_second_writer_is_refused_and_a_killed_one_leaves_nothing_behind(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout and holder.stdout.readline()
        with pytest.raises(FileExistsError, match="another process writes there") as error:
            open_run(tmp_path, engine())
        assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)
        assert not (tmp_path / "manifest.json").exists()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    run(tmp_path)
    with open_run(tmp_path, engine()) as writer:
        assert len(writer.records) == 3
        with pytest.raises(FileExistsError, match="another process"):
            open_run(tmp_path, engine())


def _orphan(path: str) -> None:
    files.end_with_parent()
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def _parent(path: str) -> None:
    multiprocessing.get_context("spawn").Process(target=_orphan, args=(path,)).start()
    while not Path(path).exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_ends_soon_after_its_parent_was_killed(tmp_path: Path) -> None:
    parent = multiprocessing.get_context("spawn").Process(target=_parent, args=(str(tmp_path / "pid"),))
    parent.start()
    parent.join(60)
    worker = int((tmp_path / "pid").read_text())
    for _ in range(200):
        stat = Path(f"/proc/{worker}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker went on without its parent")


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    name = "table.md"
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match=f"holds {name}, and no manifest.json"):
        open_run(tmp_path, engine())
    assert (tmp_path / name).read_text() == "mine"


def test_compressed_records_of_a_finished_run_are_not_begun_anew(tmp_path: Path) -> None:
    run(tmp_path)
    records, compressed = tmp_path / "records.jsonl", tmp_path / "records.jsonl.gz"
    compressed.write_bytes(gzip.compress(records.read_bytes()))
    records.unlink()
    seal(tmp_path)
    for found in (engine(), engine(commit="bbb")):
        with pytest.raises(FileExistsError, match="a finished run whose records are compressed: give another output"):
            open_run(tmp_path, found)
    assert len(list(RunFolder(tmp_path).records)) == 3 and not records.exists()
    run(tmp_path, force=True)
    assert records.exists() and not compressed.exists()


def test_records_are_checked_against_the_manifest(tmp_path: Path) -> None:
    run(tmp_path)
    records = tmp_path / "records.jsonl"
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    rows[1] |= {"run": "other"}
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match="jsonl:2: of run other, and manifest"):
        _ = RunFolder(tmp_path).records
