"""What the papers claim and whether it holds: each verdict names the files under `results/` that it is from.

Claims that the printed numbers decide by themselves are data, results/paper/claims.csv; the others are checked here.

What a paper says of its models is decided by runs of these: of their speed by a live one, of their tokens also by a
replay of recorded answers, which is exact. Without such a run it is not tested, and what a smaller model or a
prediction says is given beside it. A check whose files are missing is not tested either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from ngram_trie.report.blocks import JSON
from ngram_trie.site.audit import ALL, Audit
from ngram_trie.site.gathered import WORDS, Folder, Results

HOLDS, IN_PART, FAILS, UNTESTED = "holds", "in part", "does not hold", "not tested"
OURS = "ngram_trie"
RELEASED = "ngram_trie_released"
ROUNDING = 0.005 + 1e-9  # half a unit of the second decimal
TASKS = {"spec_bench_summarization": "summarization", "spec_bench_rag": "rag"}


class Claim(NamedTuple):
    """One row of the summary: where it is claimed, what, the verdict, why, and the files below results/ that say so."""

    where: str
    claim: str
    verdict: str
    why: str
    files: list[str]


class Evidence:
    """What was found about a claim, folder by folder.

    Attributes:
        seen: in words.
        tested: of each place that decides, whether the claim holds there.
        files: below results/.
    """

    def __init__(self, *files: str) -> None:
        self.seen: list[str] = []
        self.tested: list[bool] = []
        self.files = list(files)

    def add(self, folder: Folder, text: str, file: str = "table.csv") -> None:
        self.seen.append(text)
        self.files.append(folder.file(file))

    def judged(self, name: str, said: Mapping[str, object] = {}, partly: bool = False) -> Claim:
        """The claim `name` of templates/words.yaml with the verdict over what was tested.

        Args:
            said: what fills its texts, besides `seen` (listed), `found` (as sentences), `remark` and `no_run`, two ways
                to say that nothing that was measured decides.
            partly: a claim may hold in some places.
        """
        about = WORDS["claims"][name]
        untested = not self.tested
        why = about["why"] if self.seen else about.get("none", about["why"])
        filled = {
            **said,
            "seen": listed(self.seen) or about.get("nothing", ""),
            "found": ". ".join(self.seen),
            "remark": "None of the paper's models has a live run of it under results/. " if untested else "",
            "no_run": "None of its models has a run under results/. " if untested else "",
        }
        holds = HOLDS if all(self.tested) else IN_PART if partly and any(self.tested) else FAILS
        verdict = UNTESTED if untested else holds
        return Claim(about["where"], about["claim"].format(**filled), verdict, why.format(**filled), self.files)


def listed(parts: list[str]) -> str:
    return "; ".join(parts)


def span(values: pd.Series, each: str = "{:.1f}") -> str:
    """The smallest and the largest number."""
    return f"{each.format(values.min())} to {each.format(values.max())}"


def spoken(row: Any) -> str:
    """A speedup with its interval; of a row that has `speedup`, `speedup_low` and `speedup_high`."""
    return f"{row.speedup:.2f}x [{row.speedup_low:.2f}, {row.speedup_high:.2f}]"


def models(results: Results) -> set[str]:
    """The models that the N-Gram-Trie paper prints numbers of."""
    tables = (results.paper(f"table{number}.csv") for number in range(1, 7))
    return {name for table in tables if table is not None for name in table.model}


def _frames(results: Results, kind: str, file: str = "table.csv") -> Iterator[tuple[Folder, pd.DataFrame]]:
    """The folders of a kind that hold a data file, with its rows."""
    for folder in results.of(kind, file):
        if (frame := folder.csv(file)) is not None:
            yield folder, frame


def _corrected(results: Results) -> Iterator[tuple[Folder, pd.DataFrame]]:
    """The rows of each Table 1 under the corrected protocol."""
    for folder, frame in _frames(results, "table1"):
        if "protocol" in frame:
            yield folder, frame[frame.protocol == "corrected"]


def published(results: Results) -> Iterator[Claim]:
    """The claims that the printed numbers decide."""
    rows = results.paper("claims.csv")
    for row in () if rows is None else rows.itertuples(index=False):
        yield Claim(row.where, row.claim, row.verdict, row.why, row.files.split())


def last_question(results: Results) -> Iterator[Claim]:
    """The paper's accept lengths on Spec-Bench beside those of the released code on recorded answers."""
    cells, lists = results.paper("table1.csv"), results.paper("released_code.csv")
    if cells is None or lists is None:
        return
    for row in lists.merge(cells[cells.method == OURS], on=["model", "dataset"]).itertuples():
        found = Evidence("paper/table1.csv", "paper/released_code.csv", "paper/README.md")
        found.tested.append(abs(row.accept_length_all_questions - row.accept_length) <= ROUNDING)
        yield found.judged("last_question", row._asdict())


