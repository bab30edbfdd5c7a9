"""What a sweep leaves behind: its table, and nothing of one that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.cli import sweep
from ngram_trie.methods import ConfigError
from ngram_trie.report.blocks import JSON
from ngram_trie.store.files import one_writer


def test_runs_of_a_sweep_have_folders_of_their_own_and_shards_have_one() -> None:
    with pytest.raises(ConfigError, match=r"^output=mine: .* as in 'output=mine/\$\{method.name\}'$"):
        sweep.check_output(["output=mine", "method=pld,blend"])
    for line in ("output=mine shard=0/2,1/2", "output=a,b method=pld", "output=mine/${method.name} method=pld,blend"):
        sweep.check_output(line.split())


def test_the_next_sweep_clears_away_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "PROJECT", tmp_path)
    folders = {name: tmp_path / "results" / "local" / "sweeps" / name for name in ("killed", "finished", "running")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        (folder / "cells.jsonl").write_text("[]\n")
    (folders["finished"] / JSON).write_text("{}")
    with one_writer(folders["running"]), sweep.sweeping(["method.n=8,9"]):
        pass  # measures nothing, and so leaves nothing itself
    left = {folder.name for folder in folders["killed"].parent.iterdir()}
    assert left == {"finished", "running"}
