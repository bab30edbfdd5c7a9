"""What drafting costs: time to index a prompt, time to propose a draft, peak memory (make bench-drafting)."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ngram_trie.cli.app import run
from ngram_trie.engines import drafting_costs as costs
from ngram_trie.engines.provenance import cpu_name


def main(
    output: Annotated[Path | None, typer.Argument(metavar="FILE.csv", help="also write the table to this file")] = None,
) -> None:
    """Measure what drafting costs: time to index a prompt, time to propose a draft, peak memory.

    The texts are synthetic. Words follow a Zipf law and whole passages are repeated, in the text and in the simulated
    answer, as in a document and its summary; one text is a single token repeated. `propose` is timed over the steps of
    an answer whose tokens are observed one by one; it includes building the draft tree. The reference is Algorithm 1 in
    plain Python dicts.

      python -m scripts.bench_drafting results/local/bench_drafting.csv
    """
    table = costs.drafting_costs()
    print(f"{cpu_name()}; Python {platform.python_version()}, numpy {np.__version__}")
    print(f"propose: median and 99th percentile of {costs.NUM_STEPS} steps, index: median of {costs.NUM_INDEX}\n")
    print(table.round(2).to_string())
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        table.assign(device=cpu_name()).to_csv(output, float_format="%.4g")
    print(f"\nof each propose, constructing a DraftTree of 32 nodes: {costs.bench_tree():.1f} us")
    print(costs.bench_datastore())


if __name__ == "__main__":
    run(main)
