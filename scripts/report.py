"""Everything under results/ as one page (make report)."""

from ngram_trie.cli.commands import report as main
from ngram_trie.cli.main import start

if __name__ == "__main__":
    start(main)
