"""The claims beyond Table 1: the sweeps, the noise, the figures, and the two other papers'; see `claims`."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ngram_trie.report.blocks import JSON
from ngram_trie.site.audit import ALL, Audit
from ngram_trie.site.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    OURS,
    RELEASED,
    ROUNDING,
    TABLE_1,
    UNTESTED,
    Check,
    Claim,
    judged,
    listed,
    lossless,
    models,
    spoken,
)
from ngram_trie.site.gathered import Folder, Results

#: What the paper names as its best setting (section 4.4), and as the setting that it used (section 4.6).
BEST, USED = (13, 3), (3, 10)


def settings(results: Results) -> Iterator[Claim]:
    grid = results.paper("table2.csv")
    if grid is None:
        return
    best = grid.loc[grid.tokens_per_second.idxmax()]
    yield Claim(
        "Sections 4.4, 4.6",
        f"One setting is used: n={BEST[0]}, L_p={BEST[1]} by one section, n={USED[0]}, L_p={USED[1]} by the other.",
        FAILS,
        f"The two cannot both be true, and a match of {USED[1]} tokens does not fit a window of {USED[0]}. The best "
        f"printed cell of Table 2 is n={best.n:.0f}, L_p={best.prefix_len:.0f}, and its smallest n is {grid.n.min()}.",
        ["paper/table2.csv", "paper/README.md"],
    )


def _value(frame: pd.DataFrame) -> str:
    return "speedup" if "speedup" in frame and frame.speedup.notna().any() else "predicted_speedup"


def _is_measured(results: Results, folder: Folder) -> bool:
    """Whether its speeds can decide: of a live run of one of the paper's models."""
    return folder.engine == "live" and folder.model in models(results)


def _kind(frame: pd.DataFrame) -> str:
    """Where the speeds of `_value` are from."""
    return "measured" if _value(frame) == "speedup" else "predicted from exact accept lengths and a cost curve"


def _remark(tested: list[bool]) -> str:
    """To be said where nothing that was measured decides."""
    return "" if tested else "None of the paper's models has a live run of it under results/. "


def _cells(folder: Folder, fields: tuple[str, ...]) -> pd.DataFrame | None:
    """The rows of a sweep over `fields`, each task apart, with a column `value`: the speedup, predicted in a replay."""
    frame = folder.csv("table.csv")
    if frame is None or folder.name != folder.run or not set(fields) <= set(frame.columns):
        return None
    rows = frame[(frame.dataset != ALL) & frame[fields[0]].notna()]
    return rows.assign(value=rows[_value(rows)]).dropna(subset="value")


def optimum(results: Results) -> Iterator[Claim]:
    grid = results.paper("table2.csv")
    if grid is None:
        return
    spread = grid.tokens_per_second.max() / grid.tokens_per_second.min() - 1
    seen, is_best, files = [], [], ["paper/table2.csv"]
    for folder in results.of("grid"):
        rows = _cells(folder, ("n", "prefix_len"))
        if rows is None or rows.empty:
            continue
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            top, ours = part.loc[part.value.idxmax()], part[(part.n == BEST[0]) & (part.prefix_len == BEST[1])]
            if ours.empty:
                continue
            best = (top.n, top.prefix_len) == BEST
            # Of a measured cell the interval says whether another one can be told from it.
            alike = best or ("speedup_low" in part and bool(ours.value.iloc[0] >= top.speedup_low))
            if _is_measured(results, folder):
                is_best.append(alike)
            behind, wide = ours.value.iloc[0] / top.value - 1, top.value / part.value.min() - 1
            told = " (inside its interval)" if alike and not best else ""
            setting = f"n={top.n}, L_p={top.prefix_len}"
            parts.append(f"{dataset}: best {setting}, {BEST} {behind:+.1%}{told}, the whole grid {wide:.0%} wide")
        seen.append(f"{folder.name} ({_kind(rows)}): {listed(parts)}")
        files.append(folder.file("table.csv"))
    none = "No grid under results/; `make reproduce-table2` makes one."
    yield Claim(
        "Section 4.4, Table 2",
        f"n={BEST[0]}, L_p={BEST[1]} is the best choice, and choosing matters: printed rates are up to {spread:.0%} "
        "apart.",
        judged(is_best),
        f"{_remark(is_best)}{'. '.join(seen)}." if seen else none,
        files,
    )


