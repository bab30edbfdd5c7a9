"""Table 1 of the n-gram trie paper, from records: as data, and as blocks to print, one for each model and protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from ngram_trie import metrics
from ngram_trie.markup import Block, Cell, ranks
from ngram_trie.records import PromptRecord

COLUMNS = [
    "model", "method", "dataset", "speedup", "speedup_low", "speedup_high", "accept_length", "accept_length_macro",
    "tokens_per_second", "num_prompts", "num_failures", "lossless", "state", "baseline", "protocol", "device",
]  # fmt: skip
ALL = "all"
PAPER = Path(__file__).parents[1] / "results" / "paper"


def table1(
    records: Iterable[PromptRecord],
    protocol: str,
    model: str,
    device: str,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
) -> pd.DataFrame:
    """One row for each method and dataset, and one with dataset "all": every prompt of every dataset, pooled.

    Args:
        records: of one run or more; those of other models are left out.
        protocol: "corrected" or "released"; see `metrics.under_protocol`.
        model: as in the records.
        device: what it ran on, in words.
        methods, datasets: which, and in which order; those of the records, as they come, unless given. One without
            records gets a row of nan and num_prompts 0.

    Raises:
        ValueError: no record of this model, or an unknown protocol.
    """
    frame = metrics.to_frame(records)
    if model not in set(frame.model):
        raise ValueError(f"no records of model {model!r}; the records have {sorted(frame.model.unique())}")
    frame = metrics.under_protocol(frame[frame.model == model], protocol)
    rows = []
    for method in methods or list(frame.method.unique()):
        for dataset in [*(datasets or frame.dataset.unique()), ALL]:
            part = frame if dataset == ALL else frame[frame.dataset == dataset]
            ratio, low, high = metrics.speedup(part, method)
            row = {"model": model, "method": method, "dataset": dataset, "protocol": protocol, "device": device}
            row |= {"speedup": ratio, "speedup_low": low, "speedup_high": high}
            answers = part[part.method == method]
            row |= {name: metric.function(answers) for name, metric in metrics.METRICS.items() if name in COLUMNS}
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def block(frame: pd.DataFrame, title: str, labels: dict[str, str], notes: list[str]) -> Block:
    """Lay out rows with `method`, `dataset`, `speedup`, `accept_length`, and with intervals if there are any."""
    frame = frame.reindex(columns=["method", "dataset", "speedup", "speedup_low", "speedup_high", "accept_length"])
    columns = list(frame.dataset.unique())
    rows: dict[str, list[Cell]] = {label: [] for label in labels.values()}
    for dataset in columns:
        part = frame[frame.dataset == dataset].set_index("method").reindex(list(labels))
        marks = zip(ranks(part.speedup), ranks(part.accept_length), strict=True)
        for label, row, mark in zip(rows, part.itertuples(), marks, strict=True):
            rows[label].append(Cell(row.speedup, row.speedup_low, row.speedup_high, row.accept_length, *mark))
    return Block(title, columns, rows, notes)


def measured_blocks(frame: pd.DataFrame, num_repeats: int, notes: Sequence[str] = ()) -> Iterator[Block]:
    """A block for each model and protocol of a frame of `table1` rows, with `notes` below the usual ones."""
    for (protocol, model), part in frame.groupby(["protocol", "model"], sort=False):
        pooled = part[part.dataset == ALL].set_index("method")
        outside = pooled.lossless.str.startswith("control")
        labels = {}
        for method, row in pooled.iterrows():
            named_state = f" ({row.state})" if row.state not in ("-", "cold") else ""
            labels[method] = f"{method}{named_state}{'†' if outside[method] else ''}"
        yield block(
            part, f"{model}, {protocol} protocol", labels, [*_notes(part, protocol, num_repeats, outside.any()), *notes]
        )


def _notes(part: pd.DataFrame, protocol: str, num_repeats: int, outside: bool) -> list[str]:
    notes = []
    if protocol == "released":
        notes.append(
            "The same answers, read as the paper's released code reads them: only the last question of each dataset, "
            "the clock starting after prefill, prefill counted as a step of one token. One question has no "
            "interval; the last column's is over the last questions of all datasets."
        )
    notes.append(
        "Cell: speedup over vanilla in tokens per second on the same prompts [95% interval, paired bootstrap over "
        "prompts] (accept length: tokens emitted per verification step, all steps pooled)."
    )
    pooled = part[part.dataset == ALL]
    own = pooled[~pooled.baseline.isin(["vanilla", "-"]) & (pooled.method != pooled.baseline)]
    if len(own):
        listed = "; ".join(f"{row.method} over {row.baseline}" for row in own.itertuples())
        notes.append(f"Compared with a vanilla of their own: {listed}.")
    if outside:
        notes.append("† an outside system in a decoding loop of its own: a control, not a like-for-like comparison.")
    counts = part.groupby("dataset", sort=False).num_prompts.max()
    notes.append(
        f"Device: {', '.join(part.device.unique())}. "
        f"Prompts: {', '.join(f'{dataset} {count}' for dataset, count in counts.items())}. "
        f"Repeats of each: {num_repeats}."
    )
    failed = part[(part.num_failures > 0) & (part.dataset != ALL)]
    if len(failed):
        listed = "; ".join(f"{row.method} on {row.dataset}: {row.num_failures}" for row in failed.itertuples())
        notes.append(f"Prompts that failed, excluded from the averages: {listed}.")
    verdicts = part[(part.dataset == ALL) & (part.lossless != "baseline")]
    if len(verdicts):
        listed = "; ".join(f"{row.method} {row.lossless}" for row in verdicts.itertuples())
        notes.append(f"Prompts answered with exactly vanilla's tokens: {listed}.")
    return notes


def paper_blocks(folder: Path = PAPER) -> Iterator[Block]:
    """A block for each model of the paper's Table 1; the last column is the mean as the paper prints it."""
    cells = pd.read_csv(folder / "table1.csv")
    means = pd.read_csv(folder / "table1_mean_speedup.csv").rename(columns={"mean_speedup": "speedup"})
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
