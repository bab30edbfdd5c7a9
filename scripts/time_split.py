"""What a step's drafting time is spent on: Figure 5 (make reproduce-figure5).

  python -m scripts.time_split results/embedded/table1/traces.jsonl OUTPUT

Replays recorded answers with the n-gram trie and times three parts of every step: finding the match in the trie, making
a draft tree of what follows it, and building the tree's attention mask and positions. Writes time_split.csv and .png.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pandas as pd
import torch

from ngram_trie.cli.shell import Parser, one_line_errors, positive
from ngram_trie.drafters import NgramTrieDrafter
from ngram_trie.engines.provenance import cpu_name
from ngram_trie.engines.replay import replay
from ngram_trie.engines.traces import Trace, read_traces
from ngram_trie.report.figures import save_figure, time_split_figure
from ngram_trie.targets.model import tree_attention
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


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument(
        "traces", type=Path, metavar="TRACES", help="traces.jsonl of a live run, or any file that engine=replay reads"
    )
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="folder for time_split.csv and time_split.png")
    parser.add_argument("--num-draft", type=positive, default=64, metavar="N", help="nodes of a draft, the paper's")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with one_line_errors("nothing was written"):
        traces = [trace for trace in read_traces(options.traces) if len(trace.output_ids) > 1]
        if not traces:
            raise ValueError(f"{options.traces} holds no answers to replay")
        torch.set_num_threads(1)  # masks are small
        frame = time_split(traces, TimedTrie(num_draft=options.num_draft))
    options.output.mkdir(parents=True, exist_ok=True)
    frame.assign(device=cpu_name()).to_csv(options.output / "time_split.csv", index=False, float_format="%.4g")
    save_figure(time_split_figure(frame), options.output / "time_split.png")
    print(frame.pivot(index="dataset", columns="part", values="microseconds").round(1)[list(PARTS)].to_string())
    print(f"\nMicroseconds per step, means, on {cpu_name()}. Written: {options.output / 'time_split.csv'} and .png")


if __name__ == "__main__":
    main()
