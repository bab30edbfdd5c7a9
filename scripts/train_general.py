"""Train the general model from nothing: `make train-general` (about ten minutes on two CPU cores).

The same script as the embedded model's, at a fifth of its size, on conversations, Python functions and word problems
(`data/skills.py`) instead of the text world: the target that N-Grammys' tables are reproduced with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ngram_trie.cli.shell import Parser, one_line_errors
from ngram_trie.data import skills
from ngram_trie.files import PROJECT
from scripts.train_embedded import Source, TrainConfig, train

CONFIG = TrainConfig(
    vocab_size=1536,
    hidden_size=128,
    intermediate_size=352,
    num_layers=3,
    num_heads=2,
    num_steps=1200,
    decay_steps=1200,
    decay_fraction=0.6,
    alike_steps=1200,
    tokens_per_step=8064,
    row_length_short=384,
    row_length=384,
    short_steps=0,
    copy_steps=200,
    prompt_steps=700,
)
SOURCE = Source(lambda rng, *_: skills.training_sample(rng), skills.held_out_sample, cut=0.5)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    default = PROJECT / "results" / "local" / "general_model"
    parser.add_argument("folder", type=Path, nargs="?", default=default, metavar="FOLDER", help="where it goes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    folder = parse(arguments).folder
    print(f"training into {folder}; started again, it goes on from its last checkpoint (every 200 steps)", flush=True)
    with one_line_errors():
        train(CONFIG, folder, source=SOURCE)
    print(f"done. To ship it, copy all but checkpoint.pt and the log from {folder} to data/embedded/general_model.")


if __name__ == "__main__":
    main()
