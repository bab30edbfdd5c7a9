"""What a step's drafting time is spent on: Figure 5 (make reproduce-figure5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.engines.provenance import cpu_name
from ngram_trie.engines.traces import answers
from ngram_trie.report.bar_charts import time_split_figure
from ngram_trie.report.figures import save_figure
from ngram_trie.report.time_split import PARTS, TimedTrie, time_split


def main(
    traces: Annotated[Path, typer.Argument(help="traces.jsonl of a live run, or any file that engine=replay reads")],
    output: Annotated[Path, typer.Argument(help="folder for time_split.csv and time_split.png")],
    num_draft: Annotated[int, typer.Option(min=1, help="nodes of a draft, the paper's")] = 64,
) -> None:
    """Replay recorded answers with the n-gram trie and time three parts of every step: finding the match in the trie,
    making a draft tree of what follows it, and building the tree's attention mask and positions.

        python -m scripts.time_split results/embedded/table1/traces.jsonl OUTPUT
    """
    frame = time_split(answers(traces), TimedTrie(num_draft=num_draft))
    output.mkdir(parents=True, exist_ok=True)
    frame.assign(device=cpu_name()).to_csv(output / "time_split.csv", index=False, float_format="%.4g")
    save_figure(time_split_figure(frame), output / "time_split.png")
    print(frame.pivot(index="dataset", columns="part", values="microseconds").round(1)[list(PARTS)].to_string())
    print(f"\nMicroseconds per step, means, on {cpu_name()}. Written: {output / 'time_split.csv'} and .png")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
