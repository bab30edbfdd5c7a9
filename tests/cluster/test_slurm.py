"""Shards and sweeps through a real SLURM of two nodes: nothing is lost or measured twice (make test-cluster)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.slurm import Slurm, missing, slurm, wait_for
from ngram_trie.bench import shards
from ngram_trie.bench.records import PromptRecord, read_records
from ngram_trie.store.files import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=f"no SLURM here: {missing()}")]

RUN = [sys.executable, "-m", "scripts.run"]
TRACES = PROJECT / "results" / "table1" / "tiny" / "traces.jsonl"
METHODS = ["+method@methods.pld=pld", "+method@methods.blend=blend"]
REPLAY = ["engine=replay", f"engine.traces={TRACES}", "engine.num_jobs=1", *METHODS]
LIVE = [
    "model=smollm2_135m",
    "dataset=rag",
    "dataset.limit=12",
    "measure.repeats=1",
    "measure.max_new_tokens=48",
    *METHODS,
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def unsharded(folder: Path, *overrides: str) -> list[PromptRecord]:
    done = subprocess.run(
        [*RUN, *overrides, f"output={folder}"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return timeless(folder)


def timeless(folder: Path) -> list[PromptRecord]:
    return [replace(record, draft_us=[], seconds=None) for record in read_records(folder / "records.jsonl")]


def array(cluster: Slurm, folder: Path, tasks: str, shard: str, *overrides: str) -> str:
    command = [*(f"'{part}'" for part in (*RUN, *overrides, f"output={folder}")), f"shard={shard}"]
    return cluster.submit(command, folder.parent, f"--array={tasks}", f"--chdir={PROJECT}")


def logs(folder: Path) -> str:
    return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(folder.glob("*.log")))


def test_an_array_of_four_shards_is_the_run_of_one_process(cluster: Slurm, tmp_path: Path) -> None:
    started = time.monotonic()
    cluster.wait(array(cluster, tmp_path / "dealt", "0-3", "auto", *REPLAY))
    took = time.monotonic() - started
    assert len(shards.found(tmp_path / "dealt")) == 4, logs(tmp_path)
    shards.join(tmp_path / "dealt")
    whole = unsharded(tmp_path / "whole", *REPLAY)
    assert timeless(tmp_path / "dealt") == whole
    print(f"replay: {len(whole)} answers in an array of 4 shards on 2 nodes, {took:.0f} s")


def test_a_lost_node_and_a_cancelled_shard_of_a_live_run(cluster: Slurm, tmp_path: Path) -> None:
    folder = tmp_path / "dealt"

    def written(task: str) -> bytes:
        path = folder / f"shard-{task}-of-4" / "records.jsonl"
        return path.read_bytes() if path.exists() else b""

    job = array(cluster, folder, "0-3", "$SLURM_ARRAY_TASK_ID/4", *LIVE)
    wait_for(lambda: written("0").count(b"\n") > 1 and written("1").count(b"\n") > 1, "two shards have begun", 300)
    nodes = {node: task for task, (_, node) in cluster.jobs(job).items() if node}
    before = {task: written(task) for task in nodes.values()}
    cluster.lose_node("n1")
    cluster.ask("scancel", f"{job}_{nodes['n2']}")
    wait_for(lambda: nodes["n1"] in cluster.jobs(job), "the lost task waits again")
    lost = time.monotonic()
    cluster.return_node("n1")
    cluster.ask("scontrol", "update", f"jobid={job}_{nodes['n1']}", "starttime=now")  # else two minutes later
    wait_for(lambda: written(nodes["n1"]) != before[nodes["n1"]], "the lost task goes on", 300)
    again = time.monotonic() - lost
    cluster.wait(job)
    with pytest.raises(ValueError, match=f"not joined: shard-{nodes['n2']}-of-4 has"):
        shards.join(folder)
    cluster.wait(array(cluster, folder, nodes["n2"], "$SLURM_ARRAY_TASK_ID/4", *LIVE))
    shards.join(folder)
    for task, kept in before.items():  # what was measured before the loss is there, once, and was gone on with
        lines = kept[: kept.rfind(b"\n") + 1]
        assert lines and written(task).startswith(lines), logs(tmp_path)
    whole = unsharded(tmp_path / "whole", *LIVE)
    assert timeless(folder) == whole
    kept = {task: text.count(b"\n") for task, text in before.items()}
    print(f"live: {len(whole)} answers in an array of 4 shards; {kept[nodes['n1']]} were there when a node was lost")
    print(f"its task measured the next one {again:.0f} s later; {kept[nodes['n2']]} were there of a cancelled shard")


def test_a_sweep_of_shards_through_submitit(cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    sweep = [
        "-m",
        "hydra/launcher=submitit_slurm",
        "hydra.launcher.timeout_min=30",
        f"hydra.sweep.dir={tmp_path}/hydra",
    ]
    cells = ["method=ngram_trie", "method.n=4,8", "shard=0/2,1/2", f"output='{tmp_path}/n${{method.n}}'"]
    done = subprocess.run([*RUN, *sweep, *REPLAY[:3], *cells], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for n in (4, 8):
        shards.join(tmp_path / f"n{n}")
        one = unsharded(tmp_path / f"whole{n}", *REPLAY[:3], "method=ngram_trie", f"method.n={n}")
        assert timeless(tmp_path / f"n{n}") == one
    print(f"submitit: 4 jobs, 2 cells of 2 shards, {len(one)} answers a cell")
