"""Table 1's experiment with every method that the project has, on the tiny model and shipped parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_trie.baselines.arctic_suffix import is_installed
from ngram_trie.bench import config as configuration
from ngram_trie.bench import metrics
from ngram_trie.bench.records import PromptRecord, read_records
from ngram_trie.cli.app import invoke
from ngram_trie.cli.overrides import composed
from scripts import build_datastore, build_ngram_tables
from scripts.run import measure

TASKS = ("summarization", "rag")
TABLES = ("unigram", "bigram", "extended", "mixed", "mixed_rows")
SMALL = [
    "experiment=table1", "model.device=cpu", "~datasets.open_qa", "~datasets.attributed_qa",
    *(f"datasets.{task}.limit=1" for task in TASKS),
]  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A small datastore and small tables, and the overrides that say where they are."""
    folder = tmp_path_factory.mktemp("parts")
    invoke(build_datastore.main, ["--tokens", "20000", "--output", str(folder / "datastore")])
    invoke(build_ngram_tables.main, ["tiny", "--k", "10", "--w", "3", "--output", str(folder / "tables")])
    return [
        *(f"methods.{name}.datastore={folder / 'datastore'}" for name in ("rest", "sam_static")),
        *(f"methods.ngrammys_{name}.tables={folder / 'tables'}" for name in TABLES),
        "methods.ngrammys_mixed.w=3",
        "methods.ngrammys_mixed_rows.w=3",
        f"methods.blend_bigram.tables={folder / 'tables'}",
    ]


def run(*overrides: str) -> list[PromptRecord]:
    folder = measure(composed(overrides))
    return list(read_records(folder / "records.jsonl"))


@pytest.mark.slow
def test_every_method_drafts_and_says_what_vanilla_says(parts: list[str], tmp_path: Path) -> None:
    records = run(*SMALL, *parts, "measure.max_new_tokens=40", f"output={tmp_path}")
    methods = set(configuration.named(composed(SMALL).plain, "method"))
    methods -= set() if is_installed() else {"suffix_arctic"}
    vanillas = {"vanilla", "space_vanilla", "ngrammys_mixed_rows_vanilla"}
    assert {r.method for r in records} == methods | vanillas
    assert len(records) == len(TASKS) * len(methods | vanillas)
    assert not any(r.failure for r in records)
    assert {r.method for r in records if r.lossless is None} == vanillas
    assert all(r.lossless.verdict == "identical" for r in records if r.lossless)
    most = {"lookahead_published": 56}
    assert all(max(r.tree_sizes) <= most.get(r.method, 8) for r in records if r.kind == "drafter")
    frame = metrics.to_frame(records)
    length = {method: metrics.accept_length(part) for method, part in frame.groupby("method")}
    assert {method for method, value in length.items() if value == 1} == vanillas | {"hf_generate"}
    assert min(length["sps"], length["medusa"], length["space"]) > 1.8 and length["hydra"] > length["medusa"]
    table = (tmp_path / "table.md").read_text()
    assert "Compared with a vanilla of their own: " in table and "space over space_vanilla" in table
    assert "ngrammys_mixed_rows over ngrammys_mixed_rows_vanilla" in table
