"""Table 1 of the n-gram trie paper, from records: as data, as Markdown, as LaTeX (booktabs) and as text for a terminal.

Measured numbers stand in blocks of their own, one for each model and protocol. The paper's numbers follow under their
own heading and never share a block, or a row of the CSV, with measured ones.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ngram_trie import metrics
from ngram_trie.records import PromptRecord

COLUMNS = [
    "model", "method", "dataset", "speedup", "speedup_low", "speedup_high", "accept_length", "accept_length_macro",
    "tokens_per_second", "num_prompts", "num_failures", "lossless", "state", "protocol", "device",
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


# From rows to blocks: what is printed, before it is known in which markup.


@dataclass(frozen=True)
class Cell:
    """Speedup, its 95% interval and the accept length; nan is not printed. A rank is 1 (best), 2 (second) or 0."""

    speedup: float = math.nan
    low: float = math.nan
    high: float = math.nan
    accept_length: float = math.nan
    speedup_rank: int = 0
    accept_rank: int = 0


@dataclass(frozen=True)
class Block:
    """One printed table: a line for each method, a column for each dataset, notes below."""

    title: str
    columns: list[str]
    rows: dict[str, list[Cell]]
    notes: list[str] = field(default_factory=list)


def _ranks(values: pd.Series) -> list[int]:
    """1 for the best, 2 for the second best, as printed, so that equal numbers rank equal; 0 where nothing differs."""
    printed = values.round(2)
    distinct = sorted(printed.dropna().unique(), reverse=True)
    if len(distinct) < 2:
        return [0] * len(values)
    return [{distinct[0]: 1, distinct[1]: 2}.get(value, 0) for value in printed]


def _block(frame: pd.DataFrame, title: str, labels: dict[str, str], notes: list[str]) -> Block:
    """Lay out rows with `method`, `dataset`, `speedup`, `accept_length`, and with intervals if there are any."""
    frame = frame.reindex(columns=["method", "dataset", "speedup", "speedup_low", "speedup_high", "accept_length"])
    columns = list(frame.dataset.unique())
    rows: dict[str, list[Cell]] = {label: [] for label in labels.values()}
    for dataset in columns:
        part = frame[frame.dataset == dataset].set_index("method").reindex(list(labels))
        ranks = zip(_ranks(part.speedup), _ranks(part.accept_length), strict=True)
        for label, row, rank in zip(rows, part.itertuples(), ranks, strict=True):
            rows[label].append(Cell(row.speedup, row.speedup_low, row.speedup_high, row.accept_length, *rank))
    return Block(title, columns, rows, notes)


def measured_blocks(frame: pd.DataFrame, num_repeats: int) -> Iterator[Block]:
    """A block for each model and protocol of a frame of `table1` rows."""
    for (protocol, model), part in frame.groupby(["protocol", "model"], sort=False):
        pooled = part[part.dataset == ALL].set_index("method")
        outside = pooled.lossless.str.startswith("control")
        labels = {}
        for method, row in pooled.iterrows():
            named_state = f" ({row.state})" if row.state not in ("-", "cold") else ""
            labels[method] = f"{method}{named_state}{'†' if outside[method] else ''}"
        yield _block(part, f"{model}, {protocol} protocol", labels, _notes(part, protocol, num_repeats, outside.any()))


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
        yield _block(part, str(model), {method: method for method in part.method.unique()}, notes)


PAPER_HEADING = "The paper's own numbers"
PAPER_WARNING = (
    "Published in Table 1 of 'Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding', not measured "
    "here: other models, other hardware (one RTX 4090), not comparable line by line."
)


# From blocks to markup.


def _speedup(cell: Cell, marks: Sequence[str], times: str = "x") -> str:
    return marks[cell.speedup_rank].format(f"{cell.speedup:.2f}{times}") if math.isfinite(cell.speedup) else "-"


def _interval(cell: Cell) -> str:
    return f"[{cell.low:.2f}, {cell.high:.2f}]" if math.isfinite(cell.low) else ""


def _accept(cell: Cell, marks: Sequence[str]) -> str:
    if not math.isfinite(cell.accept_length):
        return ""
    return f"({marks[cell.accept_rank].format(f'{cell.accept_length:.2f}')})"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def markdown_table(frame: pd.DataFrame, num_repeats: int = 1, paper: Path | None = PAPER) -> str:
    """The whole of Table 1 in Markdown: measured blocks, then the paper's (none with None). Best bold, then italic."""
    marks = ("{}", "**{}**", "*{}*")

    def render(block: Block) -> str:
        lines = [f"### {block.title}", ""]
        lines += [f"| method | {' | '.join(block.columns)} |", "|---" * (len(block.columns) + 1) + "|"]
        for label, cells in block.rows.items():
            shown = [_join(_speedup(cell, marks), _interval(cell), _accept(cell, marks)) for cell in cells]
            lines.append(f"| {label} | {' | '.join(shown)} |")
        notes = [*block.notes, "Best of a column **bold**, second best *italic*, speedup and accept length apart."]
        return "\n".join([*lines, "", *(f"{note}  " for note in notes), ""])

    text = ["## Measured", "", *(render(block) for block in measured_blocks(frame, num_repeats))]
    if paper:
        text += [f"## {PAPER_HEADING}", "", PAPER_WARNING, "", *(render(block) for block in paper_blocks(paper))]
    return "\n".join(text)


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$^\dagger$",
})  # fmt: skip


