"""What this machine can run, and what to do about the rest: make doctor."""

from ngram_trie.cli.app import run
from ngram_trie.cli.doctor import doctor as main

if __name__ == "__main__":
    run(main)
