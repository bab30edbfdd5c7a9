"""One table from several runs: what is measured apart keeps the vanilla that took turns with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from support.teacher_forced import MANIFEST

from ngram_trie.bench.measure import measure
from ngram_trie.bench.parts import Part, join
from ngram_trie.bench.records import RecordWriter, RunManifest, read_records, seal
from ngram_trie.drafters import NgramTrieDrafter, NoDraft
from ngram_trie.report import derive
from tests.bench.test_live import make_run, prompt

CONFIG = {"engine": {"name": "live"}, "methods": {"vanilla": {}, "pld": {}, "late": {}}}


def part(folder: Path, name: str, prompts: int, environment: dict[str, str] | None = None) -> Part:
    """A finished run of one method beside vanilla."""
    methods = {"vanilla": NoDraft(), name: NgramTrieDrafter(num_draft=8)}
    run = make_run(methods, repeats=1, prompts=[prompt(f"q{number}", 20 + number) for number in range(prompts)])
    run.manifest = dataclasses.replace(
        MANIFEST, run=name, config=CONFIG, num_records=2 * prompts, environment=environment or {}
    )
    folder.mkdir()
    run.manifest.write(folder / "manifest.json")
    with RecordWriter(folder / "records.jsonl", name) as writer:
        measure(run, writer)
    seal(folder)
    return Part(folder)


def test_parts_become_one_table_that_is_finished_with_the_last(tmp_path: Path) -> None:
    first = part(tmp_path / "first", "pld", 3, {"room: toy": "1 of 3 prompts", "session 0": "a date"})
    later, table = Part(tmp_path / "later", 1), tmp_path / "table"
    assert not later.is_begun
    assert join(table, [first, later], CONFIG, {"not run: late": "it comes after this table"}, whole=False) == 6
    derive.write(table)
    page = (table / "table.md").read_text()
    assert "Not run: late: it comes after this table" in page and "Room: toy: 1 of 3 prompts" in page
    assert "Parts: first\n" in page.replace("  \n", "\n")
    assert "Interim" in page and not (table / "SHA256SUMS").exists()

    part(later.folder, "late", 3)
    other = dataclasses.replace(RunManifest.read(later.folder / "manifest.json"), device="another card", dirty=True)
    other.write(later.folder / "manifest.json")
    seal(later.folder)
    assert join(table, [first, later], CONFIG, {}, whole=True) == 12
    derive.write(table)
    page = (table / "table.md").read_text()
    assert "; later on another card, changed code" in page and RunManifest.read(table / "manifest.json").dirty
    assert "Not run" not in page and "Interim" not in page and (table / "SHA256SUMS").exists()
    records = list(read_records(table / "records.jsonl"))
    assert len({record.key for record in records}) == 12
    assert {record.run for record in records} == {RunManifest.read(table / "manifest.json").run}
    assert {(record.method, record.session) for record in records} == {
        ("vanilla", 0), ("pld", 0), ("vanilla", 1), ("late", 1),
    }  # fmt: skip
    rows = pd.read_csv(table / "table.csv").query("protocol == 'corrected' and dataset == 'toy'").set_index("method")
    lengths = pd.read_csv(table / "accept_lengths.csv")
    assert set(lengths.method) == {"vanilla", "pld", "late"}
    own = {method: [r.seconds.total for r in records if r.method == method and r.session == 1] for method in rows.index}
    # the same tokens: the ratio is that of the seconds of this session's vanilla
    assert abs(rows.speedup["late"] - sum(own["vanilla"]) / sum(own["late"])) < 1e-3


def test_a_run_in_one_piece_is_not_replaced_by_parts(tmp_path: Path) -> None:
    whole, first = part(tmp_path / "whole", "pld", 2), part(tmp_path / "first", "pld", 2)
    before = {file.name: file.read_bytes() for file in whole.folder.iterdir()}
    with pytest.raises(ValueError, match="measured in one piece"):
        join(whole.folder, [first], CONFIG, {}, whole=True)
    assert before == {file.name: file.read_bytes() for file in whole.folder.iterdir()}


def test_a_table_of_before_the_note_was_made_goes_on(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    first = part(tmp_path / "parts" / "first", "pld", 2)
    join(tmp_path, [first], CONFIG, {}, whole=False)
    manifest = RunManifest.read(tmp_path / "manifest.json")
    dataclasses.replace(manifest, environment={}).write(tmp_path / "manifest.json")
    assert join(tmp_path, [first], CONFIG, {}, whole=True) == 4
