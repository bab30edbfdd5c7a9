"""Derive tables and figures again from records: python -m scripts.derive FOLDER (make derive OUTPUT=FOLDER)

FOLDER is one run's (records.jsonl and manifest.json), or holds the runs of a sweep, each in a folder of its own (what
the jobs of `python -m scripts.run -m ... hydra/launcher=joblib` leave): they are gathered into one table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ngram_trie import report


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.exit(f"{__doc__}")
    folder = Path(arguments[0])
    try:
        print(report.write(folder) if (folder / "records.jsonl").exists() else report.gather(folder))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