def two_grids(results: Results) -> Iterator[Claim]:
    first, second = results.paper("table2.csv"), results.paper("table5.csv")
    if first is None or second is None:
        return
    keys = ["model", "dataset", "n", "prefix_len"]
    both = first.merge(second, on=keys, suffixes=("_2", "_5"))
    ratio = both.tokens_per_second_2 / both.tokens_per_second_5
    tops = [both.loc[both[f"tokens_per_second_{number}"].idxmax()] for number in (2, 5)]
    about = f"{both.model.iloc[0]} on {both.dataset.iloc[0]}"
    yield Claim(
        "Tables 2, 5",
        f"A sweep finds the best setting; {len(both)} cells, {about}, are in both tables.",
        FAILS if ratio.max() > 1.1 else HOLDS,
        f"The rates are {ratio.min():.1f} to {ratio.max():.1f} times apart, and the best cell is n={tops[0].n}, "
        f"L_p={tops[0].prefix_len} in one, n={tops[1].n}, L_p={tops[1].prefix_len} in the other: the optimum does not "
        "survive a change of load on the GPU, which the paper gives as the reason.",
        ["paper/table2.csv", "paper/table5.csv"],
    )


def num_draft(results: Results) -> Iterator[Claim]:
    printed = results.paper("table3.csv")
    if printed is None:
        return
    best = printed.loc[printed.groupby("dataset", sort=False).speedup.idxmax()]
    named = [f"{row.num_draft} on {row.dataset} ({row.speedup:.2f}x)" for row in best.itertuples()]
    seen, tested, files = [], [], ["paper/table3.csv"]
    for folder in results.of("num_draft"):
        rows = _cells(folder, ("num_draft",))
        if rows is None or rows.empty:
            continue
        top = rows.loc[rows.groupby("dataset", sort=False).value.idxmax()]
        parts = [f"{row.dataset} {row.num_draft} ({row.value:.2f}x)" for row in top.itertuples()]
        seen.append(f"{folder.name} ({_kind(rows)}): {', '.join(parts)}")
        files.append(folder.file("table.csv"))
        if folder.model == printed.model.iloc[0] and _is_measured(results, folder):
            tested.append(dict(zip(top.dataset, top.num_draft, strict=True)))
    expected = dict(zip(best.dataset, best.num_draft, strict=True))
    yield Claim(
        "Table 3",
        f"On {printed.model.iloc[0]} the best num_draft is {' and '.join(named)}; beyond 32 it only costs.",
        UNTESTED if not tested else HOLDS if all(found == expected for found in tested) else FAILS,
        "Which size is best follows from what a step costs on the device. Best here: "
        f"{listed(seen) or 'no sweep yet'}.",
        files,
    )


def noise_text(results: Results) -> Iterator[Claim]:
    printed = results.paper("table4.csv")
    if printed is None:
        return
    wide = printed.pivot(index="dataset", columns="context", values="speedup").reindex(printed.dataset.unique())
    faster = wide[wide.noisy > wide.clean]
    named = [f"{r.Index} {r.noisy:.2f}x against {r.clean:.2f}x" for r in faster.itertuples()]
    yield Claim(
        "Section 4.6, Table 4",
        "Noisy contexts reduce the gains.",
        HOLDS if faster.empty else IN_PART if len(faster) < len(wide) else FAILS,
        f"In the printed table {len(faster)} of {len(wide)} tasks are faster with noise: {listed(named)}.",
        ["paper/table4.csv"],
    )


