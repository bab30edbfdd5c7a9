"""What this machine can run, and what to do about the rest (make doctor).

  python -m scripts.doctor
  python -m scripts.doctor --json

Looks at Python, packages, GPUs, memory, disk, the model hub, and at which models, data sets and parts are there; it
fetches nothing. "ok": there; "-": something that only some runs need is not; "BAD": nothing runs without. The exit
status is 0 if the embedded profile can run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ngram_trie.cli import doctor
from ngram_trie.cli.doctor import PROJECT, Finding

#: GB that the embedded profile writes at most, and that the paper profile takes with TriviaQA's index.
LEAST, WANTED = 0.5, 120.0
LOCAL = PROJECT / "results" / "local"
#: Built once: file that completes it, what it is for, how to get it.
PARTS = (
    ("datastore", LOCAL / "datastore" / "header.json", "rest, sam_static", "make build-datastore (seconds)"),
    ("ngram tables", LOCAL / "ngram_tables" / "embedded" / "header.json", "ngrammys_*", "make build-ngram-tables"),
    ("calibration", LOCAL / "calibration" / "manifest.json", "predicted speeds", "make calibrate"),
    ("index", LOCAL / "retrieval", "TriviaQA", "make build-index (a GPU, 80 GB of disk), then make retrieve"),
)


def models() -> list[Finding]:
    """Each model of configs/model: whether its weights are there and whether a GPU here holds them."""
    from omegaconf import OmegaConf

    from ngram_trie.config import choices
    from scripts.reproduce_paper import CACHE_GB, Download

    section, memory, found = "Models (model=NAME)", doctor.gpu_gb(), []
    for name, file in choices()["model"].items():
        config: Any = OmegaConf.load(file)
        if Path(config.path).is_dir():
            found.append(Finding(section, name, "ok", "ships with the project"))
            continue
        if not config.download_gb:
            missing = "git checkout data/embedded brings it back"
            found.append(Finding(section, name, "bad", f"{config.path} is not there", missing))
            continue
        needed = config.download_gb + CACHE_GB
        cached = Download(config.path, 0, config.path, config.revision).cached
        gate = "gated; " if config.gated else ""
        says = f"{'cached' if cached else f'{gate}{config.download_gb:.1f} GB to fetch'}; GPU of {needed:.0f} GB"
        remedy = "" if cached else "fetched at first use; the gated ones want their licence accepted and a token"
        if memory < needed:
            says += f", {f'{memory:.0f} GB' if memory else 'none'} here"
        found.append(Finding(section, name, "ok" if cached and memory >= needed else "gap", says, remedy))
    return found


def datasets() -> list[Finding]:
    """Each data set of configs/dataset: bundled, there, or still to be had."""
    from omegaconf import OmegaConf

    from ngram_trie.config import choices
    from ngram_trie.data.sources import kept_file
    from scripts.reproduce_paper import Download

    section, found, bundled = "Data sets (dataset=NAME)", [], []
    for name, file in choices()["dataset"].items():
        config: Any = OmegaConf.load(file)
        if not config.keys() & {"hub", "url", "path"}:
            bundled.append(name)
        elif "hub" in config or "url" in config:
            cached = (
                Download(config.hub, 0, config.hub, config.revision).cached
                if "hub" in config
                else kept_file(config.url, config.checksum).exists()
            )
            remedy = "" if cached else "fetched at first use; or a copy: dataset.path=FILE (docs/data.md)"
            found.append(Finding(section, name, "ok" if cached else "gap", "cached" if cached else "to fetch", remedy))
        else:
            there = Path(config.path).exists()
            remedy = "" if there else "make build-index, then make retrieve (docs/data.md)"
            found.append(Finding(section, name, "ok" if there else "gap", "there" if there else "to be made", remedy))
    absent = [name for name in bundled if not (PROJECT / "data/embedded/prompts" / f"{name}.jsonl").exists()]
    says = f"{', '.join(absent)} not there" if absent else f"{', '.join(bundled)}: ship with the project"
    what = "git checkout data/embedded brings them back" if absent else ""
    return [Finding(section, "bundled", "bad" if absent else "ok", says, what), *found]


def parts() -> list[Finding]:
    """What methods need beside weights, and where a run's own curve lies."""
    found = []
    for name, path, use, how in PARTS:
        there = any(path.glob("*/ivfpq/header.json")) if path.is_dir() else path.exists()
        found.append(
            Finding(
                "Parts",
                name,
                "ok" if there else "gap",
                f"{'there' if there else 'not built'}; for {use}",
                "" if there else how,
            )
        )
    return found


def examine() -> list[Finding]:
    """Everything; without the packages that the rest is read with, only what is missing."""
    findings = doctor.packages()
    if not doctor.verdict(findings)[0]:
        return findings
    from huggingface_hub import constants

    from ngram_trie.data.sources import cache_folder

    folders = {"results": LOCAL, "model cache": Path(constants.HF_HUB_CACHE), "data cache": cache_folder()}
    findings += doctor.machine() + doctor.disks(folders, LEAST, WANTED) + doctor.hub()
    return [*findings, *models(), *datasets(), *parts(), doctor.browser()]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    try:
        from ngram_trie.cli.shell import Parser
    except ImportError:  # a machine without packages is examined, too
        Parser = argparse.ArgumentParser  # type: ignore[misc,assignment]
    parser = Parser(__doc__)
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    findings = examine()
    runs, line = doctor.verdict(findings)
    if options.json:
        print(json.dumps({"embedded": runs, "findings": doctor.as_json(findings)}, indent=1))
    else:
        print(f"{doctor.render(findings)}\n\n{line}")
    return 0 if runs else 1


if __name__ == "__main__":
    sys.exit(main())
