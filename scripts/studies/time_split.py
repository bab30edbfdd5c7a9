"""What a step's drafting time is spent on (the paper's Figure 5): finding the match in the trie, making a draft tree of
what follows it, and building the tree's attention mask and positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated

import pandas as pd
import torch
import typer

from ngram_trie.bench.provenance import cpu_name
from ngram_trie.bench.replay import replay
from ngram_trie.bench.traces import Trace, answers
from ngram_trie.cli.app import run
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.report.plots import save_figure, time_split_figure
from ngram_trie.targets.stock import tree_attention
from ngram_trie.tree import DraftTree

PARTS = ("trie search", "draft processing", "tree attention")


class TimedTrie(NgramTrieDrafter):
    """The n-gram trie, with the seconds of each part of its steps in `laps`."""

    laps: list[tuple[float, float, float]]

    def propose(self, budget: int) -> DraftTree:
        text = self.text
        started = perf_counter()
        self._trie.match(text)
        searched = perf_counter()
        tree = super().propose(budget)
        drafted = perf_counter()
        if tree.num_draft:  # a plain step needs no mask
            tree_attention(tree, len(text) - 1, torch.float32, "cpu")
        built = perf_counter()
        search = searched - started
        # Drafting searches once more, so the second search is taken off.
        self.laps.append((search, max(drafted - searched - search, 0.0), built - drafted))
        return tree


def time_split(traces: Sequence[Trace], drafter: TimedTrie) -> pd.DataFrame:
    """Rows `dataset, part, microseconds, num_steps`: means over the steps of each data set."""
    rows = []
    torch.set_num_threads(1)  # masks are small
    drafter.laps = []
    replay(drafter, traces[0])  # compiled code is loaded at its first call
    for dataset in dict.fromkeys(trace.prompt.dataset for trace in traces):
        drafter.laps = []
        for trace in traces:
            if trace.prompt.dataset == dataset:
                replay(drafter, trace)
        means = pd.DataFrame(drafter.laps, columns=PARTS).mean() * 1e6
        rows += [(dataset, part, means[part], len(drafter.laps)) for part in PARTS]
    return pd.DataFrame(rows, columns=["dataset", "part", "microseconds", "num_steps"])


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    output: Annotated[Path, typer.Argument(help="folder for time_split.csv and time_split.png")],
    num_draft: Annotated[int, typer.Option(min=1, help="nodes of a draft, the paper's")] = 64,
) -> None:
    """Replay recorded answers with the n-gram trie and time three parts of every step: finding the match in the trie,
    making a draft tree of what follows it, and building the tree's attention mask and positions.

        python -m scripts.studies.time_split results/table1/tiny/traces.jsonl OUTPUT
    """
    frame = time_split(answers(traces), TimedTrie(num_draft=num_draft))
    output.mkdir(parents=True, exist_ok=True)
    frame.assign(device=cpu_name()).to_csv(output / "time_split.csv", index=False, float_format="%.4g")
    save_figure(time_split_figure(frame), output / "time_split.png")
    print(frame.pivot(index="dataset", columns="part", values="microseconds").round(1)[list(PARTS)].to_string())
    print(f"\nMicroseconds per step, means, on {cpu_name()}. Written: {output / 'time_split.csv'} and .png")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