def noise(results: Results) -> Iterator[Claim]:
    seen, keeps, files = [], [], ["paper/table4.csv"]
    for folder in results.of("table4", "table.csv"):
        frame = folder.csv("table.csv")
        if frame is None or "context" not in frame or OURS not in set(frame.method):
            continue
        rows = frame[(frame.dataset == ALL) & (frame.method == OURS)].set_index("context")
        if "clean" not in rows.index:
            continue
        rows = rows.assign(value=rows[_value(rows)])
        clean, noisy = rows.loc["clean"], rows.drop("clean")
        if _is_measured(results, folder):
            keeps.append(bool((noisy.value > 1).all()))
        parts = [
            f"{r.Index} {r.accept_length / clean.accept_length - 1:+.1%}, {r.value:.2f}x" for r in noisy.itertuples()
        ]
        seen.append(
            f"{folder.name} (speeds {_kind(rows)}): accept length {clean.accept_length:.2f}, {clean.value:.2f}x clean; "
            f"{listed(parts)}"
        )
        files.append(folder.file("table.csv"))
    none = "No run under results/; `make reproduce-table4` makes one."
    yield Claim(
        "Section 4.6",
        "The trie still speeds decoding up where contexts are noisy.",
        UNTESTED if not keeps else HOLDS if all(keeps) else FAILS,
        f"{_remark(keeps)}{'. '.join(seen)}." if seen else none,
        files,
    )


def accept_lengths(results: Results) -> Iterator[Claim]:
    seen, holds, files = [], [], []
    for folder in results.of("figures", "accept_lengths.csv"):
        frame = folder.csv("accept_lengths.csv")
        assert frame is not None
        rows = frame[(frame.method == RELEASED) & frame.dataset.isin(["summarization", "rag", *TASK_NAMES])]
        parts = []
        for dataset, part in rows.groupby("dataset", sort=False):
            shares = part.set_index("accept_length").share.sort_index()
            longest = int(shares.index.max())
            before = shares.get(longest - 1, 0.0)
            if folder.model in models(results):
                holds.append(bool(shares.idxmax() == 1 and shares[longest] > before))
            peak = f"{before:.1%} at {longest - 1}, {shares[longest]:.1%} at {longest}"
            parts.append(f"{dataset} {shares.get(1, 0.0):.0%} at 1, {peak}")
        seen.append(f"{folder.name}: {listed(parts)}")
        files.append(folder.file("accept_lengths.csv"))
    yield Claim(
        "Figure 4",
        "Most steps accept nothing, and shares fall with the accept length but for a peak at 11.",
        judged(holds),
        "The peak is the longest draft: the released trie drafts the same n - L_p = 10 tokens after every match "
        f"({RELEASED}). {'. '.join(seen)}.",
        [*files, "paper/README.md"],
    )


TASK_NAMES = ("spec_bench_summarization", "spec_bench_rag")


def time_split(results: Results) -> Iterator[Claim]:
    seen, holds, files = [], [], []
    for folder in results.of("figure5", "time_split.csv"):
        frame = folder.csv("time_split.csv")
        assert frame is not None
        mean = frame.groupby("part", sort=False)[["microseconds"]].mean().microseconds
        if folder.model in models(results):  # drafting reads tokens: over recorded answers it takes what it takes live
            holds.append(mean.idxmin() == "trie search")
        seen.append(f"{folder.name}: {', '.join(f'{name} {value:.1f} us' for name, value in mean.items())}")
        files.append(folder.file("time_split.csv"))
    yield Claim(
        "Figure 5",
        "Searching the trie costs less than processing the draft and laying out the tree.",
        UNTESTED if not holds else HOLDS if all(holds) else FAILS,
        f"Means over tasks, per step, timed over recorded answers. {listed(seen)}."
        if seen
        else "`make reproduce-figure5` measures it.",
        files or ["README.md"],
    )


