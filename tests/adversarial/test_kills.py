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


@pytest.mark.slow
def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    undisturbed = finish(tmp_path / "undisturbed")
    took, chance, folder = time.monotonic() - began, random.Random(0), tmp_path / "killed"
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(folder), cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        try:  # most of a run is starting up
            process.wait(took * chance.uniform(0.5, 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said
        if process.returncode == 0:
            assert finish(folder) == undisturbed
            shutil.rmtree(folder)
    assert finish(folder) == undisturbed
