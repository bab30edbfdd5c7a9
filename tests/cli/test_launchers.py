"""Sweeps through Hydra's launchers: each job its own folder, the report gathers them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ngram_trie.bench.traces import Trace
from ngram_trie.prompt import Prompt
from ngram_trie.report.collect import collect
from ngram_trie.store.files import PROJECT


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers that copy from their prompts: the longer the window, the longer the copies that are drafted."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("traces") / "made.jsonl"
    lines = []
    for number in range(4):
        prompt = rng.permutation(200)
        answer = [*prompt[20:60].tolist(), *prompt[100:130].tolist()]
        about = Prompt(prompt, {}, "copying" if number % 2 else "more", f"q{number}")
        lines.append(Trace("made", about, answer).to_json())
    path.write_text("\n".join(lines) + "\n")
    return path


def sweep(traces: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.run", "-m", "engine=replay", f"engine.traces={traces}"]
    command += ["engine.num_jobs=1", "method=ngram_trie", "method.num_draft=32", "method.n=4,8"]
    command += [f"output='{folder}/n${{method.n}}'", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
        ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"),
    ],
    ids=["joblib", "submitit_local"],
)
def test_jobs_write_their_own_shards_and_the_report_gathers_them(
    traces: Path, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    shards = tmp_path / "shards"
    done = sweep(traces, shards, *launcher, f"hydra.sweep.dir={tmp_path / 'hydra'}")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in shards.iterdir()) == ["n4", "n8"]
    collect(shards)
    table = pd.read_csv(shards / "table.csv")
    assert table.columns[-1] == "n"
    assert len(table) == 2 * 3  # two categories and all of them
    by_cell = table[table.dataset == "all"].set_index("n").accept_length
    assert by_cell[8] > by_cell[4]
    assert (shards / "accept_length.png").exists()


@pytest.mark.slow
def test_configurations_compose_with_the_next_hydra(tmp_path: Path) -> None:
    install = ["pip", "install", "--quiet", "--pre", "--target", str(tmp_path), "hydra-core>=1.4.0.dev1,<1.5"]
    if subprocess.run([sys.executable, "-m", *install], capture_output=True, check=False).returncode:
        pytest.skip("no release candidate of Hydra 1.4 can be had")
    code = "import hydra; assert hydra.__version__.startswith('1.4'); from scripts.run import cli; "
    code += "from ngram_trie.cli.main import start; start(cli)"
    command = [sys.executable, "-c", code, "--cfg", "job", "experiment=table1_small", "shard=0/2"]
    paths = os.pathsep.join([str(tmp_path), str(PROJECT)])
    one, other = (
        subprocess.run(each, env=os.environ | more, cwd=PROJECT, capture_output=True, text=True, check=False)
        for each, more in ((command, {"PYTHONPATH": paths}), ([sys.executable, "-m", "scripts.run", *command[3:]], {}))
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == other.stdout and "shard: 0/2" in one.stdout


def test_what_is_no_sweep_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no runs"):
        collect(tmp_path)
