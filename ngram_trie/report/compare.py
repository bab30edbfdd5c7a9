"""Two runs side by side: what differs in settings, code and machine, and in numbers, question by question; or two
methods of one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ngram_trie.bench import metrics, pairwise
from ngram_trie.bench.measures import SPEEDUP, Value, compared, measure
from ngram_trie.report.blocks import Block, Cell, Tables
from ngram_trie.report.run_folder import RunFolder, flatten
from ngram_trie.store.files import content_hash


def settings(a: RunFolder, b: RunFolder) -> list[tuple[str, str, str]]:
    """What is not alike beside the records: name, of `a`, of `b`."""
    first, second = _about(a), _about(b)
    names = dict.fromkeys([*first, *second])
    return [
        (name, first.get(name, "-"), second.get(name, "-")) for name in names if first.get(name) != second.get(name)
    ]


def _about(run: RunFolder) -> dict[str, str]:
    manifest = run.manifest
    about: dict[str, Any] = {
        "model (weights)": manifest.model,
        "prompts": manifest.prompts,
        "commit": manifest.commit,
        "uncommitted changes": manifest.dirty,
        "device": manifest.device,
        "threads": manifest.num_threads,
        **{f"version of {name}": version for name, version in manifest.versions.items()},
        **manifest.environment,
        **flatten(manifest.config),
    }
    return {name: str(value) for name, value in about.items()}


def numbers(a: RunFolder, b: RunFolder) -> pd.DataFrame:
    """One row for each method that both have, and measure: rows of `pairwise`, the method in a column `method`,
    ratios of `b` over `a` with their paired intervals over the questions that both have answered.

    Raises:
        ValueError: they have no method or no question in common.
    """
    rows = []
    for method in [name for name in a.methods() if name in b.methods()]:
        parts = [_renamed(a, method, "a"), _renamed(b, method, "b")]
        frame = pd.concat(parts, ignore_index=True)
        found = pairwise.pairwise(frame, compared(frame, a.is_measured and b.is_measured), ["b", "a"])
        rows.append(found[found.dataset == metrics.ALL].assign(method=method))
    table = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=["method"])
    if table.empty:
        raise ValueError(f"{a.path} and {b.path}: no method has answered the same questions in both")
    for _, family in table.groupby("measure", sort=False):  # one family is all methods that are compared
        table.loc[family.index, "p_holm"] = pairwise.holm(family.p.to_numpy(float))
    return table.assign(significant=(table.p_holm < pairwise.LEVEL) & pairwise.apart(table))


def _renamed(run: RunFolder, method: str, name: str) -> pd.DataFrame:
    frame = run.frame[run.frame.method == method]
    return frame.assign(method=name, baseline="vanilla")


def answers(a: RunFolder, b: RunFolder) -> Mapping[str, tuple[int, int]]:
    """By method, how many answers to the same prompts have the same tokens, and how many there are in both."""
    first, second = (
        {r.key: (r.prompt_hash, content_hash(r.output_ids)) for r in run.records if not r.failure} for run in (a, b)
    )
    found: dict[str, tuple[int, int]] = {}
    for key in first.keys() & second.keys():
        if first[key][0] == second[key][0]:
            same, all_ = found.get(key.method, (0, 0))
            found[key.method] = (same + (first[key] == second[key]), all_ + 1)
    return {method: found[method] for method in a.methods() if method in found}


def tables(a: RunFolder, b: RunFolder, table: pd.DataFrame) -> Tables:
    """Both as blocks, to be printed."""
    equal = answers(a, b)
    measures = list(table.measure.unique())
    columns = ["tokens per second" if name == SPEEDUP else measure(name).title for name in measures]
    rows: dict[str, list[Cell]] = {}
    verdicts = []
    for method, part in table.groupby("method", sort=False):
        by_measure = {row.measure: row for row in part.itertuples()}
        shown = [by_measure[name] for name in measures]
        rows[str(method)] = [{SPEEDUP: Value(row.ratio, row.low, row.high)} for row in shown]
        verdicts.append(", ".join("differs" if row.significant else "not separated" for row in shown))
    same = [f"{equal[name][0]} of {equal[name][1]}" if name in equal else "-" for name in rows]
    notes = [
        f"Cell: ratio of {b.path.name} over {a.path.name} [95% interval, paired over questions]. "
        "Verdicts in the order of the columns: p below 0.05 after Holm's correction over the methods.",
        "Same tokens: answers to the same prompts whose tokens are equal.",
    ]
    if a.manifest.prompts != b.manifest.prompts:
        notes.append("The runs have other prompts: only questions of the same data set and id are compared.")
    lead = {"verdict": verdicts, "same tokens": same}
    block = Block(f"{b.path.name} over {a.path.name}", columns, rows, notes, lead=lead)
    return Tables([block])


def settings_text(a: RunFolder, b: RunFolder) -> str:
    """What differs, a line each."""
    lines = [f"  {name}: {one} -> {other}" for name, one, other in settings(a, b)]
    return "\n".join([f"{a.path} -> {b.path}", *(lines or ["  no setting, version or machine differs"])])


def methods(run: RunFolder, a: str, b: str) -> str:
    """The ratio of method `a` to method `b` for each measure and data set, with interval and corrected p, as text.

    Raises:
        ValueError: a method that the run does not have.
    """
    rows = pairwise.between(pairwise.pairwise(run.frame, compared(run.frame, run.is_measured), run.methods()), a, b)
    columns = ["measure", "dataset", "ratio", "low", "high", "p", "p_holm", "significant", "session_min", "session_max"]
    rows = rows[[*columns, "num_questions", "num_sessions"]].sort_values("measure", kind="stable")
    return rows.to_string(index=False, float_format=lambda value: f"{value:.4g}")
