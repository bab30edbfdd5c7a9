"""What this machine can run, and what to do about the rest (make doctor)."""

from ngram_trie.cli.doctor import doctor as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
