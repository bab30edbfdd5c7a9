"""The passages that the docs_* data sets and their retrieval read (python -m scripts.build_docs)."""

from __future__ import annotations

from typing import Annotated

import pandas as pd
from typer import Option

from ngram_trie.cli.app import run
from ngram_trie.data.docs import corpus


def main(
    anew: Annotated[bool, Option("--anew", help="first read the docstrings of what is installed here")] = False,
) -> None:
    """Cut the docstrings that ship with the project into passages of 100 words: results/local/docs/passages.jsonl.

    With --anew data/docs/docstrings.json.gz is made of the packages that are installed; then passages have to be
    retrieved anew: python -m scripts.retrieve_docs.

        python -m scripts.build_docs
    """
    if anew:
        corpus.write(corpus.read_installed())
        corpus.documentation.cache_clear()
    docs = corpus.documentation()
    corpus.write_passages(docs)
    print(pd.DataFrame(corpus.counts(docs)).T.to_string())
    print(f"content {docs.hash}, of {', '.join(map(' '.join, docs.versions.items()))}; passages in {corpus.FOLDER}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
