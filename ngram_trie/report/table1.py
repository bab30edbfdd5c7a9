"""Table 1 of the n-gram trie paper, from records: as data, and as blocks to print, one for each model and protocol; the
quality that the answers keep; published, released and corrected numbers side by side; and what Table 4 compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ngram_trie.bench import metrics, quality
from ngram_trie.bench.measures import ACCEPT_LENGTH, SHARE, SPEEDUP, Value, known, row_of
from ngram_trie.bench.metrics import ALL
from ngram_trie.report.blocks import WORDS, Block, Cell, cell_of, leads_of
from ngram_trie.store.files import PAPER

#: Columns beside the measures.
ABOUT = ["model", "method", "group", "dataset", "task", "context"]
COUNTS = [
    "num_prompts", "num_sessions", "num_failures", "num_disturbed", "lossless", "state", "baseline", "protocol",
    "device",
]  # fmt: skip


#: Stands in place of a group in the row of a method that has answered nothing.
NOT_RUN = "not run"


def contexts(frame: pd.DataFrame, datasets: Sequence[str] | None = None) -> dict[str, list[str]]:
    """The datasets of rows `dataset, context` by their context, the clean ones first where there are any.

    Args:
        datasets: which, and in which order; one without rows is a clean one.
    """
    known = _contexts_of(frame)
    parts: dict[str, list[str]] = {metrics.CLEAN: []}
    for dataset in datasets or known:
        parts.setdefault(known.get(dataset, metrics.CLEAN), []).append(dataset)
    return {context: names for context, names in parts.items() if names}


def _contexts_of(frame: pd.DataFrame) -> dict[str, str]:
    return dict(zip(frame.dataset, frame.context, strict=True))


def is_pooled(frame: pd.DataFrame) -> pd.Series:
    """Which rows are of all datasets of a context."""
    return frame.task == ALL


def table1(
    frame: pd.DataFrame,
    protocol: str,
    model: str,
    device: str,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
) -> pd.DataFrame:
    """One row for each method and dataset, and one with dataset "all": every prompt of every dataset, pooled. Datasets
    with noisy contexts hold the prompts of others again, so each context has an "all" of its own, see `metrics.pooled`.
    Under the released protocol its numbers are nan: each data set's come about in a way of their own, and the authors
    print none over all. Quality is not in the records: its columns are nan until `with_quality` fills them.

    Args:
        frame: answers of one run or more, see `metrics.to_frame`; those of other models are left out.
        protocol: "corrected" or "released"; see `metrics.under_protocol`.
        model: as in the records.
        device: what it ran on, in words.
        methods, datasets: which, and in which order; those of the records, as they come, unless given. One without
            records gets a row of nan and num_prompts 0.

    Raises:
        ValueError: no record of this model, or an unknown protocol.
    """
    if model not in set(frame.model):
        raise ValueError(f"no records of model {model!r}; the records have {sorted(frame.model.unique())}")
    frame = metrics.under_protocol(frame[frame.model == model], protocol)
    measures = known(frame, is_measured=True)
    tasks = dict(zip(frame.dataset, frame.task, strict=True))
    columns = [
        column
        for context, names in contexts(frame, datasets).items()
        for column in [*((name, tasks.get(name, name), context) for name in names), (None, ALL, context)]
    ]
    rows = []
    for method in methods or list(frame.method.unique()):
        for dataset, task, context in columns:
            part = frame[frame.dataset == dataset] if dataset else frame[frame.context == context]
            about = {"dataset": dataset or metrics.pooled(context), "task": task, "context": context}
            row: dict[str, object] = {"model": model, "method": method, **about, "protocol": protocol, "device": device}
            numbers = row_of(part, method, measures)
            row |= dict.fromkeys(numbers, np.nan) if protocol == "released" and task == ALL else numbers
            answers = part[part.method == method]
            row |= {name: metric(answers) for name, metric in metrics.METRICS.items()}
            rows.append(row | dict.fromkeys(quality.MEASURES, np.nan))
    return pd.DataFrame(rows, columns=[*ABOUT, *numbers, *COUNTS, *quality.MEASURES])


def block(
    frame: pd.DataFrame,
    title: str,
    labels: Mapping[str, str],
    notes: list[str],
    marks: Mapping[tuple[str, str, str], int] | None = None,
    lead: Mapping[str, list[str]] | None = None,
) -> Block:
    """Lay out rows with `method`, `dataset`, `speedup`, `accept_length`, and with intervals if there are any.

    Args:
        labels: method -> how its row is named, in the order of rows.
        marks: `pairwise.standings`: what is named best.
        lead: as in `Block`.
    """
    columns = list(frame.dataset.unique())
    rows: dict[str, list[Cell]] = {label: [] for label in labels.values()}
    for dataset in columns:
        part = frame[frame.dataset == dataset].set_index("method").reindex(list(labels))
        for label, (method, row) in zip(rows, part.iterrows(), strict=True):
            rows[label].append(cell_of(row, (SPEEDUP, ACCEPT_LENGTH), dataset, str(method), marks))
    return Block(title, columns, rows, notes, lead=dict(lead or {}))


def measured_blocks(
    frame: pd.DataFrame,
    num_repeats: int,
    notes: Sequence[str] = (),
    marks: Mapping[tuple[str, str, str], int] | None = None,
) -> Iterator[Block]:
    """A block for each model, protocol and context of a frame of `table1` rows, with `notes` below the usual ones.
    `marks` are of the corrected protocol.
    """
    for (protocol, model, name), part in frame.groupby(["protocol", "model", "context"], sort=False):
        title = ", ".join([str(model), f"{protocol} protocol", *([] if name == metrics.CLEAN else [str(name)])])
        own = protocol == "corrected"
        shown = part if own else part[~is_pooled(part)]
        below = [*_notes(part, protocol, num_repeats), *notes]
        yield block(shown, title, _labels(part), below, marks if own else None, _lead(part, nodes=own))


def agreements(frame: pd.DataFrame) -> dict[str, metrics.Agreement]:
    """How each method's answers compare with vanilla's, over all datasets of clean contexts."""
    rows = frame[(frame.dataset == ALL) & (frame.protocol == "corrected")]
    return dict(zip(rows.method, rows.lossless, strict=True))


def _labels(part: pd.DataFrame) -> dict[str, str]:
    """How each method of `table1` rows is named, group by group: † stands behind an outside system."""
    rows = sorted(part[is_pooled(part)].itertuples(), key=lambda row: metrics.group_order(row.group))
    return {row.method: f"{row.method}{'†' if row.lossless.is_control else ''}" for row in rows}


def _lead(part: pd.DataFrame, nodes: bool = False) -> dict[str, list[str]]:
    """Of each method of `_labels` the group and, where `nodes` are asked for, what leads a row (`leads_of`)."""
    rows = part[is_pooled(part)].drop_duplicates("method").set_index("method").loc[list(_labels(part))]
    return {"group": list(rows.group)} | (leads_of(rows) if nodes else {})


def _outside_note(labels: dict[str, str]) -> list[str]:
    return [WORDS["notes"]["outside"]] if any("†" in label for label in labels.values()) else []


def _notes(part: pd.DataFrame, protocol: str, num_repeats: int) -> list[str]:
    notes = [WORDS["notes"][name] for name in (["released"] if protocol == "released" else []) + ["cell"]]
    everything = part[is_pooled(part)]
    own = everything[~everything.baseline.isin(["vanilla", "-"]) & (everything.method != everything.baseline)]
    if len(own):
        listed = "; ".join(f"{row.method} over {row.baseline}" for row in own.itertuples())
        notes.append(f"Compared with a vanilla of their own: {listed}.")
    notes += _outside_note(_labels(part))
    counts = part.groupby("dataset", sort=False).num_prompts.max()
    notes.append(
        f"Device: {', '.join(part.device.unique())}. "
        f"Prompts: {', '.join(f'{dataset} {count}' for dataset, count in counts.items())}. "
        f"Repeats of each: {num_repeats}."
    )
    plain = everything[everything.method == everything.baseline]
    if protocol == "corrected" and plain.prefill_share.notna().any():
        notes.append(f"Prefill is {plain.prefill_share.iloc[0]:.0%} of {plain.method.iloc[0]}'s time over all tasks.")
    others = everything[everything.method != everything.baseline]
    if protocol == "corrected" and others.speedup_session_sd.notna().any():
        largest = others.loc[others.speedup_session_sd.idxmax()]
        notes.append(
            f"Sessions: {everything.num_sessions.max()}. Standard deviation of the speedup over all tasks between "
            f"sessions: {others.speedup_session_sd.median():.3f} in the median of methods, "
            f"{largest.speedup_session_sd:.3f} at most ({largest.method})."
        )
    if protocol == "corrected" and everything.num_disturbed.notna().any():
        notes.append(
            "Answers that other work on the machine disturbed, measured up to three times: "
            f"{everything.num_disturbed.sum():.0f}."
        )
    failed = part[(part.num_failures > 0) & ~is_pooled(part)]
    if len(failed):
        listed = "; ".join(f"{row.method} on {row.dataset}: {row.num_failures}" for row in failed.itertuples())
        notes.append(f"Prompts that failed, excluded from the averages: {listed}.")
    others = everything[everything.num_prompts > 0]
    verdicts = [f"{row.method} {row.lossless}" for row in others.itertuples() if not row.lossless.is_baseline]
    if verdicts:
        listed = "; ".join(verdicts)
        notes.append(f"Prompts answered with exactly vanilla's tokens: {listed}.")
    return notes


def paper_blocks() -> Iterator[Block]:
    """A block for each model of the paper's Table 1; the last column is the mean as the paper prints it."""
    cells = pd.read_csv(PAPER / "table1.csv")
    means = pd.read_csv(PAPER / "table1_mean_speedup.csv").rename(columns={"mean_speedup": "speedup"})
    rows = pd.concat([cells, means.assign(dataset="printed mean")])
    computed = cells.groupby(["model", "method"]).speedup.mean()
    for model, part in rows.groupby("model", sort=False):
        notes = ["Cell: speedup (accept length), both as printed in the paper; it gives no intervals."]
        for row in means[means.model == model].itertuples():
            # Half a unit of the second decimal is rounding.
            if abs(computed[row.model, row.method] - row.speedup) > 0.005 + 1e-9:
                mean = computed[row.model, row.method]
                notes.append(f"{row.method}: the cells average {mean:.2f}x, the paper prints {row.speedup:.2f}x.")
        yield block(part, str(model), {method: method for method in part.method.unique()}, notes)


