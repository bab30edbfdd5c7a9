"""The command line of all trainings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import one_of, run
from ngram_trie.store.files import PROJECT
from scripts.studies.tiny import train_heads, train_model, train_space

#: What can be trained: the function that trains it into a folder, and where in data/tiny its result is shipped.
TRAININGS: dict[str, tuple[Callable[[Path], None], str]] = {
    "tiny": (functools.partial(train_model.train, *train_model.MODELS["tiny"]), "model"),
    "general": (functools.partial(train_model.train, *train_model.MODELS["general"]), "general_model"),
    "draft-model": (functools.partial(train_model.train, *train_model.MODELS["draft-model"]), "draft_model"),
    "heads": (functools.partial(train_heads.train, train_heads.HeadsRecipe()), "medusa and data/tiny/hydra"),
    "space": (functools.partial(train_space.train, train_space.SpaceRecipe()), "space"),
}


def main(
    name: Annotated[str, typer.Argument(callback=one_of(list(TRAININGS)), help=f"One of {', '.join(TRAININGS)}.")],
    folder: Annotated[Path | None, typer.Argument(help="Default: results/local/trained/NAME.")] = None,
) -> None:
    """Train a bundled model, or the heads of Medusa and Hydra.

    python -m scripts.studies.tiny.train general
    """
    folder = folder or PROJECT / "results" / "local" / "trained" / name
    train, shipped = TRAININGS[name]
    print(f"training into {folder}", flush=True)
    train(folder)
    print(f"done. To ship it, copy all but the log to data/tiny/{shipped}.")


if __name__ == "__main__":
    run(main, "nothing was written but the log")
