"""A replay that is killed at random moments, again and again, loses and repeats nothing: make kill N=200."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngram_trie.files import PROJECT
from ngram_trie.records import RecordKey, read_records

TRACES = PROJECT / "results" / "embedded" / "table1" / "traces.jsonl"
KILLS = int(os.environ.get("KILLS", "4"))


def command(folder: Path) -> list[str]:
    replay = ["engine=replay", f"engine.traces={TRACES}", "engine.num_jobs=2", "method=pld"]
    return [sys.executable, "-m", "scripts.run", *replay, f"output={folder}"]


def finish(folder: Path) -> dict[RecordKey, tuple[list[int], list[int]]]:
    """Run to the end; tokens and accept lengths by key, none of which is there twice."""
    done = subprocess.run(command(folder), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = list(read_records(folder / "records.jsonl"))
    found = {record.key: (record.output_ids, record.accept_lengths) for record in records}
    assert len(found) == len(records)
    return found


def written(folder: Path) -> int:
    """Bytes of records so far."""
    records = folder / "records.jsonl"
    return records.stat().st_size if records.exists() else 0


@pytest.mark.slow
def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    undisturbed = finish(tmp_path / "undisturbed")
    size = (tmp_path / "undisturbed" / "records.jsonl").stat().st_size
    chance, folder, inside = random.Random(0), tmp_path / "killed", 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(folder), cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        before = written(folder)
        enough = before + chance.uniform(0, size - before)  # most of a run is starting up: a kill waits for records
        while process.poll() is None and written(folder) <= enough:
            time.sleep(0.0005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said
        inside += before < written(folder) < size
        if process.returncode == 0 or written(folder) >= size:
            assert finish(folder) == undisturbed
            shutil.rmtree(folder)
    assert inside, "no kill fell while records were written"
    assert finish(folder) == undisturbed
