"""What this machine can run, and what to do about the rest."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from huggingface_hub import constants, get_token
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from ngram_trie.cli.plan import CACHE_GB, cached, gpu_gb
from ngram_trie.config import choices
from ngram_trie.data.sources import cache_folder, kept_file
from ngram_trie.engines.provenance import cpu_name, driver
from ngram_trie.files import PROJECT, RESOURCES, place

#: GB that the embedded profile writes at most, and that the paper profile takes with TriviaQA's index.
LEAST, WANTED = 0.5, 120.0
#: What is built once: the file that completes it, what it is for, how to get it.
PARTS = (
    ("datastore", "datastore/header.json", "rest, sam_static", "make build-datastore (seconds)"),
    ("ngram tables", "ngram_tables/embedded/header.json", "ngrammys_*", "make build-ngram-tables"),
    ("calibration", "calibration/manifest.json", "predicted speeds", "make calibrate"),
    ("index", "retrieval/*/ivfpq/header.json", "TriviaQA", "make build-index (a GPU, 80 GB of disk), make retrieve"),
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

State = Literal["ok", "gap", "bad"]
_MARKS: dict[State, str] = {"ok": "ok", "gap": "-", "bad": "BAD"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        section, name: where it is listed.
        state: "ok"; "gap", something that only some runs need is missing; "bad", nothing runs without.
        says: what was found.
        remedy: what to do; empty where there is nothing to do.
    """

    section: str
    name: str
    state: State
    says: str
    remedy: str = ""


