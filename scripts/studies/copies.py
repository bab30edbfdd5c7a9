"""When drafting pays: speedup over how much of an answer is copied and over the size of the model, of live runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import matplotlib
import pandas as pd
import typer
from matplotlib.figure import Figure

from ngram_trie.bench.config import checked
from ngram_trie.bench.metrics import accept_length, answered, speedup, to_frame
from ngram_trie.bench.prepare import prepare
from ngram_trie.bench.traces import Trace, read_traces
from ngram_trie.cli.app import run as run_command
from ngram_trie.cli.overrides import composed
from ngram_trie.report.plots import STYLE, line_figure, line_style, plain_axes, save_figure
from ngram_trie.report.run_folder import RunFolder, save_csv
from ngram_trie.store.files import content_hash

#: Tokens of an answer are copied that end an n-gram of this length which the prompt or the answer has before.
LENGTH = 4


def share_of_copies(prompt: Sequence[int], output: Sequence[int]) -> float:
    """Of the answer's n-grams of `LENGTH` tokens, the share that the text holds further ahead; nan of a shorter one."""
    text, seen, copied = [*prompt, *output], set(), 0
    for end in range(LENGTH, len(text) + 1):
        ngram = tuple(text[end - LENGTH : end])
        copied += end >= len(prompt) + LENGTH and ngram in seen
        seen.add(ngram)
    return copied / (len(output) - LENGTH + 1) if len(output) >= LENGTH else float("nan")


def traces_of(run: RunFolder) -> list[Trace]:
    """Vanilla's answers with their prompts: the run's own traces.jsonl, which git does not hold, or its records and
    prompts that are built again.

    Raises:
        ValueError: these are others.
    """
    if (kept := run.path / "traces.jsonl").exists():
        return read_traces(kept)
    plain = composed(["method=vanilla"]).plain
    # what decides the prompts; fields that came later have their defaults
    decides = {name: run.config[name] for name in ("dataset", "datasets", "noise") if run.config.get(name)}
    decides |= {name: plain[name] | run.config[name] for name in ("model", "measure")}
    decides["model"]["device"] = "cpu"
    records = {record.key: record for record in run.records}
    found = prepare(checked(plain | decides)).traces(records)
    told = {key.item: each.prompt_hash for key, each in records.items() if key.method == "vanilla" and not each.failure}
    if told != {trace.key: content_hash(trace.prompt.ids.tolist()) for trace in found}:
        raise ValueError(f"{run.path}: its prompts were others; measure it again, then it has a traces.jsonl")
    return found


def answers(run: RunFolder, method: str) -> pd.DataFrame:
    """One row a question of a live run: model, data set, share of copies, the method's decoding speedup
    over vanilla and its tokens per step.

    Raises:
        ValueError: the run has no answers of the method.
    """
    if method not in {record.method for record in run.records}:
        raise ValueError(f"{run.path}: no answers of {method}; give --method one of the run's")
    shares = {
        (trace.prompt.dataset, trace.prompt.question_id, trace.prompt.turn): share_of_copies(
            trace.prompt.ids.tolist(), trace.output_ids
        )
        for trace in traces_of(run)
    }
    frame, keys = answered(to_frame(run.records)), ["task", "question_id", "turn"]
    sums = frame.pivot_table(["decode_seconds", "num_emitted", "num_steps"], keys, "method", aggfunc="sum")
    found = pd.DataFrame({"copied": pd.Series(shares)}).reindex(sums.index)
    found.insert(0, "model", run.model)
    found["speedup"] = sums["decode_seconds"]["vanilla"] / sums["decode_seconds"][method]
    found["tokens"] = sums["num_emitted"][method] / sums["num_steps"][method]
    return found.rename_axis(index={"task": "dataset"}).reset_index()


def billions(model: str) -> float:
    """Parameters, as the model's name says.

    Raises:
        ValueError: it does not.
    """
    said = re.search(r"-(\d+(?:\.\d+)?)([mb])\b", model.lower())
    if said is None:
        raise ValueError(f"{model}: its name should say its size, as in -135m or -0.5b")
    return float(said[1]) / {"m": 1000, "b": 1}[said[2]]


def by_task(run: RunFolder, methods: Sequence[str]) -> pd.DataFrame:
    """One row for each task of a run, all together, and method: decoding speedup with its interval, tokens per step."""
    frame = to_frame(run.records)
    frame = frame.assign(seconds=frame.decode_seconds)
    parts = {**dict(list(frame.groupby("task", sort=False))), "all": frame}
    rows = [
        (run.model, billions(run.model), dataset, method, *speedup(part, method), accept_length(of_method))
        for dataset, part in parts.items()
        for method in methods
        if not (of_method := answered(part[part.method == method])).empty
    ]
    return pd.DataFrame(
        rows, columns=["model", "billions", "dataset", "method", "speedup", "speedup_low", "speedup_high", "tokens"]
    )


@matplotlib.rc_context(STYLE)
def figure_of(frame: pd.DataFrame) -> Figure:
    """A point an answer, models apart; lines through the means of fifths of the answers."""
    figure = Figure(figsize=(6.9, 2.8), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True)
    for index, (model, part) in enumerate(frame.groupby("model", sort=False)):
        looks = line_style(index)
        fifths = pd.qcut(part.copied, 5, labels=False, duplicates="drop")
        for panel, name in zip(axes, ("speedup", "tokens"), strict=True):
            values = part[name]
            panel.plot(part.copied, values, ls="", marker=looks["marker"], color=looks["color"], ms=2.5, alpha=0.35)
            means = values.groupby(fifths).mean()
            panel.plot(part.copied.groupby(fifths).mean(), means, label=model if name == "speedup" else None, **looks)
    for panel, label in zip(axes, ("decoding speedup over plain steps", "tokens per step"), strict=True):
        panel.set(xlabel=f"share of {LENGTH}-grams that the text had before", ylabel=label, yscale="log")
        panel.yaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
        panel.yaxis.set_minor_formatter(lambda tick, _: f"{tick:g}" if tick in (0.7, 1.5, 2, 3, 5) else "")
        panel.axhline(1, color="0.6", lw=0.6)
        plain_axes(panel, "both")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def main(
    folders: Annotated[list[Path], typer.Argument(help="of live runs")],
    output: Annotated[Path, typer.Option(help="folder for copies.csv, copies.png, size.csv and size.png")],
    method: Annotated[str, typer.Option(help="that is drawn")] = "blend_logits",
    methods: Annotated[
        str, typer.Option(help="in size.csv, with commas")
    ] = "ngram_trie,ngram_trie_output,pld,suffix,blend,blend_logits,library",
) -> None:
    """Draw speedup over the share of copies in answers and over the size of the model.

    python -m scripts.studies.copies results/local/*/table1 --output results/local/copies
    """
    runs = [RunFolder(folder) for folder in folders]
    frame = pd.concat([answers(run, method) for run in runs], ignore_index=True)
    sizes = pd.concat([by_task(run, methods.split(",")) for run in runs], ignore_index=True)
    output.mkdir(parents=True, exist_ok=True)
    save_csv(frame, output / "copies.csv")
    save_csv(sizes, output / "size.csv")
    save_figure(figure_of(frame), output / "copies.png")
    drawn = sizes[sizes.method == method]
    save_figure(line_figure(drawn, "billions", "speedup", "decoding speedup over plain steps"), output / "size.png")
    print(drawn.round(2).to_string(index=False))
    print(f"written: {output / 'copies.csv'}, size.csv, copies.png and size.png")


if __name__ == "__main__":
    run_command(main, "nothing was written")
