"""What the papers' printed numbers decide by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from ngram_trie.report.expected_accept import PRINTED_DRAFT, chapter_table
from ngram_trie.site.evidence import Claim, Evidence, frames, listed, span
from ngram_trie.site.gathered import Results

ROUNDING = 0.005 + 1e-9  # half a unit of the second decimal
#: What the N-Gram-Trie paper names as its best setting (section 4.4).
BEST = (13, 3)


def released_code(results: Results) -> Iterator[Claim]:
    """The claims about the released code, which are data: results/paper/claims.csv."""
    rows = results.paper("claims.csv")
    for row in () if rows is None else rows.itertuples(index=False):
        yield Claim(row.where, row.claim, row.verdict, row.why, row.files.split())


def means(results: Results) -> Iterator[Claim]:
    cells, printed = results.paper("table1.csv"), results.paper("table1_mean_speedup.csv")
    if cells is None or printed is None:
        return
    rows = printed.merge(cells.groupby(["model", "method"]).speedup.mean().rename("mean").reset_index())
    fits = (rows["mean"] - rows.mean_speedup).abs() <= ROUNDING
    found = Evidence("paper/table1.csv", "paper/table1_mean_speedup.csv")
    found.tested += fits.tolist()
    for row in rows[~fits].to_dict("records"):
        where, is_printed = f"{row['method']} on {row['model']}", f"printed {row['mean_speedup']:.2f}x"
        found.seen.append(f"{where}: the cells average {row['mean']:.2f}x, {is_printed}")
    yield found.judged("means", {"fits": fits.sum(), "rows": len(rows)}, partly=True)


def settings(results: Results) -> Iterator[Claim]:
    grid = results.paper("table2.csv")
    if grid is None:
        return
    best = grid.loc[grid.tokens_per_second.idxmax()]
    found = Evidence("paper/table2.csv", "paper/README.md")
    found.tested.append(False)  # the two sections say so
    yield found.judged("settings", {"n": best.n, "prefix_len": best.prefix_len, "smallest": grid.n.min()})


def sweeps(results: Results) -> Iterator[Claim]:
    grid, again = results.paper("table2.csv"), results.paper("table5.csv")
    if grid is None or again is None:
        return
    cell = ["model", "dataset", "n", "prefix_len"]
    both = grid.merge(again, on=cell, suffixes=("_first", "_again"))
    ratio = both.tokens_per_second_first / both.tokens_per_second_again
    first, other = (both.loc[both[f"tokens_per_second_{name}"].idxmax()] for name in ("first", "again"))
    found = Evidence("paper/table2.csv", "paper/table5.csv")
    found.tested.append(bool((first[cell] == other[cell]).all()))
    said = {"cells": len(both), "where": f"{first.model} on {first.dataset}", "apart": span(ratio)}
    bests = {name: f"n={row.n}, L_p={row.prefix_len}" for name, row in (("best", first), ("other", other))}
    yield found.judged("sweeps", said | bests)


def noisy(results: Results) -> Iterator[Claim]:
    cells = results.paper("table4.csv")
    if cells is None:
        return
    wide = cells.pivot(index="dataset", columns="context", values="speedup")
    slower = wide.noisy < wide.clean
    found = Evidence("paper/table4.csv")
    found.tested += slower.tolist()
    found.seen += [f"{row.Index} {row.noisy:.2f}x against {row.clean:.2f}x" for row in wide[~slower].itertuples()]
    yield found.judged("noisy", {"faster": (~slower).sum(), "tasks": len(wide)}, partly=True)


def expected_tokens(results: Results) -> Iterator[Claim]:
    table = chapter_table()
    fits = (table["chapter prints"] - table.exact).abs() <= ROUNDING
    found = Evidence(*(folder.file("positions.csv") for folder, _ in frames(results, "predictor", "positions.csv")))
    found.tested += fits.tolist()
    for _, row in table[~fits].iterrows():
        found.seen.append(f"{row['chapter prints']:.2f} at {row.alpha:g}, exactly {row.exact:.2f}")
    if found.files:
        said = {"wrong": (~fits).sum(), "rows": len(table), "num_draft": PRINTED_DRAFT}
        yield found.judged("expected_tokens", said, partly=True)


def twice(results: Results) -> Iterator[Claim]:
    """N-Grammys: more than 2x but for one cell."""
    rows = results.paper("ngrammys_table1.csv")
    if rows is None:
        return
    best = rows[rows.strategy == "mixed_best"]
    below = best[best.speedup <= 2]
    exception = (below.model.str.contains("7b") & (below.dataset == "mt_bench")).tolist()
    found = Evidence("paper/ngrammys_table1.csv")
    found.tested.append(exception == [True])
    cells = listed(f"{row.model} on {row.dataset} {row.speedup:.2f}x" for row in below.itertuples())
    yield found.judged("twice", {"cells": len(best), "below": cells, "num_below": len(below)})


#: Those of the N-Gram-Trie paper; `chapters` has the others in its list.
CHECKS = (released_code, means, settings, sweeps, noisy)
