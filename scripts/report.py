"""Derive tables and figure again from the records of a run: python -m scripts.report results/local/table1"""

from __future__ import annotations

import sys
from pathlib import Path

from ngram_trie import report


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(f"{__doc__}\nThe one argument is the folder that holds records.jsonl and manifest.json.")
    try:
        print(report.write(Path(arguments[0])))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
