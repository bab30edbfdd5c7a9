"""What differs between two runs: settings, code, numbers."""

from ngram_trie.cli.commands import compare as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
