"""An article summarised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from common import TINY_MODEL, Comparison, Drafter, MaxNewTokens, Model, NumDraft

from ngram_trie.cli.app import run

ARTICLE = """\
Brenford Library opened its reading room in 1911. In May the school of Brenby sends four classes for a visit. A \
storm in September broke 134 windows, but nobody was hurt. From the hill above one can see as far as Brenby. \
Brenford Library lets nobody enter on Friday. A small shop nearby sells paper and postcards. Brenford Library \
became possible through a gift from Clara Ross. Brenford Library holds 63,000 books in fifteen languages. Brenford \
Library lets scholars read a book of coins that was lost for long."""
TASK = "Give the main points of the following article, among them the number of books, the donor and its treasure."


def main(
    article: Annotated[Path | None, typer.Option(help="a text file", show_default="an article on a library")] = None,
    task: Annotated[str, typer.Option(help="what to write")] = TASK,
    model: Model = str(TINY_MODEL / "model"),
    drafter: Drafter = "blend",
    num_draft: NumDraft = None,
    max_new_tokens: MaxNewTokens = 160,
) -> None:
    """Summarise an article, with drafts and without.

    python examples/summary.py --article article.txt
    """
    text = article.read_text(encoding="utf-8").strip() if article else ARTICLE
    Comparison(model, drafter, num_draft)([{"role": "user", "content": f"{task}\n\n{text}"}], max_new_tokens)


if __name__ == "__main__":
    run(main, "nothing is kept")
