"""What the N-Gram-Trie paper claims and whether it holds, and the list of all verdicts: each names the files under
`results/` that it is from.

What a paper says of its models is decided by runs of these: of their tokens also by a replay of recorded answers,
which is exact; of their speed by a live run alone, and "faster than" by its paired intervals, versus.csv. Without such
a run or such a file it is not tested, and what a smaller model or a prediction says is given beside it. The text of the
embedded models is our own: their numbers are called synthetic and decide nothing about real tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
from scipy.stats import binomtest

from ngram_trie.report.blocks import JSON
from ngram_trie.site import chapters, printed
from ngram_trie.site.audit import ALL, Audit
from ngram_trie.site.evidence import (
    OURS,
    RELEASED,
    UNTESTED,
    Claim,
    Evidence,
    Versus,
    frames,
    listed,
    models,
    named,
    span,
    spoken,
    verdict_over,
)
from ngram_trie.site.gathered import Folder, Results
from ngram_trie.site.printed import BEST

TASKS = {"spec_bench_summarization": "summarization", "spec_bench_rag": "rag"}
#: A step emits this many tokens where the released trie's longest draft is accepted whole.
LONGEST = 11


#: Whether the trie is the fastest method of a task.
ANSWERS = {True: "fastest", False: "another is faster", None: "cannot be told apart"}


def _corrected(results: Results) -> Iterator[tuple[Folder, pd.DataFrame]]:
    """The rows of each Table 1 under the corrected protocol."""
    for folder, frame in frames(results, "table1"):
        if "protocol" in frame:
            yield folder, frame[frame.protocol == "corrected"]


def fastest(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    best = cells.loc[cells.groupby(["model", "dataset"]).speedup.idxmax()]
    outside = best[best.dataset != "spec_bench_summarization"]
    found = Evidence("paper/table1.csv")
    for folder, frame in _corrected(results):
        rows = frame[(frame.dataset != ALL) & frame.speedup.notna() & (frame.num_prompts > 0)]
        if folder.engine != "live" or folder.model not in set(cells.model) or rows.empty:
            continue
        versus, parts = Versus(folder), []
        for dataset, part in rows[~rows.dataset.str.contains("summ")].groupby("dataset", sort=False):
            rivals = [method for method in part.method if method in set(cells.method) - {OURS, "vanilla"}]
            stands = versus.fastest(str(dataset), OURS, rivals)
            found.decide(folder, [stands])
            parts.append(f"{dataset} {ANSWERS[stands]}")
        found.files += versus.file
        found.add(
            folder, f"In {folder.name}, beside the paper's other methods, as far as intervals tell: {listed(parts)}"
        )
    found.leave_open(set(cells.model))
    yield found.judged("fastest", {"won": (outside.method == OURS).sum(), "cells": len(outside)}, partly=True)


def over_rest(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    wide = cells.pivot(index=["model", "dataset"], columns="method", values="speedup").dropna(subset=[OURS, "rest"])
    found = Evidence("paper/table1.csv")
    for folder, frame in _corrected(results):
        if not {OURS, "rest"} <= set(frame.method):
            continue
        ours, rest = (frame[frame.method == m].set_index("dataset") for m in (OURS, "rest"))
        both = ours.index[ours.speedup.notna()].intersection(rest.index[rest.speedup.notna()])
        versus, parts = Versus(folder), []
        for dataset in both:
            ratio = versus.spoken(dataset, OURS, "rest") or "no paired interval"
            parts.append(f"{dataset} {ours.speedup[dataset]:.2f}x and {rest.speedup[dataset]:.2f}x, {ratio}")
        found.add(folder, f"{named(folder)}, REST with the datastore it had there: {listed(parts)}")
        found.files += versus.file
        if _is_measured(results, folder):
            found.decide(folder, [versus.faster(dataset, OURS, "rest") for dataset in both if dataset != ALL])
    found.leave_open(set(cells.model))
    yield found.judged("over_rest", {"won": (wide[OURS] > wide.rest).sum(), "cells": len(wide)}, partly=True)


def printed_speeds(results: Results) -> Iterator[Claim]:
    """For each model of the paper's Table 1, its speeds beside a live run of that model, if there is one."""
    cells = results.paper("table1.csv")
    if cells is None:
        return
    for model, part in cells[cells.method == OURS].groupby("model", sort=False):
        claim = f"On {model} the trie speeds decoding up by {part.speedup.min():.2f}x to {part.speedup.max():.2f}x."
        runs = [(f, frame) for f, frame in _corrected(results) if f.model == model and f.engine == "live"]
        for folder, frame in runs:
            rows = frame[frame.method.isin([OURS, RELEASED])].merge(part, on="dataset", suffixes=("", "_printed"))
            inside = rows[(rows.speedup_low <= rows.speedup_printed) & (rows.speedup_printed <= rows.speedup_high)]
            cells_read = [
                f"{row.dataset} {row.method} {spoken(row)}, printed {row.speedup_printed:.2f}x"
                for row in rows.itertuples()
            ]
            verdict = verdict_over(rows.index.isin(inside.index).tolist(), partly=True)
            why = f"{folder.name}, {frame.device.iloc[0]} (the paper: one RTX 4090): {listed(cells_read)}."
            table = folder.csv("table.csv")
            assert table is not None
            last = table[(table.protocol == "released") & (table.method == RELEASED) & (table.dataset != ALL)]
            read = [f"{row.dataset} {row.speedup:.2f}x ({row.accept_length:.2f})" for row in last.itertuples()]
            why += f" Read as the released code reads it: {listed(read)}." if read else ""
            yield Claim("Table 1", claim, verdict, why, ["paper/table1.csv", folder.file("table.csv")])
        if not runs:
            why = f"No live run of {model} is under results/; `make reproduce-table1 PROFILE=paper` on a GPU makes one."
            yield Claim("Table 1", claim, UNTESTED, why, ["paper/table1.csv"])


