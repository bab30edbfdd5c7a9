"""A sweep of shards through a real Ray of two workers, one of which is killed (make test-cluster)."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from cluster.slurm import wait_for
from ngram_trie.bench import shards
from ngram_trie.bench.records import read_records
from ngram_trie.store.files import PROJECT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="no Ray here: pip install -e '.[ray]'"),
]

LIVE = ["model.device=cpu", "dataset=rag", "dataset.limit=8", "measure.repeats=6", "method=ngram_trie"]


def of_ray() -> list[psutil.Process]:
    """Ray's daemons and workers."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "ray::" in line or "/ray/core/" in line or process.info["name"] in ("raylet", "gcs_server"):
            found.append(process)
    return found


def busy() -> list[psutil.Process]:
    return [process for process in of_ray() if " ".join(process.info["cmdline"]).startswith("ray::_run_job")]


def test_a_killed_worker_is_replaced_and_ray_leaves_nothing(tmp_path: Path) -> None:
    assert not of_ray(), "another Ray runs on this machine"
    command = [sys.executable, "-m", "scripts.run", "-m", "hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"]
    command += [*LIVE, "shard=0/3,1/3,2/3", f"output={tmp_path / 'dealt'}", f"hydra.sweep.dir={tmp_path / 'hydra'}"]
    log = (tmp_path / "log").open("w+")
    sweep = subprocess.Popen(command, cwd=PROJECT, stdout=log, stderr=log)

    def written() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.glob("dealt/shard-*/records.jsonl")}

    wait_for(lambda: sweep.poll() is not None or any(b"\n" in text for text in written().values()), "no job runs", 300)
    wait_for(busy, f"no worker is at work: {(tmp_path / 'log').read_text()}", 10)
    before = written()
    busy()[0].kill()
    assert sweep.wait(600) == 0, (tmp_path / "log").read_text()
    wait_for(lambda: not of_ray(), f"Ray is still there: {of_ray()}", 30)
    assert len(shards.found(tmp_path / "dealt")) == 3
    shards.join(tmp_path / "dealt")
    for path, kept in before.items():
        assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    whole = [sys.executable, "-m", "scripts.run", *LIVE, f"output={tmp_path / 'whole'}"]
    assert subprocess.run(whole, cwd=PROJECT, check=False).returncode == 0
    one, other = (
        [(each.key, each.output_ids, each.accept_lengths) for each in read_records(tmp_path / name / "records.jsonl")]
        for name in ("whole", "dealt")
    )
    assert one == other
    kept = sum(text.count(b"\n") for text in before.values())
    print(f"Ray: {len(one)} answers in 3 jobs on 2 workers; {kept} were there when a worker was killed")
