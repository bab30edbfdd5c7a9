"""What the page derives by itself: identical answers from records, predicted beside measured speed, machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ngram_trie.records import read_records
from ngram_trie.site.gathered import MANIFEST, Results, Table, frame_table

ALL = "all"
KINDS = ("identical", "tie", "different", "failed")


class Audit(NamedTuple):
    """Answers compared with vanilla's, token by token: one row a run and method.

    Attributes:
        table: columns run, method, compared, identical, tie, different, failed.
        compared, identical, ties: sums over the project's own loop; outside decoders, of which nothing is claimed, left
            out.
        replays: runs by replay, whose loop ends with an error at the first token that is not the recorded one.
    """

    table: pd.DataFrame
    compared: int
    identical: int
    ties: int
    replays: list[str]


def losslessness(results: Results) -> Audit:
    """Count the verdicts in every records.jsonl, an answer each; without one, those in table.json, a prompt each. Cells
    of a sweep, "method[n=8]", are counted as their method.

    Raises:
        ValueError: a line that is no record; the message names file and line.
    """
    rows: list[Mapping[str, object]] = []
    replays = []
    for folder in results.folders:
        path = folder.path / "records.jsonl"
        if folder.engine == "replay":
            if (folder.path / MANIFEST).is_file():
                replays.append(folder.name)
            continue
        counts: Counter[tuple[str, bool, str]] = Counter()
        if path.is_file():
            for record in read_records(path):
                if record.method != record.baseline:
                    kind = "failed" if record.failure else record.lossless.verdict if record.lossless else ""
                    counts[record.method.partition("[")[0], record.kind == "decoder", kind] += 1
        elif (folder.path / MANIFEST).is_file() and folder.tables:
            for method, each in folder.tables.lossless.items():
                if not each.is_baseline:
                    numbers = (each.identical, each.ties, each.different, each.failed)
                    counts.update({(method, each.is_control, kind): n for kind, n in zip(KINDS, numbers, strict=True)})
        for method, outside in dict.fromkeys(key[:2] for key in counts):
            found = {kind: counts[method, outside, kind] for kind in KINDS}
            about = {"run": folder.name, "method": method, "loop": "its own" if outside else "shared"}
            rows.append({**about, "compared": sum(found.values()) - found["failed"], **found})
    table = pd.DataFrame(rows, columns=["run", "method", "loop", "compared", *KINDS])
    ours = table[table.loop == "shared"]
    return Audit(table, int(ours.compared.sum()), int(ours.identical.sum()), int(ours.tie.sum()), replays)


class Point(NamedTuple):
    """A method's predicted and measured speedup, over all tasks of a run."""

    run: str
    method: str
    predicted: float
    measured: float
    low: float
    high: float


class Prediction(NamedTuple):
    """How far predicted speedups are from measured ones in one run."""

    run: str
    points: list[Point]
    table: Table
    details: Table
    median_error: float
    worst_error: float
    inside: int


def predictions(results: Results) -> list[Prediction]:
    """One for each run that has both; vanilla, which is 1 by definition, left out."""
    found = []
    for folder in results.folders:
        frame = folder.csv("predicted.csv")
        if frame is None or "measured_speedup" not in frame:
            continue
        frame = frame[~frame.method.str.endswith("vanilla") & frame.measured_speedup.notna()]
        rows = frame[frame.dataset == ALL].drop(columns="dataset")
        if rows.empty:
            continue
        columns = ["method", "predicted_speedup", "measured_speedup", "measured_low", "measured_high"]
        points = [Point(folder.name, *row) for row in rows[columns].itertuples(index=False)]
        errors = rows.error.to_numpy(float)
        file = folder.file("predicted.csv")
        found.append(
            Prediction(
                folder.name,
                points,
                frame_table(rows, f"{folder.name}, all tasks", file),
                frame_table(frame[frame.dataset != ALL], f"{folder.name}, each task", file),
                float(np.median(np.abs(errors))),
                float(errors[np.abs(errors).argmax()]),
                sum(point.low <= point.predicted <= point.high for point in points),
            )
        )
    return found


SIZE, EDGE = 320.0, 34.0


def scatter(points: Iterable[Point]) -> Mapping[str, object]:
    """Places of `points` in a square of SIZE with axes from 0 to beyond the largest value: measured to the right,
    predicted up.
    """
    points = list(points)
    finite = [value for point in points for value in (point.predicted, point.high) if np.isfinite(value)]
    top = np.ceil(2 * max(finite, default=1.0)) / 2

    def place(value: float) -> float:
        return round(EDGE + (SIZE - 2 * EDGE) * value / top, 1)

    marks = [
        {
            "x": place(point.measured),
            "y": SIZE - place(point.predicted),
            "low": place(point.low if np.isfinite(point.low) else point.measured),
            "high": place(point.high if np.isfinite(point.high) else point.measured),
            "point": point,
        }
        for point in points
    ]
    ticks = [(f"{value:g}", place(value), SIZE - place(value)) for value in np.arange(0.5, top + 0.01, 0.5)]
    return {"marks": marks, "ticks": ticks, "size": SIZE, "edge": EDGE, "far": SIZE - EDGE}


def machines(results: Results) -> Table:
    """One row for each run with a manifest: what ran where, when, from which commit."""
    rows = []
    for folder in results.folders:
        for label, about in folder.manifests():
            versions = about.get("versions", {})
            rows.append(
                {
                    "run": "/".join(filter(None, [folder.name, label])),
                    "model": about["model"] if label else folder.model,
                    "engine": folder.engine or "-",
                    "device": about.get("device", "-"),
                    "started": started(about),
                    "commit": commit(about),
                    "libraries": ", ".join(f"{name} {versions[name]}" for name in LIBRARIES if name in versions),
                    "run id": about.get("run", "-"),
                }
            )
    return frame_table(pd.DataFrame(rows), "Runs and machines", "")


LIBRARIES = ("python", "torch", "transformers", "numba")


def commit(about: Mapping[str, Any]) -> str:
    """The commit of a manifest in short, and whether the working tree differed from it."""
    return f"{str(about.get('commit') or '-')[:10]}{' (changed files)' if about.get('dirty') else ''}"


def started(about: Mapping[str, Any]) -> str:
    """When a manifest's run began, UTC, to the minute."""
    return str(about.get("started") or "-")[:16].replace("T", " ")
