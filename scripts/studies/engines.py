"""Drafters of papers and engines on Llama-3.1-8B-Instruct's answers, beside EAGLE (make reproduce-engines).

The answers, and how many tokens vLLM's n-gram and EAGLE had accepted at every position, are from SpecDecode-Bench
(arXiv 2601.11580; github SpecDecode-Bench/simulator), which has no licence: a copy is measured, nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from ngram_trie.baselines.recorded import Recorded
from ngram_trie.bench import cost, metrics, pairwise
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.measures import ACCEPT_LENGTH
from ngram_trie.bench.metrics import ALL
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import PromptRecord
from ngram_trie.bench.replay import TraceTarget, replay
from ngram_trie.bench.traces import Trace, answers, trace_files
from ngram_trie.cli.app import run
from ngram_trie.decoding import verify_greedy
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.methods import make_method
from ngram_trie.prompt import Prompt, question_number
from ngram_trie.report.collect import budget_name
from ngram_trie.report.run_folder import RunFolder, save_csv
from ngram_trie.store import arrays as built
from ngram_trie.store.files import PROJECT, content_hash
from ngram_trie.tree import DraftTree, IntArray

#: Steps of an H100, of another network of that size (Vicuna-7B), as they were measured here.
HERE = PROJECT / "results" / "speed" / "vicuna-7b-h100" / "calibration"
#: In seconds, of Llama-3.1-8B in vLLM on an H100: a step, each batched and each cached token, what a step takes outside
#: the forward; and EAGLE's drafts (SpecDecode-Bench/simulator 2fdccbd, predictor.py).
STEP, BATCHED, CACHED, OUTSIDE = 5.88590713e-03, 2.10103129e-05, 3.92645679e-08, 1.20683946e-03
EAGLE, EAGLE_BATCHED, EAGLE_CACHED = 2.13526175e-03, 8.41429603e-07, 2.37768493e-09
#: How much of a plain step that is.
EAGLE_COST = EAGLE / (STEP + OUTSIDE)
#: Methods of pairwise.csv.
COMPARED = (
    "ngram_trie", "pld", "suffix", "blend", "suffix_warm", "blend_warm", "vllm_ngram_3_7", "trtllm_ngram_warm",
    "sglang_ngram_warm", "llamacpp_map_k4v", "llamacpp_cache", "recorded_eagle",
)  # fmt: skip
#: Drafted tokens of both, where they stand side by side.
NUM_DRAFT = 20


def authors_curve() -> CostCurve:
    """SpecDecode-Bench's fit, which is linear."""
    nodes, contexts = [0, 256], [0, 16384]
    seconds = [[STEP + OUTSIDE + BATCHED * (size + 1) + CACHED * cached for cached in contexts] for size in nodes]
    prefill = [STEP + OUTSIDE + BATCHED * length for length in contexts]
    return CostCurve("Llama-3.1-8B, H100, vLLM: SpecDecode-Bench's fit", nodes, contexts, seconds, contexts, prefill)


def draft_seconds(record: PromptRecord, drafts: Sequence[bool] | None = None) -> float:
    """What EAGLE's drafts of an answer took, by its recorders' fit; 0 of drafters that look up tokens.

    Args:
        drafts: the steps in which it drafted; all or none by the method's state.
    """
    if drafts is None:
        drafts = [record.state == "trained"] * len(record.accept_lengths)
    cached = record.num_prompt_tokens + np.concatenate([[0], np.cumsum(record.accept_lengths)])[:-1]
    each = EAGLE + EAGLE_CACHED * cached + EAGLE_BATCHED * (np.array(record.tree_sizes) + 1)
    return float(each[np.array(drafts, bool)].sum()) if len(drafts) else 0.0


def rows_of(
    records: Sequence[PromptRecord], drafting: Sequence[float]
) -> Iterator[tuple[str, NDArray[np.bool_], dict[str, Any]]]:
    """Of one method's answers to odd questions, on which choices were made, to even ones, which are reported, and to
    both: which answers, and a row of tokens a step emits, by data set and in all, drafted nodes, and predicted
    speedups: by data set and in all with the recorders' steps, and with the steps measured here.
    """
    frame = metrics.to_frame(records)
    curves = authors_curve(), CostCurve.read(HERE)
    theirs, ours = (cost.predict(records, curve).assign(drafting=list(drafting)) for curve in curves)
    is_odd = np.array([question_number(record.question_id) % 2 == 1 for record in records])
    for half, kept in (("odd", is_odd), ("even", ~is_odd), ("both", is_odd | True)):
        speeds = {f"x_{name}": cost.explain(part)["predicted_speedup"] for name, part in _parts(theirs[kept])}
        yield (
            half,
            kept,
            {
                **{name: metrics.accept_length(part) for name, part in _parts(frame[kept])},
                "nodes": metrics.draft_nodes(frame[kept]),
                **speeds,
                "x_here": cost.explain(ours[kept])["predicted_speedup"],
            },
        )


