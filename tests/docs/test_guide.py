"""From prompts to a drafter (docs/library.md): the commands run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ngram_trie.store.files import PROJECT

TEXT = (PROJECT / "docs" / "library.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    unlabelled = re.sub(r"^```\w+\n.*?^```$", "", TEXT, flags=re.M | re.S)
    blocks = re.findall(r"^```\n(.*?)^```$", unlabelled, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_every_command_from_prompts_to_a_drafter_runs(tmp_path: Path) -> None:
    (prompts,) = re.findall(r"^`prompts.jsonl`:\n```json\n(.*?)^```$", TEXT, re.M | re.S)
    (tmp_path / "prompts.jsonl").write_text(prompts, encoding="utf-8")
    (tmp_path / "data").symlink_to(PROJECT / "data")
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    assert len(commands()) == 4
    for command in commands():
        words = shlex.split(command)
        assert words[0] == "ngram-trie"
        short = ["--max-new-tokens", "8"] if words[1] == "run" else []
        done = subprocess.run(
            [sys.executable, "-m", "ngram_trie", *words[1:], *short],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    run = tmp_path / "results" / "local" / "mine"
    methods = {"vanilla", "ngram_trie", "pld", "suffix", "blend"}
    assert set(pd.read_csv(run / "table.csv").method) == methods
    assert {"report.html", "explorer.html", "table.md", "pairwise.csv"} <= {path.name for path in run.iterdir()}