def trie_time(results: Results) -> Iterator[Claim]:
    printed = results.paper("table6.csv")
    if printed is None:
        return
    seen, holds, files = [], [], ["paper/table6.csv"]
    for folder in results.of("grid"):
        rows = _cells(folder, ("n", "prefix_len"))
        if rows is None or "trie_ms" not in rows:
            continue
        trie, inference = rows.trie_ms, rows.inference_ms
        if _is_measured(results, folder):
            holds.append(bool((trie < inference).all()))
        seen.append(
            f"{folder.name}: {trie.min():.2f} to {trie.max():.2f} ms a step beside {inference.min():.1f} to "
            f"{inference.max():.1f} ms of forward and cache; indexing, once, {rows.index_ms_median.median():.2f} ms"
        )
        files.append(folder.file("table.csv"))
    yield Claim(
        "Appendix B, Table 6",
        f"Trie time ({printed.trie_ms.min():.1f} to {printed.trie_ms.max():.1f} ms) is small beside inference time "
        f"({printed.inference_ms.min():.1f} to {printed.inference_ms.max():.1f} ms).",
        UNTESTED if not holds else HOLDS if all(holds) else FAILS,
        f"Of what the printed times are averages is not said. {_remark(holds)}Here: "
        f"{listed(seen) or 'no live grid yet'}.",
        files,
    )


def chapter(results: Results) -> Iterator[Claim]:
    for folder in results.of("predictor", JSON)[:1]:  # the chapter's own numbers are the same in all
        assert folder.tables
        rows = folder.tables.published[0].rows
        off = {alpha: (row[0].value, row[-1].value) for alpha, row in rows.items()}
        off = {alpha: (printed, exact) for alpha, (printed, exact) in off.items() if abs(printed - exact) > ROUNDING}
        named = [f"{printed:.2f} at {alpha}, exactly {exact:.2f}" for alpha, (printed, exact) in off.items()]
        yield Claim(
            "Predictor chapter",
            "The expected numbers of accepted tokens follow from the acceptance rate.",
            HOLDS if not off else IN_PART if len(off) < len(rows) else FAILS,
            f"{len(off)} of the {len(rows)} printed values do not: {listed(named)}. And acceptance is not one number "
            "over the places of a draft, as the formula takes it to be.",
            [folder.file(JSON), folder.file("positions.csv")],
        )


def ngrammys(results: Results) -> Iterator[Claim]:
    printed = results.paper("ngrammys_table1.csv")
    if printed is None:
        return
    rows = printed[printed.strategy == "mixed_10_10"]
    files, seen, alike = ["paper/ngrammys_table1.csv"], [], []
    for folder in results.of("ngrammys", "table.csv"):
        frame = folder.csv("table.csv")
        if folder.name != f"{folder.run}/table1" or frame is None:
            continue
        ours = frame[frame.method.str.fullmatch(r"mixed \(10, 10\), (rows|tree)") & (frame.dataset == ALL)]
        named = [f"{row.method} {row.accept_length:.2f} tokens a call, {spoken(row)}" for row in ours.itertuples()]
        seen.append(f"{folder.name} ({folder.model}): {listed(named)}")
        files.append(folder.file("table.csv"))
        # The paper verifies rows; a tree is this project's addition.
        both = frame[frame.method == "mixed (10, 10), rows"].merge(
            rows, on=["model", "dataset"], suffixes=("", "_printed")
        )
        for row in both.itertuples():
            alike.append(abs(row.accept_length / row.tokens_per_call - 1) <= 0.1)
            alike.append(row.speedup_low <= row.speedup_printed <= row.speedup_high)
            seen.append(
                f"{row.dataset} {row.accept_length:.2f}, printed {row.tokens_per_call:.2f}, and {spoken(row)}, printed "
                f"{row.speedup_printed:.2f}x"
            )
    yield Claim(
        "N-Grammys, Table 1",
        f"Mixed (10, 10) emits {rows.tokens_per_call.min():.2f} to {rows.tokens_per_call.max():.2f} tokens a call, "
        f"{rows.speedup.min():.2f}x to {rows.speedup.max():.2f}x, on models of 3 to 13 billion parameters.",
        judged(alike),
        f"{'' if alike else 'None of its models has a run under results/. '}Here: {listed(seen) or 'nothing yet'}.",
        files,
    )


CHECKS: tuple[Check, ...] = (
    *TABLE_1, settings, optimum, two_grids, num_draft, noise_text, noise, accept_lengths, time_split, trie_time,
    chapter, ngrammys,
)  # fmt: skip


def verdicts(results: Results, audit: Audit) -> list[Claim]:
    """Every claim that the files allow to judge, in the order of the papers."""
    return [*lossless(results, audit), *(claim for check in CHECKS for claim in check(results))]
