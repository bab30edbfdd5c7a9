"""Train the draft model of speculative sampling (SpS) from nothing: `make train-draft-model`.

The same script and text world as the embedded model's, at a fifth of its size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.files import PROJECT
from scripts.train_embedded import TrainConfig, train

CONFIG = TrainConfig(
    hidden_size=128,
    intermediate_size=256,
    num_layers=2,
    num_heads=2,
    num_steps=2600,
    decay_steps=2200,
    decay_fraction=0.6,
    alike_steps=2200,
    short_steps=400,
    grow_steps=600,
    prompt_steps=1300,
)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    default = PROJECT / "results" / "local" / "draft_model"
    parser.add_argument("folder", type=Path, nargs="?", default=default, metavar="FOLDER", help="where it goes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    folder = parse(arguments).folder
    print(f"training into {folder}; started again, it goes on from its last checkpoint (every 200 steps)", flush=True)
    with one_line_errors():
        train(CONFIG, folder)
    print(f"done. To ship it, copy all but checkpoint.pt and the log from {folder} to data/embedded/draft_model.")


if __name__ == "__main__":
    main()
