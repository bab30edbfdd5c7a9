"""The constants of budget=auto, and the tables of several budgets side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ngram_trie import methods
from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench import config as configuration
from ngram_trie.bench.records import read_records
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.cli.commands import measure
from ngram_trie.cli.overrides import composed
from ngram_trie.methods import ConfigError
from ngram_trie.prompt import Prompt
from ngram_trie.report import budgets, derive
from scripts.studies import fit_budgets

#: The answers to odd questions copy four tokens of the prompt again and again; those to even ones copy all of it.
TEXT = list(range(10, 40))
ODD = [10, 11, 12, 13, 99] * 6
EVEN = TEXT
METHODS = ["+method@methods.suffix=suffix", "+method@methods.pld=pld"]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    path = tmp_path / "traces.jsonl"
    made = [
        Trace("toy", Prompt(np.array([*TEXT, 10]), {}, "rag", str(number)), ODD[1:] if number % 2 else EVEN[1:])
        for number in range(6)
    ]
    path.write_text("".join(trace.to_json() + "\n" for trace in made))
    return path


def settings(traces: Path, *more: str) -> list[str]:
    replay = ["engine=replay", f"engine.traces={traces}", "engine.num_jobs=1", "cost.q0=0", "cost.price=0.1"]
    return [*METHODS, *replay, *more]


def test_constants_come_from_odd_questions_alone(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptLookup, "scores_nodes", False)  # so that it gets a fixed number of nodes
    config = composed(settings(traces))
    best, tried, manifest = fit_budgets.fit(config)
    assert best["pld"] == {"num_nodes": 4} and set(best["suffix"]) == {"power", "discount", "caution"}
    assert len(tried[tried.method == "pld"]) == len(fit_budgets.NUM_NODES)
    assert len(tried[tried.method == "suffix"]) == sum(map(len, fit_budgets.TRIED.values()))
    assert manifest.config["engine"]["parity"] == "odd"
    speeds = tried.groupby("method").predicted_speedup.max()
    # By hand, of prompt lookup: an odd answer is 29 tokens, of which prefill gives the first.
    fixed = tried[(tried.method == "pld") & (tried.num_nodes == 4)].iloc[0]
    (odd, *_) = (trace for trace in read_traces(traces) if int(trace.prompt.question_id) % 2)
    drafter = methods.build(composed([*settings(traces), "methods.pld.num_draft=4"]).methods.pld, "pld")
    result = replay(drafter, odd)
    seconds = sum(1 + 0.1 * nodes for nodes in result.tree_sizes) * 20
    prefill = 0.05 * len(odd.prompt.ids)
    assert fixed.predicted_speedup == pytest.approx((20 * sum(result.accept_lengths) + prefill) / (seconds + prefill))
    assert speeds["pld"] == pytest.approx(fixed.predicted_speedup)


def test_what_was_fitted_is_what_auto_drafts(traces: Path, tmp_path: Path) -> None:
    shown = fit_budgets.write(composed(settings(traces)), tmp_path / "fit")
    assert "suffix" in shown and "predicted_speedup" in shown
    constants = tmp_path / "fit" / "constants.json"
    assert set(json.loads(constants.read_text())["methods"]) == {"suffix", "pld"}
    # Another method's are added; other costs are refused.
    fit_budgets.write(composed(settings(traces, "~methods.suffix")), tmp_path / "fit")
    assert set(json.loads(constants.read_text())["methods"]) == {"suffix", "pld"}
    with pytest.raises(ConfigError, match="chosen under other costs"):
        fit_budgets.write(composed(settings(traces, "cost.q0=8")), tmp_path / "fit")
    auto = ["budget=auto", f"budget.constants={constants}", f"output={tmp_path / 'auto'}", "engine.parity=odd"]
    folder = measure(composed(settings(traces, *auto)))
    found = pd.read_csv(folder / "table.csv").set_index(["method", "dataset"])
    tried = pd.read_csv(tmp_path / "fit" / "tried.csv")
    for method in ("suffix", "pld"):
        best = tried[tried.method == method].predicted_speedup.max() if method in set(tried.method) else None
        if best:
            assert found.loc[(method, "all"), "predicted_speedup"] == pytest.approx(best, rel=1e-3)


def test_a_run_is_told_again_by_the_curve_that_it_keeps(traces: Path, tmp_path: Path) -> None:
    """The curve may be measured anew; the run's own copy still gives the steps of its records."""
    fit_budgets.write(composed(settings(traces)), tmp_path / "fit")
    auto = ["budget=auto", f"budget.constants={tmp_path / 'fit' / 'constants.json'}", f"output={tmp_path / 'run'}"]
    folder = measure(composed(settings(traces, *auto)))
    config = composed(settings(traces, *auto))
    configuration.apply_budget(config)
    config.methods.suffix.budget.cost = {"_target_": "ngram_trie.bench.cost.CostCurve.read", "folder": str(folder)}
    drafter = methods.build(config.methods.suffix, "suffix")
    recorded = {
        record.key.item: record for record in read_records(folder / "records.jsonl") if record.method == "suffix"
    }
    for trace in read_traces(traces):
        assert replay(drafter, trace).tree_sizes == recorded[trace.key].tree_sizes


def test_budgets_stand_side_by_side(traces: Path, tmp_path: Path) -> None:
    for name, budget in [("published", ["budget=published"]), ("equal4", ["budget=equal", "budget.num_nodes=4"])]:
        measure(composed(settings(traces, *budget, f"output={tmp_path / 'runs' / name}")))
    assert list(budgets.found(tmp_path / "runs")) == ["published", "4 nodes"]
    text = derive.gather(tmp_path / "runs")
    assert "published" in text and "4 nodes" in text
    frame = pd.read_csv(tmp_path / "runs" / "table.csv")
    assert set(frame.budget) == {"published", "4 nodes"} and {"suffix", "pld"} <= set(frame.method)
    again = ["budget=equal", "budget.num_nodes=4", f"output={tmp_path / 'runs' / 'again'}", "engine.parity=odd"]
    measure(composed(settings(traces, *again)))
    assert budgets.found(tmp_path / "runs") == {}  # which of the two is meant cannot be known


@pytest.mark.slow
def test_methods_that_need_the_model_are_fitted_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_budgets, "TRIED", {"power": (1.0, 4.0), "discount": (1.0,), "caution": (1.25,)})
    monkeypatch.setattr(fit_budgets, "NUM_NODES", (2, 8))
    methods = ["+method@methods.token_recycling=token_recycling", "+method@methods.medusa=medusa"]
    short = ["dataset=rag", "+dataset.limit=1", "measure.repeats=1", "measure.max_new_tokens=24", "cost=measured"]
    best, tried, manifest = fit_budgets.fit(composed([*methods, *short]))
    assert set(best["token_recycling"]) == {"power", "discount", "caution"} and set(best["medusa"]) == {"num_nodes"}
    assert tried.predicted_speedup.notna().all() and manifest.config["dataset"]["parity"] == "odd"