def latex_table(frame: pd.DataFrame, num_repeats: int = 1, paper: Path | None = PAPER) -> str:
    """The same in LaTeX, to be \\input; needs booktabs and graphicx. Best bold, second best underlined."""
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")

    def render(block: Block, heading: str) -> str:
        lines = []
        for label, cells in block.rows.items():
            shown = [
                _join(_speedup(cell, marks, r"$\times$"), rf"{{\scriptsize {_interval(cell)}}}", _accept(cell, marks))
                for cell in cells
            ]
            line = " & ".join([label.translate(_LATEX), *shown]).replace(r" {\scriptsize }", "")
            lines.append(rf"    {line} \\")
        header = " & ".join(["Method", *(column.translate(_LATEX) for column in block.columns)])
        notes = [*block.notes, "Best of a column bold, second best underlined, speedup and accept length apart."]
        caption = f"{heading} {block.title}. {' '.join(notes)}".translate(_LATEX)
        return "\n".join([
            r"\begin{table*}[t]",
            r"  \centering",
            r"  \resizebox{\textwidth}{!}{%",
            rf"  \begin{{tabular}}{{l{'c' * len(block.columns)}}}",
            r"    \toprule",
            rf"    {header} \\",
            r"    \midrule",
            *lines,
            r"    \bottomrule",
            r"  \end{tabular}}",
            rf"  \caption{{{caption}}}",
            r"\end{table*}",
            "",
        ])  # fmt: skip

    text = ["% Measured", *(render(block, "Measured:") for block in measured_blocks(frame, num_repeats))]
    if paper:
        published = (render(block, f"{PAPER_HEADING}. {PAPER_WARNING}") for block in paper_blocks(paper))
        text += [f"% {PAPER_HEADING}: not measured here", *published]
    return "\n".join(text)


def text_table(frame: pd.DataFrame, num_repeats: int = 1, paper: Path | None = PAPER, width: int = 120) -> str:
    """The same as plain text for a terminal `width` characters wide; columns that do not fit go below."""
    marks = ("{}", "{}*", "{}+")

    def render(block: Block) -> str:
        columns = [["method", *block.rows]]  # printed column by column; a cell may hold several lines
        for index, name in enumerate(block.columns):
            cells = [row[index] for row in block.rows.values()]
            shown = [f"{_join(_speedup(cell, marks), _accept(cell, marks))}\n{_interval(cell)}" for cell in cells]
            columns.append(["\n".join(textwrap.wrap(name.replace("_", " "), 14)), *(cell.rstrip() for cell in shown)])
        notes = [*block.notes, "* best of a column, + second best, speedup and accept length apart."]
        wrapped = [textwrap.fill(note, width, initial_indent="  ", subsequent_indent="    ") for note in notes]
        return "\n".join([block.title, *_grid(columns, width), *wrapped, ""])

    text = [render(block) for block in measured_blocks(frame, num_repeats)]
    if paper:
        text += ["=" * width, PAPER_HEADING, *textwrap.wrap(PAPER_WARNING, width), "=" * width, ""]
        text += [render(block) for block in paper_blocks(paper)]
    return "\n".join(text)


def _grid(columns: list[list[str]], width: int) -> Iterator[str]:
    """Lines of a table given by columns of equally many cells; the first column is repeated when the rest must fold."""
    first, *rest = columns
    widths = [max(len(line) for cell in column for line in cell.split("\n")) + 2 for column in columns]
    fitting = 1
    while fitting < len(rest) and sum(widths[: fitting + 2]) <= width:
        fitting += 1
    rule = "-" * sum(widths[: fitting + 1])
    yield rule
    for number, row in enumerate(zip(first, *rest[:fitting], strict=True)):
        cells = [cell.split("\n") for cell in row]
        for line in range(max(len(cell) for cell in cells)):
            texts = [cell[line] if line < len(cell) else "" for cell in cells]
            yield "".join(text.ljust(size) for text, size in zip(texts, widths, strict=False)).rstrip()
        if number == 0:
            yield rule
    yield rule
    if rest[fitting:]:
        yield from _grid([first, *rest[fitting:]], width)


def write_table(frame: pd.DataFrame, folder: Path, num_repeats: int = 1, paper: Path | None = PAPER) -> list[Path]:
    """Write table.csv (measured rows only, of every protocol), table.md and table.tex.

    Args:
        frame: rows of `table1`, of one protocol or several, concatenated.
        folder: made if it is not there.
        num_repeats: how often each prompt was run, for the notes.
        paper: folder of the published numbers; None leaves their block out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"table.{suffix}" for suffix in ("csv", "md", "tex")]
    frame.to_csv(paths[0], index=False, float_format="%.6g", lineterminator="\n")
    paths[1].write_text(markdown_table(frame, num_repeats, paper), encoding="utf-8")
    paths[2].write_text(latex_table(frame, num_repeats, paper), encoding="utf-8")
    return paths