def lossless(results: Results, audit: Audit) -> Iterator[Claim]:
    runs = sorted(set(audit.table.run))
    found = Evidence(
        *(f"{run}/{'records.jsonl' if (results.root / run / 'records.jsonl').is_file() else JSON}" for run in runs)
    )
    if audit.compared:
        found.tested.append(audit.identical + audit.ties == audit.compared)
    ties = f" {audit.ties:,} more part at a tie of two logits, which half precision allows (docs/protocol.md)."
    said: dict[str, object] = {"identical": audit.identical, "compared": audit.compared, "runs": len(runs)}
    yield found.judged("lossless", said | {"ties": ties if audit.ties else ""})


def _value(frame: pd.DataFrame) -> str:
    return "speedup" if "speedup" in frame and frame.speedup.notna().any() else "predicted_speedup"


def _is_measured(results: Results, folder: Folder) -> bool:
    """Whether its speeds can decide: of a live run of one of the paper's models."""
    return folder.engine == "live" and folder.model in models(results)


def _kind(frame: pd.DataFrame) -> str:
    """Where the speeds of `_value` are from."""
    return "measured" if _value(frame) == "speedup" else "predicted from exact accept lengths and a cost curve"


def _cells(results: Results, kind: str, fields: tuple[str, ...]) -> Iterator[tuple[Folder, pd.DataFrame]]:
    """The rows of each sweep over `fields`, each task apart, with a column `value`, the speedup (or predicted)."""
    for folder, frame in frames(results, kind):
        if folder.name == folder.run and set(fields) <= set(frame.columns):
            rows = frame[(frame.dataset != ALL) & frame[fields[0]].notna()]
            rows = rows.assign(value=rows[_value(rows)]).dropna(subset="value")
            if len(rows):
                yield folder, rows


