"""Record a model's greedy answers, for engine=replay (make record)."""

from ngram_trie.cli.main import start
from ngram_trie.cli.record import main, record

__all__ = ["main", "record"]

if __name__ == "__main__":
    start(record)
