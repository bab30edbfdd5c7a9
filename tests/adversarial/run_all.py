"""What was tried to break the project, and how often it broke (CONTRIBUTING.md)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import pandas as pd
import typer
from adversarial import fuzz

from ngram_trie.bench.provenance import make_manifest
from ngram_trie.cli.app import run
from ngram_trie.store.files import PROJECT, place

#: Area -> the tests that try it, a case each.
AREAS = {
    "bad input ends in one line": ["tests/adversarial/test_bad_inputs.py"],
    "drafters of one's own that are wrong": ["tests/adversarial/test_own_drafters.py"],
    "damaged records": ["tests/bench/test_records.py", "tests/test_damage.py"],
    "damaged datastores and tables": ["tests/store/test_arrays.py", "tests/baselines/test_datastore.py"],
    "two writers, foreign folders, changed code": ["tests/bench/test_run_folders.py"],
    "full disks, folders that cannot be made": ["tests/adversarial/test_disks.py"],
    "no code from files": ["tests/adversarial/test_no_code_from_files.py"],
    "sampling, chi-square": ["tests/targets/test_sampling.py"],
    "pages that hold markup": ["tests/report/test_markup.py"],
}
KILLS = "kills of replays, live runs and sweeps, resumed"
FUZZ = "answers beside `model.generate`"


def tried(paths: list[str], environment: dict[str, str]) -> tuple[int, int]:
    """How many cases pytest ran in `paths`, skipped ones aside, and how many of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-n0", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *paths]
        subprocess.run(command, cwd=PROJECT, env=os.environ | environment, check=False)
        found = [{child.tag for child in case} for case in ElementTree.parse(report).iter("testcase")]
    ran = [marks for marks in found if "skipped" not in marks]
    return len(ran), sum(bool(marks & {"failure", "error"}) for marks in ran)


def main(
    output: Annotated[Path | None, typer.Option(help="default: results/local/reliability")] = None,
    cases: Annotated[int, typer.Option(min=1, help="random models, drafters and settings")] = 500,
    kills: Annotated[int, typer.Option(min=1, help="of each kind of run")] = 20,
) -> None:
    """Try all of it and write counts.csv and manifest.json; exit status 1 where anything failed."""
    folder = output or place("results/local/reliability")
    rows = [(FUZZ, cases, len(fuzz.failures(cases, 0)))]
    rows += [(area, *tried(paths, {})) for area, paths in AREAS.items()]
    kinds, lost = tried(["tests/adversarial/test_kills.py"], {"KILLS": str(kills)})
    rows.append((KILLS, kinds * kills, lost))
    counts = pd.DataFrame(rows, columns=["area", "tried", "failed"])
    manifest = make_manifest({"cases": cases, "kills": kills}, "random", "generated")
    counts = counts.assign(date=datetime.now(UTC).date().isoformat(), commit=manifest.commit[:12])
    folder.mkdir(parents=True, exist_ok=True)
    counts.to_csv(folder / "counts.csv", index=False, lineterminator="\n")
    manifest.write(folder / "manifest.json")
    print(counts.to_string(index=False))
    if counts.failed.any():
        raise SystemExit(1)


if __name__ == "__main__":
    run(main)
