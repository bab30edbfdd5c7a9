"""Derive tables and figures again from records, and fill the tables of README and docs (make derive)."""

from ngram_trie.cli.commands import derive as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
