"""An adaptive length beside fixed ones: the numbers by hand, and the page that is drawn of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.records import record, write_records

from ngram_trie.decoding import PhaseSeconds
from ngram_trie.report.run_folder import RunFolder
from scripts.studies import draft_length

#: Seconds of decoding four tokens.
SECONDS = {"vanilla": 4.0, "pld": 1.6, "pld_4": 2.0, "pld_16": 3.2}


def test_the_adaptive_length_is_compared_with_each_fixed_one(tmp_path: Path) -> None:
    records = [
        record(method, f"rag-{number}", (2, 2), PhaseSeconds(1 + seconds, 1.0, verify=seconds), tree_sizes=[nodes] * 2)
        for number in range(3)
        for (method, seconds), nodes in zip(SECONDS.items(), (0, 5, 4, 16), strict=True)
    ]
    run = RunFolder(write_records(tmp_path, records, {}))
    frame = draft_length.lengths(run)
    assert list(frame["size"].unique()) == ["auto", "4", "16"]
    fixed = frame[frame.dataset == "all"].set_index("size")
    assert fixed.speedup.tolist() == pytest.approx([2.5, 2.0, 1.25])
    assert fixed.auto_over_it.tolist() == pytest.approx([float("nan"), 1.25, 2.0], nan_ok=True)
    assert fixed.nodes.tolist() == [5, 4, 16]
    draft_length.main(tmp_path, tmp_path / "page")
    assert {file.name for file in (tmp_path / "page").iterdir()} == {"draft_length.csv", "draft_length.png"}
