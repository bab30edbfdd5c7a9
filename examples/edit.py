"""An edit of a file, with the old file as the prediction of the new one (`prediction=`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from common import TINY_MODEL, Comparison, Drafter, MaxNewTokens, Model, NumDraft

from ngram_trie.cli.app import run

OLD = """\
Webb Gardens was given in 1941 to the people of Keswick. Webb Gardens is cared for by Kate Dale and nine gardeners."""


def main(
    task: Annotated[str, typer.Argument(help="what to change")] = "Correct the year to 1914.",
    text: Annotated[Path | None, typer.Option(help="the file", show_default="two sentences")] = None,
    in_prompt: Annotated[bool, typer.Option(help="the model reads the file, too")] = True,
    model: Model = str(TINY_MODEL / "model"),
    drafter: Drafter = "blend",
    num_draft: NumDraft = None,
    max_new_tokens: MaxNewTokens = 160,
) -> None:
    """Rewrite a file as told, with drafts from the old file and without drafts.

    python examples/edit.py "Rename the function load to read." --text module.py
    """
    old = text.read_text(encoding="utf-8").strip() if text else OLD
    asked = f"{task} Give the whole text.\n\n{old}" if in_prompt else task
    Comparison(model, drafter, num_draft)([{"role": "user", "content": asked}], max_new_tokens, prediction=old)


if __name__ == "__main__":
    run(main, "nothing is kept")
