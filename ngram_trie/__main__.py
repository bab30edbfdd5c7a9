"""`python -m ngram_trie NAME ARGUMENTS`: the console command `ngram-trie`."""

from ngram_trie.cli.main import main

if __name__ == "__main__":
    main()
