"""What long prompts and long replays take, and how that grows (make bench-long)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from ngram_trie.cli.app import run
from ngram_trie.engines import long_inputs
from ngram_trie.engines.provenance import make_manifest
from ngram_trie.files import place
from ngram_trie.report.run_folder import save_csv

LENGTHS = (10_000, 100_000)
ANSWERS = (2_000, 20_000)


def main(
    output: Annotated[Path | None, typer.Option(help="folder; default: results/local/reliability")] = None,
) -> None:
    """Measure time and memory of every drafter that reads only tokens on prompts of 10,000 and 100,000 tokens, and the
    exponent of their growth; then the memory of replays of 2,000 and 20,000 answers. Texts are synthetic.

      python -m scripts.bench_long --output results/reliability
    """
    folder = output or place("results/local/reliability")
    folder.mkdir(parents=True, exist_ok=True)
    prompts = long_inputs.long_prompts(LENGTHS)
    print(prompts.round(2).to_string(index=False), end="\n\n")
    save_csv(prompts, folder / "long_prompts.csv")
    replays = pd.DataFrame([{"answers": number, "peak MB": long_inputs.replay_memory(number)} for number in ANSWERS])
    print(replays.to_string(index=False))
    save_csv(replays, folder / "long_replays.csv")
    sizes = {"lengths": list(LENGTHS), "answers": list(ANSWERS)}
    make_manifest(sizes, "none", "generated").write(folder / "long_manifest.json")


if __name__ == "__main__":
    run(main)