def with_quality(frame: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """`table1` rows with the means of `quality.score`'s rows, from 0 to 1. Those of the released protocol stay without:
    the released code measures none.
    """
    measures = list(quality.MEASURES)
    together = scores.dataset.map({name: metrics.pooled(context) for name, context in _contexts_of(frame).items()})
    means = pd.concat([scores, scores.assign(dataset=together)]).groupby(["method", "dataset"])[measures].mean()
    means = frame[["method", "dataset"]].merge(means.reset_index(), how="left", on=["method", "dataset"])
    corrected = (frame.protocol == "corrected").to_numpy()
    return frame.assign(**{name: np.where(corrected, means[name], np.nan) for name in measures})


def quality_blocks(frame: pd.DataFrame, scores: pd.DataFrame) -> Iterator[Block]:
    """The quality that every method's answers keep, vanilla first: a block for each context, none where nothing could
    be compared.

    Args:
        frame: rows of `with_quality`, of one model.
        scores: rows of `quality.score`.
    """
    for context, names in contexts(frame).items():
        if block := _quality_block(frame[frame.dataset.isin(names)], scores, context):
            yield block


def _quality_block(frame: pd.DataFrame, scores: pd.DataFrame, context: str) -> Block | None:
    rows = frame[frame.protocol == "corrected"].set_index(["method", "dataset"])
    columns = [
        (dataset, measure)
        for dataset in frame.dataset[~is_pooled(frame)].unique()
        for measure in quality.MEASURES
        if rows.xs(dataset, level="dataset")[measure].notna().any()
    ]
    if not columns:
        return None
    corrected = frame[frame.protocol == "corrected"]
    labels = _labels(corrected)
    cells = {
        label: [{SHARE: Value(100 * rows.loc[(method, dataset), measure])} for dataset, measure in columns]
        for method, label in labels.items()
    }
    baselines = frame.drop_duplicates("method").set_index("method").baseline.to_dict()
    explained = [WORDS["notes"][name] for name in quality.MEASURES if name in {measure for _, measure in columns}]
    notes = [
        " ".join(["Means over prompts.", *explained]),
        *_quality_change(scores, baselines, columns),
        *_outside_note(labels),
    ]
    titles = [f"{dataset}: {WORDS['measures'][measure]}" for dataset, measure in columns]
    title = ", ".join([frame.model.iloc[0], "quality kept", *([] if context == metrics.CLEAN else [context])])
    return Block(title, titles, cells, notes, measures=[SHARE], lead=_lead(corrected))


def _quality_change(
    scores: pd.DataFrame, baselines: dict[str, str], columns: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """In words, how far each method's means are from its vanilla's, over the prompts that both have answered."""
    answers = scores.set_index(list(quality.KEYS))[list(quality.MEASURES)]
    known = set(scores.method)
    equal, moved = [], []
    for method, vanilla in baselines.items():
        if method == vanilla or not {method, vanilla} <= known:
            continue
        # Rows of prompts that one of the two has not answered are nan, and no part of the mean.
        means = (answers.loc[method] - answers.loc[vanilla]).groupby("dataset").mean()
        points = {column: 100 * means.loc[column] for column in columns if column[0] in means.index}
        listed = [
            f"{dataset} {WORDS['measures'][measure]} {change:+.2f}"
            for (dataset, measure), change in points.items()
            if abs(change) >= 0.005
        ]
        if listed:
            moved.append(f"{method} {', '.join(listed)}")
        else:
            equal.append(method)
    if equal:
        yield (
            "Means equal to vanilla's (of a method with a vanilla of its own, to that one's) in every column, which is "
            f"so by construction where decoding is lossless, and is measured here: {', '.join(equal)}."
        )
    if moved:
        yield f"Means that differ from vanilla's, in percentage points: {'; '.join(moved)}."


READING_COLUMNS = [
    "model", "method", "dataset", "reading", "speedup", "speedup_low", "speedup_high", "accept_length", "source",
]  # fmt: skip
READINGS = ("paper", "released", "corrected")


def readings(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell of `table1` rows three times, READING_COLUMNS: as the paper prints it ("published"), under the
    released protocol and under the corrected one ("measured"). The paper's cells are those of the same model, method
    and dataset; it has none for many, and none pooled over the datasets.
    """
    cells = frame[~is_pooled(frame)]
    keys = ["model", "method", "dataset"]
    published = pd.read_csv(PAPER / "table1.csv").merge(cells[keys].drop_duplicates(), on=keys)
    parts = [
        published.assign(reading="paper", source="published"),
        cells.assign(reading=cells.protocol, source="measured"),
    ]
    rows = pd.concat([part.reindex(columns=READING_COLUMNS) for part in parts if len(part)])
    orders = {name: list(cells[name].unique()) for name in keys} | {"reading": list(READINGS)}
    return rows.sort_values(list(orders), key=lambda values: values.map(orders[values.name].index), ignore_index=True)


def readings_block(frame: pd.DataFrame) -> Block:
    """The rows of `readings` side by side, the paper's columns where it has a cell.

    Args:
        frame: rows of `table1` under both protocols, of one model.
    """
    labels = _labels(frame[frame.protocol == "corrected"])
    rows = readings(frame)
    order = [f"{dataset}: {reading}" for dataset in rows.dataset.unique() for reading in READINGS]
    rows = rows.assign(dataset=rows.dataset + ": " + rows.reading).sort_values(
        "dataset", key=lambda names: names.map(order.index), kind="stable"
    )
    notes = [WORDS["notes"]["readings"], *_outside_note(labels)]
    if (rows.source == "published").any():
        notes.insert(0, WORDS["notes"]["published"])
        if "ngram_trie_released" in labels:
            notes.append(WORDS["notes"]["ran"])
    else:
        notes.append(f"The paper's Table 1 has no cell of {frame.model.iloc[0]} on these datasets.")
    title = " / ".join(name for name in READINGS if name in set(rows.reading))
    lead = _lead(frame[frame.protocol == "corrected"])
    return block(rows, f"{frame.model.iloc[0]}, {title}", labels, notes, lead=lead)


def by_context(frame: pd.DataFrame) -> pd.DataFrame:
    """What Table 4 compares: the rows with the task as `dataset`, ordered by method and context.

    Args:
        frame: rows with `method`, `dataset`, `task` and `context`, such as those of `table1`.
    """
    rows = frame.assign(dataset=frame.task).drop(columns="task")
    orders = {"method": list(rows.method.unique()), "context": list(contexts(frame))}
    order = {"key": lambda values: values.map(orders[values.name].index), "kind": "stable"}
    return rows.sort_values(list(orders), ignore_index=True, **order)


def context_change(frame: pd.DataFrame) -> str:
    """In words, what noise does to each method's accept length over all tasks; empty without clean and noisy rows.

    Args:
        frame: rows `method, context, dataset, accept_length`.
    """
    lengths = frame[frame.dataset == ALL].pivot(index="method", columns="context", values="accept_length")
    noisy = [context for context in frame.context.unique() if context != metrics.CLEAN]
    if not noisy or metrics.CLEAN not in lengths:
        return ""
    listed = []
    for method, row in lengths.reindex(frame.method.unique()).iterrows():
        changes = [f"{name} {row[name]:.2f} ({row[name] / row[metrics.CLEAN] - 1:+.1%})" for name in noisy]
        listed.append(f"{method} {row[metrics.CLEAN]:.2f}, {', '.join(changes)}")
    return f"Accept length over all tasks, clean and its change with noise: {'; '.join(listed)}."


def paper_contexts() -> pd.DataFrame:
    """The paper's Table 4: rows `model, method, context, dataset, speedup`, clean before noisy."""
    return pd.read_csv(PAPER / "table4.csv").sort_values("context", kind="stable").assign(method="ngram_trie")


def paper_contexts_note(frame: pd.DataFrame) -> str:
    """Where the paper's Table 4 contradicts its text (results/paper/README.md); rows of `paper_contexts`."""
    cells = frame.pivot(index="dataset", columns="context", values="speedup").reindex(frame.dataset.unique())
    faster = "; ".join(
        f"{row.Index} {row.noisy:.2f}x against {row.clean:.2f}x" for row in cells.itertuples() if row.noisy > row.clean
    )
    return f"The paper's text says that noise reduces the gains, yet in its table it makes these faster: {faster}."
