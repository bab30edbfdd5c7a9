"""Everything under results/ as one page (make report)."""

from ngram_trie.cli.commands import start

if __name__ == "__main__":
    start("report")
