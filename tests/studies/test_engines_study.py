"""The study of engines' drafters beside EAGLE, over made-up lines of SpecDecode-Bench's form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ngram_trie.bench.records import PromptRecord, RunManifest
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.cli.overrides import composed
from ngram_trie.methods import make_method
from ngram_trie.tree import DraftTree
from scripts import run
from scripts.studies import engines


def copies(count: int) -> list[int]:
    """A text that repeats nine tokens."""
    return [100 + place % 9 for place in range(count)]


def test_the_larger_expectation_is_chosen() -> None:
    probs = np.array([1.0, 0.5, 0.25, 0.5, 0.25])  # two siblings with a child each: 1.5 accepted nodes
    draft, nothing = DraftTree(np.array([7, 1, 2, 3, 4]), np.array([-1, 0, 0, 1, 2]), probs=probs), probs[:1]
    assert engines.is_better(draft, 1.5) and not engines.is_better(draft, 1.51)
    # 2.5 tokens a step against 3.25 in a step and three tenths of one
    assert engines.is_better(draft, 2.25, trained_cost=0.3) and not engines.is_better(draft, 2.26, trained_cost=0.3)
    assert engines.is_better(DraftTree.chain(7, [], nothing), 0.0)  # nothing against nothing: no need to ask


def test_the_rate_follows_what_was_accepted() -> None:
    rate = engines.TrainedRate(mean=2.0, weight=0.5)
    rate.update(4)
    rate.update(0)
    assert rate.mean == 1.5


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets of four questions; EAGLE has two tokens accepted everywhere; one answer of its own is longer."""
    folder = tmp_path_factory.mktemp("copy") / "data" / "llama"
    folder.mkdir(parents=True)
    for name in ("cnn", "instructcoder"):
        rows = []
        for number in range(4):
            prompt, answer = [1, 2, *copies(20)], copies(30 + number)
            eagle = [1, *[3] * (len(answer) - 1 + (number == 3))]
            ngram = [1] * len(answer)
            rows.append({
                "id": str(number), "prompt_token_ids": prompt, "generated_token_ids": answer,
                "acc_eagle": {"acc_len": eagle}, "acc_ngram": {"acc_len": ngram},
            })  # fmt: skip
        (folder / f"combined_{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder.parent.parent


def record_of(trace: Trace, method: str, **fields: object) -> PromptRecord:
    drafter = make_method(method, fields)
    about = {"state": drafter.traits.state, "kind": "drafter", "repeat": 0, "model": "toy"}
    return PromptRecord.of(trace.prompt, replay(drafter, trace), run="", method=method, **about)


def test_the_recorders_steps_and_drafts_by_hand(recorded: Path) -> None:
    curve, trace = engines.authors_curve(), read_traces(recorded)[0]
    step = engines.STEP + engines.OUTSIDE + 4 * engines.BATCHED + 1000 * engines.CACHED
    assert curve.step([3], [1000])[0] == pytest.approx(step)
    record = record_of(trace, "recorded_eagle", num_draft=2)
    assert record.accept_lengths == [3] * 9 + [2] and record.num_prompt_tokens == 22
    cached = sum(22 + 3 * number for number in range(10))
    whole = 10 * (engines.EAGLE + 3 * engines.EAGLE_BATCHED) + cached * engines.EAGLE_CACHED
    assert engines.draft_seconds(record) == pytest.approx(whole)
    assert engines.draft_seconds(record, [True] + [False] * 9) < whole / 9
    assert engines.draft_seconds(record_of(trace, "pld")) == 0


def test_agreement_counts_positions(recorded: Path) -> None:
    """The recording says that nothing is ever accepted, and vLLM's drafter copies: equal where there is no room."""
    table = engines.agreement(read_traces(recorded)).set_index("dataset")
    assert table.loc["cnn"].answers == 4 and table.loc["all"].positions == 2 * (29 + 30 + 31 + 32)
    assert table.loc["all"].within_the_answer == 8 + equal_before_a_match(recorded)


def equal_before_a_match(recorded: Path) -> int:
    """Positions before the last one at which fewer than three tokens match."""
    count = 0
    for trace in read_traces(recorded):
        text = [*trace.prompt.ids.tolist(), *trace.output_ids]
        for end in range(len(trace.prompt.ids) + 1, len(text) - 1):
            count += not any(text[at : at + 3] == text[end - 3 : end] for at in range(end - 3))
    return count


def test_ways_to_share_the_steps(recorded: Path) -> None:
    table = engines.beside_table(read_traces(recorded)).query("half == 'both'").set_index("way")
    assert set(table.index) == set(engines.WAYS) and (table.answers == 6).all()  # two belong to other answers
    assert table.loc["EAGLE alone", "copied"] == 0 and table.loc["EAGLE alone", "all"] == pytest.approx(2.9, abs=0.1)
    chosen, longest = (
        table.loc["blend, if expected to emit more"],
        table.loc["whichever emits more, of blend and EAGLE"],
    )
    assert table.loc["EAGLE alone", "all"] < chosen["all"] <= longest["all"] and chosen.copied > 0.3
    assert chosen.x_all > table.loc["EAGLE alone", "x_all"]


def test_the_tables_of_runs(recorded: Path, tmp_path: Path) -> None:
    for name, budget in (("equal32", "budget=equal"), ("published", "budget=published")):
        methods = [f"+method@methods.{method}={method}" for method in ("pld", "blend", "recorded_eagle")]
        where = ["engine=replay", f"engine.traces={recorded}", "engine.num_jobs=1", f"output={tmp_path / name}"]
        run.measure(composed([*methods, *where, budget]))
    notes = RunManifest.read(tmp_path / "equal32" / "manifest.json").environment
    assert notes["recorded: recorded_eagle"].startswith("2 of 8 answers have another length than the recording")
    engines.main(recorded, tmp_path, tmp_path / "tables")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        "beside.csv", "drafters.csv", "manifest.json", "pairwise.csv", "vllm_ngram.csv",
    }  # fmt: skip
    table = pd.read_csv(tmp_path / "tables" / "drafters.csv").set_index(["half", "budget", "method"])
    assert len(table) == 3 * 2 * 3 and set(table.group) == {"cold", "trained"}
    even, both = table.loc[("even", "32 nodes", "pld")], table.loc[("both", "32 nodes", "pld")]
    assert even["cnn"] == even["instructcoder"] == even["all"] != both["all"]
    assert table.loc[("even", "published", "recorded_eagle"), "nodes"] == 20
    pairs = pd.read_csv(tmp_path / "tables" / "pairwise.csv")
    assert {*pairs.a, *pairs.b} == {"pld", "blend", "recorded_eagle"} and set(pairs.measure) == {"accept_length"}