def optimum(results: Results) -> Iterator[Claim]:
    grid = results.paper("table2.csv")
    if grid is None:
        return
    spread = grid.tokens_per_second.max() / grid.tokens_per_second.min() - 1
    found = Evidence("paper/table2.csv")
    for folder, rows in _cells(results, "grid", ("n", "prefix_len")):
        versus, parts = Versus(folder), []
        for dataset, part in rows.groupby("dataset", sort=False):
            top, ours = part.loc[part.value.idxmax()], part[(part.n == BEST[0]) & (part.prefix_len == BEST[1])]
            if ours.empty:
                continue
            if _is_measured(results, folder):
                found.decide(folder, [versus.fastest(str(dataset), ours.method.iloc[0], part.method)])
            behind, wide = 1 - ours.value.iloc[0] / top.value, top.value / part.value.min() - 1
            where = "" if folder.is_synthetic else f" at n={top.n}, L_p={top.prefix_len}"
            parts.append(f"{dataset}: {BEST} {behind:.1%} below the largest{where}, the whole grid {wide:.0%} wide")
        found.add(folder, f"{named(folder)} ({_kind(rows)}): {listed(parts)}")
        found.files += versus.file
    yield found.judged("optimum", {"best": BEST, "spread": spread}, partly=True)


def num_draft(results: Results) -> Iterator[Claim]:
    cells = results.paper("table3.csv")
    if cells is None:
        return
    best = cells.loc[cells.groupby("dataset", sort=False).speedup.idxmax()]
    sizes = [f"{row.num_draft} on {row.dataset} ({row.speedup:.2f}x)" for row in best.itertuples()]
    expected = dict(zip(best.dataset, best.num_draft, strict=True))
    found = Evidence("paper/table3.csv")
    for folder, rows in _cells(results, "num_draft", ("num_draft",)):
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            top = part.loc[part.value.idxmax()]
            speeds = f"{span(part.value, '{:.2f}x')} over {part.num_draft.min()} to {part.num_draft.max()} nodes"
            parts.append(f"{dataset} {speeds if folder.is_synthetic else f'{top.num_draft} ({top.value:.2f}x)'}")
        found.add(folder, f"{named(folder)} ({_kind(rows)}): {listed(parts)}")
        if folder.model == cells.model.iloc[0] and _is_measured(results, folder):
            versus = Versus(folder)
            found.files += versus.file
            for dataset, size in expected.items():
                part = rows[rows.dataset == dataset]
                ours = part[part.num_draft == size].method
                found.decide(folder, [versus.fastest(dataset, ours.iloc[0], part.method) if len(ours) else None])
    yield found.judged("num_draft", {"model": cells.model.iloc[0], "named": " and ".join(sizes)}, partly=True)


def noise(results: Results) -> Iterator[Claim]:
    found = Evidence("paper/table4.csv")
    for folder, frame in frames(results, "table4"):
        if "context" not in frame or OURS not in set(frame.method):
            continue
        rows = frame[(frame.dataset == ALL) & (frame.method == OURS)].set_index("context")
        if "clean" not in rows.index:
            continue
        rows = rows.assign(value=rows[_value(rows)])
        clean, noisy = rows.loc["clean"], rows.drop("clean")
        if _is_measured(results, folder):
            # Faster than vanilla where its interval lies above 1, slower where it lies below, else open.
            intervals = noisy[["speedup_low", "speedup_high"]].itertuples(index=False)
            found.decide(folder, [True if low > 1 else False if high < 1 else None for low, high in intervals])
        parts = [
            f"{r.Index} {r.accept_length / clean.accept_length - 1:+.1%}, {r.value:.2f}x" for r in noisy.itertuples()
        ]
        found.add(
            folder,
            f"{named(folder)} (speeds {_kind(rows)}): accept length {clean.accept_length:.2f}, {clean.value:.2f}x "
            f"clean; {listed(parts)}",
        )
    yield found.judged("noise")


