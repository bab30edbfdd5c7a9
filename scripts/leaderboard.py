"""All runs below some folders as one sortable page."""

from ngram_trie.cli.commands import leaderboard as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
