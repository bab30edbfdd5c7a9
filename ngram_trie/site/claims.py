"""What the papers claim and whether it holds: each verdict is computed from files under `results/`, which it names.

What a paper says of its models is decided by runs of these: of their speed by a live one, of their tokens also by a
replay of recorded answers, which is exact. Without such a run it is not tested, and what a smaller model or a
prediction says is given beside it. A check whose files are missing is not tested either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd

from ngram_trie.report.blocks import JSON
from ngram_trie.site.audit import ALL, Audit
from ngram_trie.site.gathered import Folder, Results

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


def listed(parts: list[str]) -> str:
    return "; ".join(parts)


def spoken(row: Any) -> str:
    """A speedup with its interval; of a row that has `speedup`, `speedup_low` and `speedup_high`."""
    return f"{row.speedup:.2f}x [{row.speedup_low:.2f}, {row.speedup_high:.2f}]"


def models(results: Results) -> set[str]:
    """The models that the N-Gram-Trie paper prints numbers of."""
    tables = (results.paper(f"table{number}.csv") for number in range(1, 7))
    return {name for table in tables if table is not None for name in table.model}


def judged(tested: list[bool]) -> str:
    """The verdict over what was tested: each place where the claim held, or did not."""
    return UNTESTED if not tested else HOLDS if all(tested) else IN_PART if any(tested) else FAILS


def _corrected(folder: Folder) -> pd.DataFrame | None:
    """The rows of a Table 1 under the corrected protocol."""
    frame = folder.csv("table.csv")
    return None if frame is None or "protocol" not in frame else frame[frame.protocol == "corrected"]


def means(results: Results) -> Iterator[Claim]:
    cells, printed = results.paper("table1.csv"), results.paper("table1_mean_speedup.csv")
    if cells is None or printed is None:
        return
    rows = printed.merge(cells.groupby(["model", "method"]).speedup.mean().reset_index(), on=["model", "method"])
    off = rows[(rows.speedup - rows.mean_speedup).abs() > ROUNDING]
    named = [
        f" {r.method} on {r.model}: the cells average {r.speedup:.2f}x, printed {r.mean_speedup:.2f}x."
        for r in off.itertuples()
    ]
    yield Claim(
        "Table 1",
        "The last column is the mean of a row's four speedups.",
        IN_PART if len(off) else HOLDS,
        f"{len(rows) - len(off)} of {len(rows)} means follow from the cells to rounding.{''.join(named)}",
        ["paper/table1.csv", "paper/table1_mean_speedup.csv"],
    )


def repeated_cells(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    cells = cells[cells.method != "vanilla"]
    keys = ["dataset", "speedup", "accept_length"]
    groups = [(key, part) for key, part in cells.groupby(keys) if len(part) > 1]
    named = [
        f"on {d} {s:.2f}x ({a:.2f}), for {' and '.join(f'{row.method} on {row.model}' for row in part.itertuples())}"
        for (d, s, a), part in groups
    ]
    yield Claim(
        "Table 1",
        "Every cell is a measurement of its own.",
        IN_PART if groups else HOLDS,
        f"The same pair of numbers stands in two rows: {listed(named)}." if groups else "No pair is there twice.",
        ["paper/table1.csv"],
    )


def last_question(results: Results) -> Iterator[Claim]:
    """The released code's averages (results/paper/README.md)."""
    cells, last = results.paper("table1.csv"), results.paper("released_code.csv")
    if cells is None or last is None:
        return
    for row in last.itertuples():
        task = TASKS[row.dataset]
        tries = cells[(cells.dataset == row.dataset) & (cells.method == OURS)]
        cell = tries[tries.model.str.startswith("vicuna")].iloc[0]
        files = ["paper/table1.csv", "paper/released_code.csv", "paper/README.md"]
        here = ""
        for folder in results.of("drafters", "table.csv"):
            frame = folder.csv("table.csv")
            if frame is None or folder.model != cell.model:
                continue
            values = frame[frame.dataset == task].set_index("method").accept_length
            if {OURS, RELEASED} <= set(values.index):
                count = frame[frame.dataset == task].num_prompts.max()
                here = (
                    f" Replayed here over {count} answers: {values[RELEASED]:.2f}, {values[OURS]:.2f} by Algorithm 1."
                )
                files.append(folder.file("table.csv"))
        yield Claim(
            "Table 1",
            f"On {cell.model} the trie emits {cell.accept_length:.2f} tokens a step over {row.dataset} "
            f"({cell.speedup:.2f}x).",
            FAILS if abs(cell.accept_length / row.accept_length_all_questions - 1) > 0.1 else HOLDS,
            f"The released code overwrites a category's result with every question. Its algorithm gives "
            f"{row.accept_length_last_question:.2f} on the last one alone (id {row.question_id}) and "
            f"{row.accept_length_all_questions:.2f} over all questions.{here}",
            files,
        )


