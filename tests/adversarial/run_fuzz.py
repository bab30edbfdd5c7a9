"""More cases of `fuzz`: PYTHONPATH=.:tests python -m adversarial.run_fuzz --number N --seed SEED."""

from __future__ import annotations

from typing import Annotated

import typer
from adversarial import fuzz

from ngram_trie.cli.app import run


def main(
    number: Annotated[int, typer.Option(min=1, help="how many cases")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="of the first; the others follow it")] = 0,
) -> None:
    """Compare drafted answers with `model.generate`, a random case a seed, and print those that differ."""
    found = fuzz.failures(number, seed)
    for each, wrong in found:
        print(f"{wrong}\n  again: PYTHONPATH=.:tests python -m adversarial.run_fuzz --number 1 --seed {each}")
    print(f"seed {seed}: {number} cases, {len(found)} failed")
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    run(main)
