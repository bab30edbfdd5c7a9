"""Step through one recorded answer, with the draft tree of each step (make explore TRACES=FILE)."""

from ngram_trie.cli.commands import explore as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