def accept_lengths(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame in frames(results, "figures", "accept_lengths.csv"):
        rows = frame[(frame.method == RELEASED) & frame.dataset.isin(["summarization", "rag", *TASKS])]
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            shares = part.set_index("accept_length").share.reindex(range(1, LONGEST + 1), fill_value=0.0)
            steps = (shares * part.num_steps.iloc[0]).round().astype(int)
            rises = [at for at in range(2, LONGEST) if _more(steps[at], steps[at - 1], LONGEST - 2)]
            peak = _more(steps[LONGEST], steps[LONGEST - 1])
            if folder.model in models(results):
                half, below = bool(shares[1] > 0.5), bool(shares.iloc[:3].sum() > 0.5)
                found.decide(folder, [half, below, not rises, peak])
            parts.append(
                f"{dataset} {shares[1]:.0%} at 1, {shares.iloc[:3].sum():.0%} below 4, then steps "
                f"{', '.join(map(str, steps.iloc[3:-1]))} at 4 to {LONGEST - 1} and {steps[LONGEST]} at {LONGEST}"
            )
        if parts:
            found.add(folder, f"{named(folder)}: {listed(parts)}", "accept_lengths.csv")
    cells = results.paper("table1.csv")
    found.leave_open(set() if cells is None else set(cells.model))
    found.files.append("paper/README.md")
    said = {"released": RELEASED, "models": ", ".join(sorted(found.models)) or "none"}
    yield found.judged("accept_lengths", said, partly=True)


def _more(count: int, other: int, tests: int = 1) -> bool:
    """Whether `count` is more than `other` beyond chance: a binomial test, one-sided, 5% over this many tests."""
    return count > other and binomtest(int(count), int(count + other), alternative="greater").pvalue < 0.05 / tests


def time_split(results: Results) -> Iterator[Claim]:
    """The paper times its own code on its own machine; what ours is spent on says nothing of that."""
    found = Evidence()
    for folder, frame in frames(results, "figure5", "time_split.csv"):
        mean = frame.groupby("part", sort=False)[["microseconds"]].mean().microseconds
        means = ", ".join(f"{name} {value:.1f} us" for name, value in mean.items())
        found.add(folder, f"{named(folder)}: {means}", "time_split.csv")
    found.files = found.files or ["README.md"]
    yield found.judged("time_split")


def trie_time(results: Results) -> Iterator[Claim]:
    cells = results.paper("table6.csv")
    if cells is None:
        return
    printed_share = cells.trie_ms / cells.inference_ms
    found = Evidence("paper/table6.csv")
    for folder, rows in _cells(results, "grid", ("n", "prefix_len", "trie_ms")):
        share = rows.trie_ms / rows.inference_ms
        if _is_measured(results, folder):
            found.decide(folder, [bool(share.max() <= printed_share.max())])
        found.add(
            folder,
            f"{named(folder)}: {span(rows.trie_ms, '{:.2f}')} ms a step beside {span(rows.inference_ms)} ms of forward "
            f"and cache, {span(100 * share)}%; indexing, once, {rows.index_ms_median.median():.2f} ms",
        )
    said = {"trie": span(cells.trie_ms), "inference": span(cells.inference_ms), "share": span(100 * printed_share)}
    yield found.judged("trie_time", said)


CHECKS: tuple[Callable[[Results], Iterator[Claim]], ...] = (
    fastest, over_rest, printed_speeds, optimum, num_draft, noise, accept_lengths, time_split, trie_time,
)  # fmt: skip


def verdicts(results: Results, audit: Audit) -> list[Claim]:
    """Every claim that the files allow to judge: those that printed numbers decide, then paper by paper."""
    checks = [*printed.CHECKS, *CHECKS, *chapters.CHECKS]
    return [*lossless(results, audit), *(claim for check in checks for claim in check(results))]
