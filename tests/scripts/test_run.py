"""The command line, end to end, on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.runs import run_script

from ngram_trie.bench import measure as loop
from ngram_trie.bench.records import PromptRecord, RecordWriter, read_records
from ngram_trie.bench.traces import read_traces
from ngram_trie.cli.app import invoke
from ngram_trie.cli.commands import derive
from ngram_trie.cli.overrides import composed
from ngram_trie.methods import ConfigError
from ngram_trie.report import derive as derived
from ngram_trie.report import table1
from ngram_trie.report.run_folder import RunFolder
from scripts.run import measure

SMALL = ["model.device=cpu", "dataset=rag", "dataset.limit=2", "measure.repeats=1", "method.num_draft=8"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    done = run_script(*SMALL, "measure.max_new_tokens=40", "method=ngram_trie", f"output={folder}")
    assert done.returncode == 0, done.stderr
    assert "ngram_trie" in done.stdout and "vanilla" in done.stdout
    return folder


@pytest.mark.slow
def test_one_cell_writes_everything(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names >= {"records.jsonl", "manifest.json", "table.csv", "table.md", "phases.csv", "figure.png"}
    records = list(read_records(finished / "records.jsonl"))
    assert [(r.method, r.question_id) for r in records[:2]] == [("vanilla", "rag-001"), ("ngram_trie", "rag-001")]
    assert len(records) == 4
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["run"] == records[0].run
    assert manifest["config"]["method"]["num_draft"] == 8
    assert "threads" in manifest["device"]
    table = pd.read_csv(finished / "table.csv")
    assert list(table.columns)[: len(table1.ABOUT)] == table1.ABOUT
    assert set(table.protocol) == {"corrected", "released"}
    vanilla = table[table.method == "vanilla"]
    assert vanilla[(vanilla.protocol == "corrected") | (vanilla.dataset != "all")].speedup.eq(1).all()


@pytest.mark.slow
def test_an_interrupted_run_leaves_whole_prompts_and_their_traces(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loop.measure

    def interrupted(engine: loop.Engine, writer: RecordWriter, interim: object) -> None:
        write = writer.write

        def two(record: PromptRecord) -> None:
            if len(writer.records) == 2:
                raise KeyboardInterrupt
            write(record)

        monkeypatch.setattr(writer, "write", two)
        whole(engine, writer)

    monkeypatch.setattr(loop, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(composed([*SMALL, "measure.max_new_tokens=3", "method=pld", f"output={tmp_path}"]))
    answered = {(record.method, record.question_id) for record in read_records(tmp_path / "records.jsonl")}
    assert answered == {("vanilla", "rag-001"), ("pld", "rag-001")}
    assert [trace.prompt.question_id for trace in read_traces(tmp_path / "traces.jsonl")] == ["rag-001"]


def test_a_long_run_shows_what_is_there_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "INTERIM_S", 0.0)
    shown: list[str] = []
    write = derived.write

    def seen(run: RunFolder, *others: Any) -> str:
        text = write(run, *others)
        shown.append((tmp_path / "table.md").read_text())
        return text

    monkeypatch.setattr(derived, "write", seen)
    measure(composed([*SMALL, "measure.max_new_tokens=3", "method=pld", f"output={tmp_path}"]))
    assert len(shown) == 2 and "Interim: 2 of 4 answers" in shown[0] and "Interim" not in shown[-1]
    assert "interim table: " in capsys.readouterr().err


@pytest.mark.slow
def test_report_derives_the_same_table_again(finished: Path) -> None:
    before = (finished / "table.csv").read_bytes()
    (finished / "table.csv").unlink()
    invoke(derive, [str(finished)])
    assert (finished / "table.csv").read_bytes() == before
    with pytest.raises(SystemExit, match=r"^error: "):
        invoke(derive, ["nowhere"])


def test_a_run_that_answers_no_prompt_does_not_end_well(tmp_path: Path) -> None:
    short = ["dataset=rag", "dataset.limit=1", "method=pld", "model.context_limit=8", "measure.repeats=1"]
    asked = composed([*short, f"output={tmp_path / 'run'}"])
    with pytest.raises(ConfigError, match="no prompt was answered: prompt_too_long: "):
        measure(asked)