def one_question(results: Results) -> Iterator[Claim]:
    for folder in results.of("table1", "readings.csv"):
        frame = folder.csv("readings.csv")
        assert frame is not None
        wide = frame[frame.reading != "paper"].pivot(index=["method", "dataset"], columns="reading", values="speedup")
        wide = wide[(wide.corrected != 1) & wide.notna().all(axis=1)]
        change = wide.released / wide.corrected - 1
        if change.empty:
            continue
        (low, low_at), (high, high_at) = (change.min(), change.idxmin()), (change.max(), change.idxmax())
        yield Claim(
            "Released code",
            "A category's last question stands for the category.",
            FAILS if max(high, -low) > 0.1 else HOLDS,
            f"The same answers of {folder.name} read both ways: the last question alone, prefill outside the clock, "
            f"moves speedups by {low:+.0%} ({', '.join(low_at)}) to {high:+.0%} ({', '.join(high_at)}), and has no "
            "interval.",
            [folder.file("readings.csv"), "paper/README.md"],
        )


def timer(results: Results) -> Iterator[Claim]:
    for folder in results.of("table1", "phases.csv"):
        phases, table = folder.csv("phases.csv"), _corrected(folder)
        if phases is None or table is None:
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
        share = phases.set_index("method").prefill["vanilla"]
        yield Claim(
            "Table 1",
            "All methods are timed alike.",
            FAILS,
            "The released code starts its clock after prefill, the benchmark that the other methods were timed with "
            f"before it. What that is worth in {folder.name}, where prefill is {share:.0%} of vanilla's time: "
            f"{listed(parts)}.",
            ["paper/README.md", folder.file("phases.csv"), folder.file("table.csv")],
        )


