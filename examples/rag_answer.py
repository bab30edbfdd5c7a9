"""An answer from retrieved passages."""

from __future__ import annotations

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
QUESTION = "Among which trees of Webb Gardens do painters sit, and when was the garden given to the people?"


def main(
    question: Annotated[str, typer.Option(help="about the two gardens")] = QUESTION,
    model: Model = str(TINY_MODEL / "model"),
    drafter: Drafter = "blend",
    num_draft: NumDraft = None,
    max_new_tokens: MaxNewTokens = 160,
) -> None:
    """Answer a question from retrieved passages, with drafts and without.

    python examples/rag_answer.py --drafter ngram_trie
    """
    message = f"{PASSAGES}\n\nAnswer the question with the help of these passages.\nQuestion: {question}"
    Comparison(model, drafter, num_draft)([{"role": "user", "content": message}], max_new_tokens)


if __name__ == "__main__":
    run(main, "nothing is kept")