def _parts(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from frame.groupby("dataset")
    yield ALL, frame


def budgets_table(runs: Mapping[str, RunFolder]) -> pd.DataFrame:
    """One row for each budget, method and half: `rows_of`."""
    rows = []
    for budget, folder in runs.items():
        for method in dict.fromkeys(record.method for record in folder.records):
            own = [record for record in folder.records if record.method == method]
            about = {"budget": budget, "method": method, "group": metrics.group(metrics.to_frame(own))}
            drafting = [draft_seconds(record) for record in own]
            rows += [{"half": half, **about, **row} for half, _, row in rows_of(own, drafting)]
    return pd.DataFrame(rows)


def emitted_at_each(drafter: Drafter, trace: Trace) -> IntArray:
    """(n - 1,) tokens that a step behind each token of the answer but the last would emit, whatever was drafted
    before."""
    drafter.start(trace.prompt)
    target, emitted = TraceTarget(trace), []
    target.prefill(trace.prompt.ids)
    for token in trace.output_ids[:-1]:
        drafter.observe([token])
        tree = drafter.propose(target.max_draft)
        emitted.append(len(verify_greedy(tree, target.verify(tree).choices)))
        target.commit(0, [0])
    return np.array(emitted, np.int64)


def agreement(traces: Sequence[Trace]) -> pd.DataFrame:
    """vLLM's n-gram as recorded against `vllm_ngram`, by data set: at how many positions a step emits as many tokens,
    and at how many within the answer: behind its end the recording goes on with what the model said then."""
    drafter = make_method("vllm_ngram", {"min_ngram": 3, "max_ngram": 7, "num_draft": NUM_DRAFT})
    rows = []
    for trace in traces:
        mine, theirs = emitted_at_each(drafter, trace), np.array(trace.recorded["ngram"][1:])
        left = np.arange(len(mine), 0, -1)
        within = np.minimum(mine, left) == np.minimum(theirs, left)
        rows.append({
            "dataset": trace.prompt.dataset, "answers": 1, "positions": len(mine), "equal": (mine == theirs).sum(),
            "within_the_answer": within.sum(),
        })  # fmt: skip
    table = pd.DataFrame(rows).groupby("dataset").sum()
    table.loc[ALL] = table.sum()
    return table.assign(different=table.positions - table.within_the_answer).reset_index()


@dataclass
class TrainedRate:
    """How many of a trained drafter's tokens a step accepts: a running mean over the steps in which it drafted.

    Attributes:
        mean: what is expected before anything was seen, and then what was seen.
        weight: of each new step; on odd questions of recorded answers 0.02 to 0.1 give the same.
    """

    mean: float = 2.0
    weight: float = 0.05

    def update(self, num_accepted: int) -> None:
        """Take note of a step in which it drafted."""
        self.mean += self.weight * (num_accepted - self.mean)


def is_better(copies: DraftTree, trained_rate: float, trained_cost: float = 0.0) -> bool:
    """Whether the next step should verify `copies`, rather than ask the trained drafter: whichever is expected to emit
    more. Engines that run both ask the copies first, or from a length of match on; a draft with probabilities needs
    neither rule.

    Args:
        copies: a draft with probabilities, of the blend, say, whose drafting costs next to nothing. If they are right,
            as many nodes are accepted as they sum to.
        trained_rate: tokens of the trained drafter that a step accepts (`TrainedRate.mean`).
        trained_cost: what its drafting takes, in steps; 0 compares tokens alone, more compares tokens per second.
    """
    assert copies.probs is not None
    return bool((1 + copies.probs[1:].sum()) * (1 + trained_cost) >= 1 + trained_rate)


class Beside(Drafter):
    """Copies where `rule` says so, else what EAGLE had accepted.

    Attributes:
        asked: of each step whether EAGLE drafted.
    """

    traits = Traits(reads="recording")

    def __init__(self, copies: Drafter | None, rule: Rule) -> None:
        self.copies, self.rule = copies, rule
        self.trained, self.rate = Recorded(recording="eagle", num_draft=NUM_DRAFT, full=True), TrainedRate()
        self.asked: list[bool] = []

    def bind(self, target: TraceTarget) -> None:
        self.target = target
        self.trained.bind(target)

    def start(self, prompt: Prompt) -> None:
        super().start(prompt)
        self.rate, self.asked = TrainedRate(), []
        for drafter in filter(None, (self.copies, self.trained)):
            drafter.start(prompt)

    def observe(self, new_ids: Sequence[int]) -> None:
        super().observe(new_ids)
        if self.asked and self.asked[-1]:
            self.rate.update(len(new_ids) - 1)
        for drafter in filter(None, (self.copies, self.trained)):
            drafter.observe(new_ids)

    def propose(self, budget: int) -> DraftTree:
        copies = self.copies.propose(budget) if self.copies else DraftTree.root_only(self.root)
        self.asked.append(not self.rule(self, copies))
        return self.trained.propose(budget) if self.asked[-1] else copies

    def is_longer(self, copies: DraftTree) -> bool:
        """Whether it gets at least as many tokens accepted as EAGLE."""
        return len(verify_greedy(copies, self.target.verify(copies).choices)) - 1 >= self.trained.num_accepted()


Rule = Callable[[Beside, DraftTree], bool]


class Way(NamedTuple):
    """How copies and EAGLE share the steps: what drafts the copies, its settings, and when they are verified."""

    copies: str
    fields: Mapping[str, Any]
    rule: Rule


VLLM = {"min_ngram": 3, "max_ngram": 7, "num_draft": NUM_DRAFT}
SAM = {"num_draft": NUM_DRAFT, "alpha": None}
WAYS = {
    "EAGLE alone": Way("", {}, lambda beside, copies: False),
    "vLLM's n-gram first, EAGLE where it finds none": Way("vllm_ngram", VLLM, lambda beside, copies: len(copies) > 1),
    "longest match first, from 4 tokens on": Way("sam", SAM | {"min_match": 4}, lambda beside, copies: len(copies) > 1),
    "blend, if expected to emit more": Way(
        "blend", {"num_draft": NUM_DRAFT}, lambda beside, copies: is_better(copies, beside.rate.mean)
    ),
    "blend, if expected to emit more a second": Way(
        "blend", {"num_draft": NUM_DRAFT}, lambda beside, copies: is_better(copies, beside.rate.mean, EAGLE_COST)
    ),
    "whichever emits more, of vLLM's n-gram and EAGLE": Way("vllm_ngram", VLLM, Beside.is_longer),
    "whichever emits more, of blend and EAGLE": Way("blend", {"num_draft": NUM_DRAFT}, Beside.is_longer),
}  # fmt: skip


def beside_table(traces: Sequence[Trace]) -> pd.DataFrame:
    """One row for each way and half, over the answers that EAGLE's recording belongs to as well: `rows_of`, and the
    share of steps in which copies are verified."""
    rows = []
    same = [trace for trace in traces if len(trace.recorded["eagle"]) == len(trace.output_ids)]
    for name, way in WAYS.items():
        drafter = Beside(make_method(way.copies, dict(way.fields)) if way.copies else None, way.rule)
        records, asked = [], []
        for trace in same:
            outcome = replay(drafter, trace)
            about = {"state": "trained", "kind": "drafter", "repeat": 0, "model": trace.model}
            records.append(PromptRecord.of(trace.prompt, outcome, run="", method=name, **about))
            steps = len(outcome.accept_lengths)
            asked.append((drafter.asked + [False] * steps)[:steps])  # without room it was not asked
        drafting = [draft_seconds(record, drafts) for record, drafts in zip(records, asked, strict=True)]
        for half, kept, row in rows_of(records, drafting):
            drafts = np.concatenate([asked[place] for place in np.flatnonzero(kept)])
            rows.append({"half": half, "way": name, "answers": kept.sum(), **row, "copied": 1 - drafts.mean()})
    return pd.DataFrame(rows)


def main(
    traces: Annotated[Path, typer.Argument(help="a copy of github SpecDecode-Bench/simulator")],
    runs: Annotated[Path, typer.Argument(help="folder of runs of experiment=engines over it, by budget")],
    output: Annotated[Path, typer.Argument(help="folder of the tables")],
) -> None:
    """Make the tables of drafters beside EAGLE.

    drafters.csv: every drafter, budget and half of the questions. pairwise.csv: tokens per step on even questions, 32
    nodes. beside.csv: copies and EAGLE sharing the steps. vllm_ngram.csv: our vllm_ngram against vLLM's record.

      python -m scripts.studies.engines COPY results/local/simulator results/local/simulator/tables
    """
    recorded = answers(traces)
    folders = [RunFolder(path.parent) for path in sorted(runs.glob("*/manifest.json"))]
    if unfinished := [folder.path.name for folder in folders if not folder.is_complete]:
        raise ValueError(f"{runs}: {', '.join(unfinished)}: not finished; the same command resumes a run")
    by_budget = {budget_name(folder.config): folder for folder in folders}
    output.mkdir(parents=True, exist_ok=True)
    save_csv(budgets_table(by_budget), output / "drafters.csv")
    even = [
        record for folder in by_budget.values() if folder.config["budget"]["rule"] == "equal"
        for record in folder.records
        if record.method in COMPARED and question_number(record.question_id) % 2 == 0
    ]  # fmt: skip
    save_csv(pairwise.pairwise(metrics.to_frame(even), [ACCEPT_LENGTH], COMPARED), output / "pairwise.csv")
    save_csv(beside_table(recorded), output / "beside.csv")
    save_csv(agreement(recorded), output / "vllm_ngram.csv")
    config = {"script": "engines", "runs": {name: folder.manifest.run for name, folder in by_budget.items()}}
    digest = content_hash([built.digest(file) for file in trace_files(traces)])
    about = [note for folder in folders for note in folder.manifest.environment.items()]
    notes = {name: why for name, why in about if name.startswith("recorded")}
    make_manifest(config, "Llama-3.1-8B-Instruct, recorded", digest, "cpu", notes).write(output / "manifest.json")


if __name__ == "__main__":
    run(main, "nothing was written")
