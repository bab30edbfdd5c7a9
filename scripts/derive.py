"""Derive tables and figures again from records, and fill the tables of README and docs (make derive)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.cli.app import run
from ngram_trie.report import derive, embed


def main(
    folder: Annotated[Path | None, typer.Argument(help="of a run or of a sweep's runs")] = None,
) -> None:
    """Derive the tables and figures of FOLDER again from its records, then write the tables of README.md and docs/ anew
    from results/.

    FOLDER is one run's (records.jsonl and manifest.json), or holds the runs of a sweep, each in a folder of its own,
    such as the jobs of `python -m scripts.run -m ... hydra/launcher=joblib`: they are gathered into one table.

        python -m scripts.derive results/local/table1
    """
    if folder:
        print(derive.write(folder) if (folder / "records.jsonl").exists() else derive.gather(folder))
    for page in embed.fill_pages():
        print(f"tables filled: {page.name}")


if __name__ == "__main__":
    run(main, interrupted="the records are as they were")
