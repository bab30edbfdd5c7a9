"""The script behind N-Grammys' table and figures: its parts by hand, and all of it at the smallest size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import SMALL

from ngram_trie.bench.config import resolve
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.commands import measure
from ngram_trie.cli.overrides import composed
from ngram_trie.prompt import Prompt
from ngram_trie.report.plots import share_figure
from ngram_trie.store.files import PROJECT
from scripts import build_ngram_tables
from scripts.studies import ngrammys as room

RESULTS = PROJECT / "results" / "ngrammys"
#: The cells (k, w) that were fastest on the odd questions.
BEST = {"chat": (1, 12), "code": (1, 10), "math": (5, 4)}


def trace(output: list[int]) -> Trace:
    return Trace("tiny", Prompt(np.array([1, 2, 2, 1]), dataset="chat", question_id="1"), output, 50, "eos")


def test_which_row_was_accepted(tmp_path: Path) -> None:
    SMALL.write(tmp_path)
    drafter = room.Observed(tables=str(tmp_path), k=2, w=2)
    # After [1 2 2 1]: the first token, 0, comes from prefill. 0 was not there before, so both rows are the model's: 1 2
    # and 2 3, of which the second is right once. Then 2 2 1 0 2 3: see below.
    frame = room.allocation([trace([0, 2, 2, 1, 0, 2, 0])], drafter)
    assert drafter.steps[0] == (0, 2, 1)
    assert set(frame.measure) == set(room.MEASURES) and set(frame.source) <= {"context", "model"}
    filled = frame[frame.measure == room.MEASURES[2]]
    assert filled.share.sum() == pytest.approx(1)
    assert frame[frame.measure == room.MEASURES[0]].share.sum() == pytest.approx(
        frame[frame.measure == room.MEASURES[1]].share.sum()
    )
    assert share_figure(frame).axes


def test_committed_runs_are_those_of_the_experiments() -> None:
    recorded = "engine=replay engine.traces=spec_bench.jsonl engine.parity=even"
    recorded += " engine.categories=[math_reasoning,coding,writing,summarization,rag]"
    tables = "tables=data/ngram_tables/smollm2-135m"
    repeated = "".join(f" methods.mixed_q{q}.extend=bigram methods.mixed_q{q}.{tables}" for q in (1, 2, 3))
    live = ("method", "methods", "datasets", "grid")  # the other parts have had more fields since
    cells = "".join(
        f" +method@methods.mixed_{k}_{w}=ngrammys_mixed methods.mixed_{k}_{w}.k={k} methods.mixed_{k}_{w}.w={w}"
        for k, w in BEST.values()
    )
    for run, line, parts in (
        ("tiny/rows", f"experiment=ngrammys_table1{cells}", live[1:]),
        ("tiny/figure3", "experiment=ngrammys", live),
        ("smollm2/figure5", f"experiment=ngrammys {recorded} grid.k=[1,5,10] method.extend=bigram method.{tables}", ()),
        ("smollm2/query", f"experiment=ngrammys_query {recorded}{repeated}", ()),
    ):
        then = json.loads((RESULTS / run / "manifest.json").read_text(encoding="utf-8"))["config"]
        now = resolve(composed(line.split()))
        for method in (*now["methods"].values(), *then["methods"].values()):
            del method["name"]  # then that of the file
        assert {name: now[name] for name in parts or now} == {name: then[name] for name in parts or now}, run


def test_table1_is_derived_again(tmp_path: Path) -> None:
    runs = {kind: RESULTS / "tiny" / kind for kind in ("rows", "tree")}
    room.table1(tmp_path, runs, BEST, list(BEST))
    for name in ("table.json", "table.md"):
        assert (tmp_path / name).read_bytes() == (RESULTS / "tiny" / "table1" / name).read_bytes()


@pytest.mark.slow
def test_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CALL_K": [1, 2], "CALL_W": [1, 2], "CALL_CONTEXTS": [20]}.items():
        monkeypatch.setattr(room, name, value)
    build_ngram_tables.main("tiny_general", tmp_path / "tables", k=10, w=3)
    only = ["~datasets.chat", "~datasets.code", "datasets.math.limit=1"]
    tables, grid = f"tables={tmp_path / 'tables'}", ["grid.k=[1,10]", "grid.w=[2,10]", "method.extend=bigram"]
    grid.append(f"method.{tables}")
    cells = [f"methods.{name}.{field}" for name in ("mixed_10_10", "mixed_repeated") for field in (tables, "w=10")]
    cells.append("methods.mixed_10_10.extend=bigram")

    def run(name: str, *overrides: str) -> pd.DataFrame:
        measure(composed([*overrides, f"output={tmp_path / name}"]))
        return pd.read_csv(tmp_path / name / "table.csv")

    run("figure3", "experiment=ngrammys", "engine.verify=rows", *only, *grid)
    monkeypatch.setattr(room, "best_cells", lambda folder: {"math": room.DEFAULT})
    room.main(tmp_path, [*only, *cells, "measure.repeats=1"])
    replayed = ["engine=replay", f"engine.traces={tmp_path / 'rows' / 'traces.jsonl'}"]
    room.main(tmp_path, [*replayed, *cells])
    for name in ("figure1", "figure4"):
        assert json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))["run"]
    for drawn in ("figure1/figure.png", "figure3/speedup.png", "figure4/figure.png"):
        assert (tmp_path / drawn).stat().st_size > 5000
    table = pd.read_csv(tmp_path / "table1" / "table.csv")
    assert set(table.lossless) <= {"1/1", "baseline"}
    by_method = table[table.dataset == "math"].set_index("method").accept_length
    assert by_method["mixed (k*, w*), rows"] == by_method["mixed (k*, w*), tree"] >= 1
    figure5 = run("figure5", "experiment=ngrammys", *replayed, *grid).set_index("method")
    accepted = figure5[figure5.dataset == "math"].accept_length
    assert len(accepted) == 4 and accepted["ngrammys_mixed[k=10,w=10]"] == by_method["mixed (10, 10), rows"]
