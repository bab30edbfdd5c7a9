"""Measure methods with a live model or over recorded answers (make reproduce-table1)."""

from ngram_trie.cli.commands import measure
from ngram_trie.cli.commands import run as cli
from ngram_trie.cli.main import start

__all__ = ["cli", "measure"]

if __name__ == "__main__":
    start(cli)
