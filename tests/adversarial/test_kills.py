"""Runs that are killed at random moments, again and again, lose and repeat nothing; $KILLS says how often."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.runs import command, run_script

from ngram_trie.bench.records import RecordKey, read_records
from ngram_trie.store.files import PROJECT

TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"
KILLS = int(os.environ.get("KILLS", "2"))
REPLAY = ["engine=replay", f"engine.traces={TRACES}", "method=pld"]
LIVE = ["model=tiny", "dataset=rag", "dataset.limit=6", "method=blend_warm"]
#: A replay in two processes, a live run of a method that remembers answers, and a sweep in two processes.
KINDS: Mapping[str, list[str]] = {
    "replay": [*REPLAY, "engine.num_jobs=2", "output={folder}"],
    "live": [*LIVE, "measure.max_new_tokens=32", "measure.repeats=1", "output={folder}"],
    "sweep": [
        "-m", *REPLAY, "engine.num_jobs=1", "method.num_draft=2,4", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2",
        "output={folder}/${{method.num_draft}}", "hydra.sweep.dir={folder}/hydra",
    ],
}  # fmt: skip
#: By run and answer, tokens and accept lengths; those of a resumed warm method are an undisturbed one's, too.
Answers = dict[tuple[str, RecordKey], tuple[list[int], list[int]]]


def arguments(kind: str, folder: Path) -> list[str]:
    return [part.format(folder=folder) for part in KINDS[kind]]


def finish(kind: str, folder: Path) -> Answers:
    """Run to the end; what was answered, each once."""
    done = run_script(*arguments(kind, folder))
    assert done.returncode == 0, done.stderr
    found: Answers = {}
    for path in sorted(folder.rglob("records.jsonl")):
        where = str(path.parent.relative_to(folder))
        records = list(read_records(path))
        answers = {(where, record.key): (record.output_ids, record.accept_lengths) for record in records}
        assert len(answers) == len(records)
        found |= answers
    return found


def written(folder: Path) -> int:
    """Bytes of records so far."""
    return sum(path.stat().st_size for path in folder.rglob("records.jsonl"))


@pytest.fixture
def no_sweeps_left() -> Iterator[None]:
    """The folders of finished sweeps, and of the last one that was killed."""
    sweeps = PROJECT / "results" / "local" / "sweeps"
    before = set(sweeps.glob("*"))
    yield
    for folder in set(sweeps.glob("*")) - before:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("no_sweeps_left")
@pytest.mark.parametrize("kind", KINDS)
def test_kills_lose_and_repeat_nothing(kind: str, tmp_path: Path) -> None:
    undisturbed = finish(kind, tmp_path / "undisturbed")
    size = written(tmp_path / "undisturbed")
    chance, folder, inside = random.Random(0), tmp_path / "killed", 0
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(*arguments(kind, folder)), cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
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
            assert finish(kind, folder) == undisturbed
            shutil.rmtree(folder)
    assert inside, "no kill fell while records were written"
    assert finish(kind, folder) == undisturbed