def fastest(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    best = cells.loc[cells.groupby(["model", "dataset"]).speedup.idxmax()]
    outside = best[best.dataset != "spec_bench_summarization"]
    printed = f"In the printed cells it is, in {(outside.method == OURS).sum()} of {len(outside)}."
    tested, seen, files = [], [], ["paper/table1.csv"]
    for folder in results.of("table1", "table.csv"):
        frame = _corrected(folder)
        if frame is None or folder.engine != "live":
            continue
        parts = frame[(frame.dataset != ALL) & frame.speedup.notna() & (frame.num_prompts > 0)]
        if parts.empty:
            continue
        winners = parts.loc[parts.groupby("dataset").speedup.idxmax()]
        won = [row.dataset for row in winners.itertuples() if row.method == OURS]
        names = ", ".join(f"{row.dataset} {row.method} {row.speedup:.2f}x" for row in winners.itertuples())
        seen.append(f"In {folder.name} it is in {len(won)} of {len(winners)} (fastest: {names})")
        files.append(folder.file("table.csv"))
        if folder.model in set(cells.model):
            tested.append({d for d in winners.dataset if "summ" not in d} <= set(won))
    verdict = UNTESTED if not tested else HOLDS if all(tested) else FAILS
    note = "" if tested else " None of the paper's models has a live run under results/."
    claim = "The trie is the fastest method on every task but summarization."
    yield Claim("Section 4.2", claim, verdict, f"{printed} {listed(seen)}.{note}", files)


def over_rest(results: Results) -> Iterator[Claim]:
    cells = results.paper("table1.csv")
    if cells is None:
        return
    wide = cells.pivot(index=["model", "dataset"], columns="method", values="speedup").dropna(subset=[OURS, "rest"])
    why = [f"In the printed cells it is, in {(wide[OURS] > wide.rest).sum()} of {len(wide)}"]
    tested, files = [], ["paper/table1.csv"]
    for folder in results.of("table1", "table.csv"):
        frame = _corrected(folder)
        if frame is None or not {OURS, "rest"} <= set(frame.method):
            continue
        ours, rest = (frame[frame.method == m].set_index("dataset") for m in (OURS, "rest"))
        tasks = [d for d in ours.speedup.dropna().index.intersection(rest.speedup.dropna().index) if d != ALL]
        faster = [bool(ours.speedup[d] > rest.speedup[d]) for d in tasks]
        parts = ", ".join(f"{d} {ours.speedup[d]:.2f}x against {rest.speedup[d]:.2f}x" for d in tasks)
        why.append(
            f"{folder.name}, REST with the datastore it had there: in {sum(faster)} of {len(tasks)} ({parts}; all "
            f"tasks {spoken(ours.loc[ALL])} against {spoken(rest.loc[ALL])})"
        )
        files.append(folder.file("table.csv"))
        if folder.model in set(cells.model) and folder.engine == "live":
            tested += faster
    claim = "The trie is faster than REST on every model and task."
    yield Claim("Section 4.2", claim, judged(tested), f"{listed(why)}.", files)


def printed_speeds(results: Results) -> Iterator[Claim]:
    """For each model of the paper's Table 1, its speeds beside a live run of that model, if there is one."""
    cells = results.paper("table1.csv")
    if cells is None:
        return
    for model, part in cells[cells.method == OURS].groupby("model", sort=False):
        claim = f"On {model} the trie speeds decoding up by {part.speedup.min():.2f}x to {part.speedup.max():.2f}x."
        runs = [f for f in results.of("table1", "table.csv") if f.model == model and f.engine == "live"]
        for folder in runs:
            frame = _corrected(folder)
            assert frame is not None
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
            why += f" Read as the released code reads it, last questions alone: {listed(read)}." if read else ""
            yield Claim("Table 1", claim, verdict, why, ["paper/table1.csv", folder.file("table.csv")])
        if not runs:
            why = f"No live run of {model} is under results/; `make reproduce-table1 PROFILE=paper` on a GPU makes one."
            yield Claim("Table 1", claim, UNTESTED, why, ["paper/table1.csv"])


def lossless(results: Results, audit: Audit) -> Iterator[Claim]:
    runs = sorted(set(audit.table.run))
    allowed = audit.identical + audit.ties
    ties = f" {audit.ties:,} more part at a tie of two logits, which half precision allows (docs/protocol.md)."
    yield Claim(
        "Section 1",
        "Speculative decoding leaves the output as it is.",
        UNTESTED if not audit.compared else HOLDS if allowed == audit.compared else FAILS,
        f"{audit.identical:,} of {audit.compared:,} answers of the methods in the project's loop are vanilla's, token "
        f"by token, in {len(runs)} live runs.{ties if audit.ties else ''}",
        [f"{run}/{'records.jsonl' if (results.root / run / 'records.jsonl').is_file() else JSON}" for run in runs],
    )


Check = Callable[[Results], Iterator[Claim]]
TABLE_1: tuple[Check, ...] = (
    last_question, one_question, timer, means, repeated_cells, fastest, over_rest, printed_speeds,
)  # fmt: skip
