"""The claims of the n-gram predictor's chapter and of N-Grammys beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from ngram_trie.metrics import ALL
from ngram_trie.report.expected_accept import PRINTED_DRAFT
from ngram_trie.site.evidence import Claim, Evidence, frames, listed, named, span, spoken
from ngram_trie.site.gathered import Folder, Results
from ngram_trie.site.printed import expected_tokens, twice

#: "About 1 MB" (its comparison with draft models) is taken to be no more than twice that.
MOST_BYTES = 2e6
#: How much more than a plain step one of 5 tokens costs (section "Speedup Analysis").
OVERHEAD = (0.2, 0.4)


class Kind(NamedTuple):
    """A kind of content in section "When Does N-gram Prediction Work Well?": the acceptance that the chapter expects,
    from `low` to `high`, and the categories of Spec-Bench that come nearest to it."""

    low: float
    high: float
    categories: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "predictor_high": Kind(0.8, 1.0, ("coding", "extraction", "summarization")),
    "predictor_medium": Kind(0.4, 0.7, ("coding", "stem", "humanities", "qa")),
    "predictor_low": Kind(0.0, 0.3, ("writing", "roleplay")),
}


def _decides(folder: Folder) -> bool:
    """Real answers decide, those of a run's own folder; what lies below it, such as the odd questions, is beside."""
    return not folder.is_synthetic and folder.name == folder.run


