"""Measure methods with a live model or over recorded answers (make reproduce-table1)."""

from ngram_trie.cli.commands import measure, start
from ngram_trie.cli.commands import run as cli

__all__ = ["cli", "measure"]

if __name__ == "__main__":
    start(cli)
