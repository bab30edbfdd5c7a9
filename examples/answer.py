"""An answer from a text: retrieved passages, an article."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from common import TINY_MODEL, Comparison, Drafter, MaxNewTokens, Model, NumDraft

from ngram_trie.cli.app import run

PASSAGES = """\
Hobbs Gardens (passage 1): Hobbs Gardens was given in 1912 to the people of Garhaven. Hobbs Gardens invites painters \
to sit among its cherry trees each spring. Hobbs Gardens is cared for by Helen Howe and thirteen gardeners.
Webb Gardens (passage 2): Webb Gardens invites painters to sit among its cedars each autumn. Webb Gardens was given in \
1941 to the people of Keswick. Webb Gardens is cared for by Kate Dale and nine gardeners. Guides wear green coats and \
speak eight languages."""
TASK = """\
Answer the question with the help of these passages.
Question: Among which trees of Webb Gardens do painters sit, and when was the garden given to the people?"""


def main(
    task: Annotated[str, typer.Argument(help="what to do with the text", show_default="a question")] = TASK,
    text: Annotated[Path | None, typer.Option(help="a file", show_default="two passages")] = None,
    model: Model = str(TINY_MODEL / "model"),
    drafter: Drafter = "blend_logits",
    num_draft: NumDraft = None,
    max_new_tokens: MaxNewTokens = 160,
) -> None:
    """Answer a question from a text, or summarise it, with drafts and without.

    python examples/answer.py "Give the main points of this article." --text article.txt
    """
    read = text.read_text(encoding="utf-8").strip() if text else PASSAGES
    Comparison(model, drafter, num_draft)([{"role": "user", "content": f"{read}\n\n{task}"}], max_new_tokens)


if __name__ == "__main__":
    run(main, "nothing is kept")
