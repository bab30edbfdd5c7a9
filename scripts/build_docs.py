"""The passages that the docs_* data sets and their retrieval read (python -m scripts.build_docs)."""

from __future__ import annotations

import pandas as pd

from ngram_trie.cli.app import run
from ngram_trie.data.docs.corpus import FOLDER, counts, documentation


def main() -> None:
    """Cut the docstrings of installed packages into passages of 100 words.

    Writes passages.jsonl, docstrings.json and a manifest with versions, counts and the content's hash to
    results/local/docs. Files of the same package versions are kept.

        python -m scripts.build_docs
    """
    docs = documentation()
    print(pd.DataFrame(counts(docs)).T.to_string())
    print(f"content {docs.hash}, in {FOLDER}")


if __name__ == "__main__":
    run(main, interrupted="nothing was written")