def timer(results: Results) -> Iterator[Claim]:
    for folder, table in _corrected(results):
        phases = folder.csv("phases.csv")
        if phases is None:
            continue
        inside = table[table.dataset == ALL].set_index("method")
        outside = phases.set_index("method").decode_tokens_per_second
        parts = []
        for method in (OURS, RELEASED):
            if method in inside.index and {method, inside.baseline[method]} <= set(outside.index):
                ratio = outside[method] / outside[inside.baseline[method]]
                parts.append(f"{method} {inside.speedup[method]:.2f}x with prefill in the clock, {ratio:.2f}x without")
        if not parts:
            continue
        found = Evidence("paper/README.md", folder.file("phases.csv"), folder.file("table.csv"))
        share = phases.set_index("method").prefill["vanilla"]
        yield found.judged("timer", {"folder": folder.name, "share": share, "parts": listed(parts)})


def fastest(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    best = cells.loc[cells.groupby(["model", "dataset"]).speedup.idxmax()]
    outside = best[best.dataset != "spec_bench_summarization"]
    found = Evidence("paper/table1.csv")
    for folder, frame in _corrected(results):
        if folder.engine != "live":
            continue
        parts = frame[(frame.dataset != ALL) & frame.speedup.notna() & (frame.num_prompts > 0)]
        if parts.empty:
            continue
        winners = parts.loc[parts.groupby("dataset").speedup.idxmax()]
        won = [row.dataset for row in winners.itertuples() if row.method == OURS]
        names = ", ".join(f"{row.dataset} {row.method} {row.speedup:.2f}x" for row in winners.itertuples())
        found.add(folder, f"In {folder.name} it is in {len(won)} of {len(winners)} (fastest: {names})")
        if folder.model in set(cells.model):
            found.tested.append({d for d in winners.dataset if "summ" not in d} <= set(won))
    yield found.judged("fastest", {"won": (outside.method == OURS).sum(), "cells": len(outside)})


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
        tasks = [d for d in ours.speedup.dropna().index.intersection(rest.speedup.dropna().index) if d != ALL]
        faster = [bool(ours.speedup[d] > rest.speedup[d]) for d in tasks]
        parts = ", ".join(f"{d} {ours.speedup[d]:.2f}x against {rest.speedup[d]:.2f}x" for d in tasks)
        found.add(
            folder,
            f"{folder.name}, REST with the datastore it had there: in {sum(faster)} of {len(tasks)} ({parts}; all "
            f"tasks {spoken(ours.loc[ALL])} against {spoken(rest.loc[ALL])})",
        )
        if folder.model in set(cells.model) and folder.engine == "live":
            found.tested += faster
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
            named = [
                f"{row.dataset} {row.method} {spoken(row)}, printed {row.speedup_printed:.2f}x"
                for row in rows.itertuples()
            ]
            verdict = HOLDS if len(inside) == len(rows) else IN_PART if len(inside) else FAILS
            verdict = UNTESTED if rows.empty else verdict
            why = f"{folder.name}, {frame.device.iloc[0]} (the paper: one RTX 4090): {listed(named)}."
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


#: What the paper names as its best setting (section 4.4).
BEST = (13, 3)


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
    for folder, frame in _frames(results, kind):
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
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            top, ours = part.loc[part.value.idxmax()], part[(part.n == BEST[0]) & (part.prefix_len == BEST[1])]
            if ours.empty:
                continue
            best = (top.n, top.prefix_len) == BEST
            # Of a measured cell the interval says whether another one can be told from it.
            alike = best or ("speedup_low" in part and bool(ours.value.iloc[0] >= top.speedup_low))
            if _is_measured(results, folder):
                found.tested.append(alike)
            behind, wide = ours.value.iloc[0] / top.value - 1, top.value / part.value.min() - 1
            told = " (inside its interval)" if alike and not best else ""
            setting = f"n={top.n}, L_p={top.prefix_len}"
            parts.append(f"{dataset}: best {setting}, {BEST} {behind:+.1%}{told}, the whole grid {wide:.0%} wide")
        found.add(folder, f"{folder.name} ({_kind(rows)}): {listed(parts)}")
    yield found.judged("optimum", {"best": BEST, "spread": spread}, partly=True)


def num_draft(results: Results) -> Iterator[Claim]:
    printed = results.paper("table3.csv")
    if printed is None:
        return
    best = printed.loc[printed.groupby("dataset", sort=False).speedup.idxmax()]
    named = [f"{row.num_draft} on {row.dataset} ({row.speedup:.2f}x)" for row in best.itertuples()]
    expected = dict(zip(best.dataset, best.num_draft, strict=True))
    found = Evidence("paper/table3.csv")
    for folder, rows in _cells(results, "num_draft", ("num_draft",)):
        top = rows.loc[rows.groupby("dataset", sort=False).value.idxmax()]
        parts = [f"{row.dataset} {row.num_draft} ({row.value:.2f}x)" for row in top.itertuples()]
        found.add(folder, f"{folder.name} ({_kind(rows)}): {', '.join(parts)}")
        if folder.model == printed.model.iloc[0] and _is_measured(results, folder):
            found.tested.append(dict(zip(top.dataset, top.num_draft, strict=True)) == expected)
    yield found.judged("num_draft", {"model": printed.model.iloc[0], "named": " and ".join(named)})


def noise(results: Results) -> Iterator[Claim]:
    found = Evidence("paper/table4.csv")
    for folder, frame in _frames(results, "table4"):
        if "context" not in frame or OURS not in set(frame.method):
            continue
        rows = frame[(frame.dataset == ALL) & (frame.method == OURS)].set_index("context")
        if "clean" not in rows.index:
            continue
        rows = rows.assign(value=rows[_value(rows)])
        clean, noisy = rows.loc["clean"], rows.drop("clean")
        if _is_measured(results, folder):
            found.tested.append(bool((noisy.value > 1).all()))
        parts = [
            f"{r.Index} {r.accept_length / clean.accept_length - 1:+.1%}, {r.value:.2f}x" for r in noisy.itertuples()
        ]
        found.add(
            folder,
            f"{folder.name} (speeds {_kind(rows)}): accept length {clean.accept_length:.2f}, {clean.value:.2f}x clean; "
            f"{listed(parts)}",
        )
    yield found.judged("noise")


def accept_lengths(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame in _frames(results, "figures", "accept_lengths.csv"):
        rows = frame[(frame.method == RELEASED) & frame.dataset.isin(["summarization", "rag", *TASKS])]
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            shares = part.set_index("accept_length").share.sort_index()
            longest = int(shares.index.max())
            before = shares.get(longest - 1, 0.0)
            if folder.model in models(results):
                found.tested.append(bool(shares.idxmax() == 1 and shares[longest] > before))
            peak = f"{before:.1%} at {longest - 1}, {shares[longest]:.1%} at {longest}"
            parts.append(f"{dataset} {shares.get(1, 0.0):.0%} at 1, {peak}")
        found.add(folder, f"{folder.name}: {listed(parts)}", "accept_lengths.csv")
    found.files.append("paper/README.md")
    yield found.judged("accept_lengths", {"released": RELEASED}, partly=True)


def time_split(results: Results) -> Iterator[Claim]:
    found = Evidence()
    for folder, frame in _frames(results, "figure5", "time_split.csv"):
        mean = frame.groupby("part", sort=False)[["microseconds"]].mean().microseconds
        if folder.model in models(results):  # drafting reads tokens: over recorded answers it takes what it takes live
            found.tested.append(mean.idxmin() == "trie search")
        means = ", ".join(f"{name} {value:.1f} us" for name, value in mean.items())
        found.add(folder, f"{folder.name}: {means}", "time_split.csv")
    found.files = found.files or ["README.md"]
    yield found.judged("time_split")


def trie_time(results: Results) -> Iterator[Claim]:
    printed = results.paper("table6.csv")
    if printed is None:
        return
    found = Evidence("paper/table6.csv")
    for folder, rows in _cells(results, "grid", ("n", "prefix_len", "trie_ms")):
        trie, inference = rows.trie_ms, rows.inference_ms
        if _is_measured(results, folder):
            found.tested.append(bool((trie < inference).all()))
        found.add(
            folder,
            f"{folder.name}: {span(trie, '{:.2f}')} ms a step beside {span(inference)} ms of forward and "
            f"cache; indexing, once, {rows.index_ms_median.median():.2f} ms",
        )
    yield found.judged("trie_time", {"trie": span(printed.trie_ms), "inference": span(printed.inference_ms)})


def ngrammys(results: Results) -> Iterator[Claim]:
    printed = results.paper("ngrammys_table1.csv")
    if printed is None:
        return
    rows = printed[printed.strategy == "mixed_10_10"]
    found = Evidence("paper/ngrammys_table1.csv")
    for folder, frame in _frames(results, "ngrammys"):
        if folder.name != f"{folder.run}/table1":
            continue
        ours = frame[frame.method.str.fullmatch(r"mixed \(10, 10\), (rows|tree)") & (frame.dataset == ALL)]
        named = [f"{row.method} {row.accept_length:.2f} tokens a call, {spoken(row)}" for row in ours.itertuples()]
        found.add(folder, f"{folder.name} ({folder.model}): {listed(named)}")
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


CHECKS: tuple[Callable[[Results], Iterator[Claim]], ...] = (
    published, last_question, timer, fastest, over_rest, printed_speeds, optimum, num_draft, noise, accept_lengths,
    time_split, trie_time, ngrammys,
)  # fmt: skip


def verdicts(results: Results, audit: Audit) -> list[Claim]:
    """Every claim that the files allow to judge, in the order of the papers."""
    return [*lossless(results, audit), *(claim for check in CHECKS for claim in check(results))]
