"""The passages that the docs_* data sets and their retrieval read (python -m scripts.build_docs)."""

from __future__ import annotations

import pandas as pd

from ngram_trie.cli.app import run
from ngram_trie.data.docs import corpus


def main() -> None:
    """Cut the docstrings that ship with the project into passages of 100 words: results/local/docs/passages.jsonl.

    python -m scripts.build_docs
    """
    docs = corpus.documentation()
    corpus.write_passages(docs)
    print(pd.DataFrame(corpus.counts(docs)).T.to_string())
    print(f"content {docs.hash}, of {', '.join(map(' '.join, docs.versions.items()))}; passages in {corpus.FOLDER}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