def doctor(as_json: Annotated[bool, typer.Option("--json", help="the findings as JSON")] = False) -> None:
    """What this machine can run, and what to do about the rest (make doctor).

      python -m scripts.doctor
      python -m scripts.doctor --json

    Looks at Python, packages, GPUs, memory, disk, the model hub, and at which models, data sets and parts are there. It
    downloads nothing. "ok": there; "-": missing, and only some runs need it; "BAD": nothing runs without. The exit
    status is 0 if the embedded profile can run.
    """
    findings = [*packages(), *machine(), *disks(), *hub(), *models(), *datasets(), *parts(), browser()]
    bad = [finding.name for finding in findings if finding.state == "bad"]
    if as_json:
        print(json.dumps({"embedded": not bad, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        render(findings)
        can = f"cannot run here: see {', '.join(bad)}." if bad else "can run here: make reproduce-table1."
        print(f"The embedded profile {can}")
    sys.exit(1 if bad else 0)


def render(findings: Iterable[Finding]) -> None:
    """Print the findings by section; below each section each remedy once, with the names it is for."""
    console = Console(width=80, highlight=False, markup=False, emoji=False)
    sections: dict[str, list[Finding]] = {}
    for finding in findings:
        sections.setdefault(finding.section, []).append(finding)
    for section, found in sections.items():
        rows, remedies = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 1))
        advice: dict[str, list[str]] = {}
        for finding in found:
            rows.add_row(f"  {_MARKS[finding.state]}", finding.name, finding.says)
            if finding.remedy:
                advice.setdefault(finding.remedy, []).append(finding.name)
        for remedy, names in advice.items():
            remedies.add_row("  ->", f"{', '.join(names)}: {remedy}")
        console.print(section, rows, remedies)


def packages() -> Iterator[Finding]:
    """Python, and the requirements of the project and of its extras."""
    about, section = metadata.metadata("ngram-trie"), "Python and packages"
    wanted = platform.python_version() in SpecifierSet(about["Requires-Python"])
    remedy = "" if wanted else "install Python 3.11 or 3.12, then make PYTHON=python3.11 setup"
    yield Finding(section, "Python", "ok" if wanted else "bad", platform.python_version(), remedy)
    requirements = [Requirement(text) for text in metadata.requires("ngram-trie") or ()]
    file = RESOURCES / "constraints.txt"  # of a checkout
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    pins = {name: pin for name, _, pin in (line.partition("==") for line in lines)}
    for extra in ["", *(about.get_all("Provides-Extra") or ())]:
        if (extra == "gpu" and not shutil.which("nvidia-smi")) or (extra == "cpu" and version_of("faiss-gpu")):
            continue  # FAISS comes for one of the two
        own = [r for r in requirements if r.name != "ngram-trie" and bool(r.marker) == bool(extra)]
        own = [r for r in own if r.marker is None or r.marker.evaluate({"extra": extra})]
        wrong = list(filter(None, map(unmet, own)))
        other = [
            f"{r.name} {version_of(r.name)} (the set-up pins {pins[r.name]})"
            for r in own
            if r.name in pins and version_of(r.name) not in ("", pins[r.name]) and not unmet(r)
        ]
        says = "; ".join([*wrong, *other]) or f"all {len(own)} installed"
        remedy = f"pip install -c constraints.txt -e '.[{extra}]'" if extra else "make setup"
        state: State = "ok" if not wrong else "gap" if extra else "bad"
        yield Finding(section, f"extra {extra}" if extra else "core", state, says, remedy if wrong else "")


def version_of(package: str) -> str:
    """The installed version without its build, such as +cpu; empty where it is missing."""
    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def unmet(requirement: Requirement) -> str:
    """What is wrong with a package; empty if nothing is."""
    version = version_of(requirement.name)
    if version and version in requirement.specifier:
        return ""
    return f"{requirement.name} {f'{version}, needs {requirement.specifier}' if version else 'missing'}"


def machine() -> Iterator[Finding]:
    """Processor, memory, torch and the GPUs that it sees."""
    section = "Machine"
    try:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB of memory"
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        memory = ""
    yield Finding(section, "processor", "ok", cpu_name() + memory)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield Finding(section, "torch", "ok", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for number in range(count):
        about: Any = torch.cuda.get_device_properties(number)
        says = f"{about.name}, {about.total_memory / 1e9:.0f} GB, driver {driver() or 'unknown'}"
        yield Finding(section, f"GPU {number}", "ok", says)
    if not count and (version := driver()):
        remedy = "take a CUDA build of torch that this driver knows: rm -r .venv, then make setup"
        yield Finding(section, "GPU", "gap", f"driver {version}, but torch sees none", remedy)
    elif not count:
        remedy = "the embedded profile and replay need none; the paper's models need one with 24 GB"
        yield Finding(section, "GPU", "gap", "none", remedy)


def disks() -> Iterator[Finding]:
    """Free space where results and caches lie or will lie, one line a disk."""
    folders = {"results": PROJECT, "model cache": Path(constants.HF_HUB_CACHE), "data cache": cache_folder()}
    by_disk: dict[int, tuple[Path, list[str]]] = {}
    for name, folder in folders.items():
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        by_disk.setdefault(there.stat().st_dev, (there, []))[1].append(name)
    remedy = f"the paper profile takes up to {WANTED:.0f} GB: make room, or move caches (HF_HOME, NGRAM_TRIE_DATA)"
    for folder, names in by_disk.values():
        free = shutil.disk_usage(folder).free / 1e9
        state: State = "bad" if free < LEAST and "results" in names else "gap" if free < WANTED else "ok"
        yield Finding("Disk", ", ".join(names), state, f"{free:,.0f} GB free", "" if state == "ok" else remedy)


def hub() -> Iterator[Finding]:
    """Whether the model hub answers, and whether there is a token (which is never shown)."""
    section = "Model hub"
    if constants.HF_HUB_OFFLINE:
        remedy = "unset it to download models and data"
        yield Finding(section, "hub", "gap", "HF_HUB_OFFLINE is set: only what is cached can be used", remedy)
    elif reason := unreachable(constants.ENDPOINT):
        remedy = "copies do as well: model.path=FOLDER, dataset.path=FILE; a mirror: HF_ENDPOINT=URL"
        yield Finding(section, "hub", "gap", f"{constants.ENDPOINT} cannot be reached ({reason})", remedy)
    else:
        yield Finding(section, "hub", "ok", f"{constants.ENDPOINT} answers")
    there, remedy = bool(get_token()), "only gated models need one: hf auth login, or set HF_TOKEN"
    yield Finding(section, "token", "ok" if there else "gap", "there" if there else "none", "" if there else remedy)


def unreachable(url: str, timeout: float = 3.0) -> str:
    """Why nothing answers at `url` within `timeout` seconds; empty if something does."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:  # it answers
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return ""


def models() -> Iterator[Finding]:
    """Each model of configs/model: whether its weights are there and whether a GPU here holds them."""
    section, memory = "Models (model=NAME)", gpu_gb()
    for name, file in choices()["model"].items():
        config: Any = OmegaConf.load(file)
        if not config.download_gb:
            there = Path(config.path).is_dir()
            says, remedy = ("ships with the project", "") if there else ("missing", "git checkout data/embedded")
            yield Finding(section, name, "ok" if there else "bad", says, remedy)
            continue
        needed, kept = config.download_gb + CACHE_GB, cached(config.path, config.revision)
        says = "cached" if kept else f"{'gated; ' if config.gated else ''}{config.download_gb:.1f} GB to download"
        says += f"; GPU of {needed:.0f} GB" + (f", {memory:.0f} GB here" if memory < needed else "")
        remedy = "" if kept else "downloaded at first use; gated ones need an accepted licence and a token"
        yield Finding(section, name, "ok" if kept and memory >= needed else "gap", says, remedy)


def datasets() -> Iterator[Finding]:
    """Each data set of configs/dataset: bundled, cached, or still to be had."""
    section = "Data sets (dataset=NAME)"
    for name, file in choices()["dataset"].items():
        config: Any = OmegaConf.load(file)
        if not config.keys() & {"hub", "url", "path"}:
            there, remedy = place(f"data/embedded/prompts/{name}.jsonl").exists(), "git checkout data/embedded"
            yield Finding(
                section, name, "ok" if there else "bad", "bundled" if there else "missing", remedy * (not there)
            )
            continue
        if "hub" in config:
            there = cached(config.hub, config.revision)
        else:
            there = (kept_file(config.url, config.checksum) if "url" in config else Path(config.path)).exists()
        made = "hub" not in config and "url" not in config
        remedy = "make build-index, then make retrieve (docs/data.md)" if made else (
            "downloaded at first use; or a copy: dataset.path=FILE (docs/data.md)"
        )  # fmt: skip
        says = "there" if there else "to be made" if made else "to download"
        yield Finding(section, name, "ok" if there else "gap", says, "" if there else remedy)


def parts() -> Iterator[Finding]:
    """What methods need beside weights, and the machine's own cost curve."""
    for name, pattern, use, how in PARTS:
        there = any(place("results/local").glob(pattern))
        says = f"{'there' if there else 'not built'}; for {use}"
        yield Finding("Parts", name, "ok" if there else "gap", says, "" if there else how)


def browser() -> Finding:
    """A browser for the tests of pages."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    remedy = "" if path else "the tests of the report's pages are skipped without: install Chromium"
    return Finding("Tools", "browser", "ok" if path else "gap", Path(path).name if path else "none", remedy)