def memory(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame in frames(results, "predictor", "answers.csv"):
        megabytes = frame.num_bytes / 1e6
        if _decides(folder):
            found.decide(folder, [bool(frame.num_bytes.max() <= MOST_BYTES)])
        text = f"{named(folder)}: {span(megabytes, '{:.2f}')} MB, median {megabytes.median():.2f} MB"
        found.add(folder, f"{text}, of texts of up to {frame.num_tokens.max():,} tokens", "answers.csv")
    if found.seen:
        yield found.judged("predictor_memory")


def overhead(results: Results) -> Iterator[Claim]:
    """A claim about one kind of device, of which there is no run."""
    found = Evidence()
    for folder, frame in frames(results, "predictor", "costs.csv"):
        row = frame[frame.dataset == ALL].iloc[0]
        found.add(
            folder,
            f"{named(folder)}: {row.nodes:g} drafted tokens cost {row.overhead:.0%} more than a plain step "
            f"[{row.overhead_low:.0%}, {row.overhead_high:.0%}], the drafter itself {row.drafting:.0%} of one",
            "costs.csv",
        )
    for folder, frame in frames(results, "calibration", "curve.csv"):
        more = 100 * (frame[frame.nodes == PRINTED_DRAFT].relative - 1)
        if len(more):
            text = f"{named(folder)}: {PRINTED_DRAFT} drafted tokens {span(more, '{:.0f}')}% more, over cached tokens"
            found.add(folder, text, "curve.csv")
    if found.seen:
        yield found.judged("predictor_overhead", {"low": OVERHEAD[0], "high": OVERHEAD[1]})


def never_hurts(results: Results) -> Iterator[Claim]:
    """By the chapter's own overhead a step whose drafts all fail is slower than a plain one: are there such steps?"""
    found = Evidence()
    for folder, frame in frames(results, "predictor", "positions.csv"):
        first = frame[(frame.position == 1) & (frame.dataset == ALL)].iloc[0]
        table = folder.csv("table.csv")
        if not _decides(folder) or table is None:
            continue
        found.decide(folder, [bool(first.acceptance == 1)])
        emitted = 1 + table[table.dataset != ALL].set_index("dataset").accepted
        short = emitted[emitted < 1 + OVERHEAD[1]]
        tasks = listed(f"{dataset} {tokens:.2f}" for dataset, tokens in short.items()) or "none"
        found.add(
            folder,
            f"{folder.name}: {1 - first.acceptance:.0%} of the drafts fail at their first token; categories whose "
            f"drafting steps emit fewer than {1 + OVERHEAD[1]:g} tokens, which an overhead of {OVERHEAD[1]:.0%} makes "
            f"slower: {tasks}",
            "positions.csv",
        )
    for folder, frame in frames(results, "predictor", "costs.csv"):
        row = frame[frame.dataset == ALL].iloc[0]
        found.add(
            folder,
            f"Live in {named(folder)} {row.slower:.0f} of {row.num_prompts:.0f} prompts took longer than vanilla "
            f"(slowest {row.slowest:.2f}x; each timed on its own, so some by chance), {row.more_steps:.0f} more steps",
            "costs.csv",
        )
    if found.seen:
        yield found.judged("predictor_never_hurts", {"low": OVERHEAD[0], "high": OVERHEAD[1]})


def kinds_of_content(results: Results) -> Iterator[Claim]:
    for name, kind in KINDS.items():
        found = Evidence()
        for folder, frame in frames(results, "predictor"):
            answers = folder.csv("answers.csv")
            alpha = frame.set_index("dataset").alpha.reindex(kind.categories).dropna()
            if folder.is_synthetic or answers is None or alpha.empty:
                continue
            answers = answers[answers.dataset.isin(alpha.index)].dropna(subset="alpha")
            inside = answers.alpha.between(kind.low, kind.high)
            parts = []
            for category, value in alpha.items():
                of = inside[answers.dataset == category]
                parts.append(f"{category} {value:.2f} ({of.sum()} of {len(of)} answers inside)")
            if _decides(folder):
                found.decide(folder, [*alpha.between(kind.low, kind.high).tolist(), bool(inside.mean() > 0.5)])
            found.add(folder, f"{folder.name}: {', '.join(parts)}")
        if found.seen:
            yield found.judged(name, partly=True)


def ngrammys(results: Results) -> Iterator[Claim]:
    printed = results.paper("ngrammys_table1.csv")
    if printed is None:
        return
    rows = printed[printed.strategy == "mixed_10_10"]
    found = Evidence("paper/ngrammys_table1.csv")
    for folder, frame in frames(results, "ngrammys"):
        if folder.name != f"{folder.run}/table1":
            continue
        ours = frame[frame.method.str.fullmatch(r"mixed \(10, 10\), (rows|tree)") & (frame.dataset == ALL)]
        cells = [f"{row.method} {row.accept_length:.2f} tokens a call, {spoken(row)}" for row in ours.itertuples()]
        found.add(folder, f"{named(folder)}: {listed(cells)}")
        # The paper verifies rows; a tree is this project's addition.
        both = frame[frame.method == "mixed (10, 10), rows"].merge(
            rows, on=["model", "dataset"], suffixes=("", "_printed")
        )
        for row in both.itertuples():
            found.tested.append(abs(row.accept_length / row.tokens_per_call - 1) <= 0.1)
            found.tested.append(row.speedup_low <= row.speedup_printed <= row.speedup_high)
            found.seen.append(
                f"{row.dataset} {row.accept_length:.2f}, printed {row.tokens_per_call:.2f}, and {spoken(row)}, printed "
                f"{row.speedup_printed:.2f}x"
            )
    tokens, speeds = span(rows.tokens_per_call, "{:.2f}"), span(rows.speedup, "{:.2f}x")
    yield found.judged("ngrammys", {"tokens": tokens, "speeds": speeds}, partly=True)


def _part(results: Results, part: str, file: str) -> Iterator[tuple[Folder, pd.DataFrame, bool]]:
    """The folders of one part of N-Grammys, with their rows and whether their model is one of its paper's."""
    printed = results.paper("ngrammys_table1.csv")
    theirs = set() if printed is None else set(printed.model)
    for folder, frame in frames(results, "ngrammys", file):
        if folder.name == f"{folder.run}/{part}":
            yield folder, frame[frame.dataset != ALL], folder.model in theirs


def top_k(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame, decides in _part(results, "figure2", "data.csv"):
        most = frame.k[frame.dataset == "bigram"].max()
        wide = frame[frame.k == most].pivot(index="series", columns="dataset", values="accept_length")
        one, two, three = (wide[name] for name in ("bigram", "extended bigram, w = 2", "extended bigram, w = 3"))
        if decides:
            found.decide(folder, two.between(1.4, 1.6).tolist() + (three - two < two - one).tolist())
        cells = [f"{task} {one[task]:.2f}, {two[task]:.2f}, {three[task]:.2f}" for task in wide.index]
        found.add(folder, f"{named(folder)}, k = {most}, w = 1, 2, 3: {listed(cells)}", "data.csv")
    if found.seen:
        yield found.judged("ngrammys_top_k")


def query_length(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame, decides in _part(results, "query", "table.csv"):
        wide = frame.pivot(index="dataset", columns="method", values="accept_length")
        if decides:
            found.decide(folder, (wide["mixed_q1"] > wide.drop(columns="mixed_q1").max(axis=1)).tolist())
        cells = [f"{row[0]} {', '.join(f'{value:.2f}' for value in row[1:])}" for row in wide.itertuples()]
        found.add(folder, f"{named(folder)}, q = 1, 2, 3: {listed(cells)}")
    if found.seen:
        yield found.judged("ngrammys_query")


def whole_rows(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame, decides in _part(results, "figure4", "data.csv"):
        rows = frame[(frame.measure == "tokens accepted of the row") & (frame.number == 10)]
        wide = rows.pivot(index="dataset", columns="source", values="share").reindex(frame.dataset.unique())
        wide = wide.reindex(columns=["context", "model"]).fillna(0)
        if decides:
            found.decide(folder, (wide.context > 0).tolist())
        cells = [f"{row.Index} {row.context:.0%} and {row.model:.0%}" for row in wide.itertuples()]
        found.add(folder, f"{named(folder)}: {listed(cells)}", "data.csv")
    if found.seen:
        yield found.judged("ngrammys_whole_rows")


CHECKS = (
    expected_tokens, memory, overhead, never_hurts, kinds_of_content, twice, ngrammys, top_k, query_length, whole_rows,
)  # fmt: skip
