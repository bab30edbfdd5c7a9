"""What this machine can run, and what to do about the rest."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ngram_trie.files import PACKAGED, PROJECT, RESOURCES, NotInstalled, package_file, place
from ngram_trie.targets import gguf

#: The model of the small profile.
SMALL = "smollm2_135m"
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
        state: "ok"; "gap", something that only some runs need is missing; "bad", nothing runs without.
        says: what was found.
        remedy: what to do; empty where there is nothing to do.
    """

    name: str
    state: State
    says: str
    remedy: str = ""


def checked(name: str, there: bool, says: str, remedy: str = "", otherwise: State = "gap") -> Finding:
    """The finding of something that is there or not; only what is missing has a remedy."""
    return Finding(name, "ok" if there else otherwise, says, "" if there else remedy)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="the findings as JSON")] = False) -> None:
    """Show what this machine can run, and how to get the rest (make doctor).

      python -m scripts.doctor
      python -m scripts.doctor --json

    Checks Python, packages, GPUs, memory, disk, the model hub, models, data sets and parts. It downloads nothing. "ok":
    present. "-": missing, needed by some runs. "BAD": missing, needed by every run. The exit status is 0 if the
    embedded profile can run.
    """
    sections = {section: list(look()) for section, look in SECTIONS.items()}
    every = [finding for found in sections.values() for finding in found]
    bad = [finding.name for finding in every if finding.state == "bad"]
    has_small = any(finding.name == SMALL and finding.state == "ok" for finding in every)
    if as_json:
        listed = [{"section": section} | asdict(finding) for section, found in sections.items() for finding in found]
        print(json.dumps({"small": not bad and has_small, "embedded": not bad, "findings": listed}, indent=1))
    else:
        render(sections)
        profile = "small profile can run here: make reproduce-table1."
        if not has_small:
            profile = "embedded profile can run here: make reproduce-table1 PROFILE=embedded."
        print(f"Nothing can run here: see {', '.join(bad)}." if bad else f"The {profile}")
    sys.exit(1 if bad else 0)


def render(sections: Mapping[str, Sequence[Finding]]) -> None:
    """Print the findings by section; below each section each remedy once, with the names it is for."""
    console = Console(width=80, highlight=False, markup=False, emoji=False)
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
    about = metadata.metadata("ngram-trie")
    wanted = platform.python_version() in SpecifierSet(about["Requires-Python"])
    remedy = "install Python 3.11 or 3.12, then make PYTHON=python3.11 setup"
    yield checked("Python", wanted, platform.python_version(), remedy, "bad")
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
        yield checked(f"extra {extra}" if extra else "core", not wrong, says, remedy, "gap" if extra else "bad")


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
    try:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB of memory"
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        memory = ""
    yield Finding("processor", "ok", cpu_name() + memory)
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield Finding("torch", "ok", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for number in range(count):
        about: Any = torch.cuda.get_device_properties(number)
        says = f"{about.name}, {about.total_memory / 1e9:.0f} GB, driver {driver() or 'unknown'}"
        yield Finding(f"GPU {number}", "ok", says)
    if not count and (version := driver()):
        remedy = "install a CUDA build of torch for this driver: rm -r .venv, then make setup"
        yield Finding("GPU", "gap", f"driver {version}, but torch sees none", remedy)
    elif not count:
        remedy = "only the paper's models need one, with 24 GB; the small and embedded profiles and replays run without"
        yield Finding("GPU", "gap", "none", remedy)


def disks() -> Iterator[Finding]:
    """Free space where results and caches lie or will lie, one line a disk."""
    folders = {"results": PROJECT, "model cache": Path(constants.HF_HUB_CACHE), "data cache": cache_folder()}
    folders["converted"] = gguf.cache_folder()
    by_disk: dict[int, tuple[Path, list[str]]] = {}
    for name, folder in folders.items():
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        by_disk.setdefault(there.stat().st_dev, (there, []))[1].append(name)
    movable = "HF_HOME, NGRAM_TRIE_DATA, NGRAM_TRIE_CACHE"
    remedy = f"the paper profile takes up to {WANTED:.0f} GB: make room, or move caches ({movable})"
    for folder, names in by_disk.values():
        free = shutil.disk_usage(folder).free / 1e9
        state: State = "bad" if free < LEAST and "results" in names else "gap" if free < WANTED else "ok"
        yield Finding(", ".join(names), state, f"{free:,.0f} GB free", "" if state == "ok" else remedy)


def hub() -> Iterator[Finding]:
    """Whether the model hub answers, and whether there is a token (which is never shown)."""
    if constants.HF_HUB_OFFLINE:
        remedy = "unset it to download models and data"
        yield Finding("hub", "gap", "HF_HUB_OFFLINE is set: only what is cached can be used", remedy)
    else:
        reason = unreachable(constants.ENDPOINT)
        remedy = "give copies (model.path=FOLDER, dataset.path=FILE), or a mirror (HF_ENDPOINT=URL)"
        says = f"cannot be reached ({reason})" if reason else "answers"
        yield checked("hub", not reason, f"{constants.ENDPOINT} {says}", remedy)
    there = bool(get_token())
    remedy = "only gated models need one: hf auth login, or set HF_TOKEN"
    yield checked("token", there, "there" if there else "none", remedy)


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
    memory = gpu_gb()
    for name, file in choices()["model"].items():
        config: Any = OmegaConf.load(file)
        if not config.path:  # one's own
            continue
        if config.path.startswith(PACKAGED):
            yield _packaged(name, config.path)
            continue
        if not config.download_gb:
            yield _shipped(name, Path(config.path).is_dir(), "ships with the project")
            continue
        needed, kept = config.download_gb + CACHE_GB, cached(config.path, config.revision)
        says = "cached" if kept else f"{'gated; ' if config.gated else ''}{config.download_gb:.1f} GB to download"
        says += f"; GPU of {needed:.0f} GB" + (f", {memory:.0f} GB here" if memory < needed else "")
        remedy = "" if kept else "downloaded at first use; gated ones need an accepted licence and a token"
        yield checked(name, kept and memory >= needed, says, remedy)


def _packaged(name: str, path: str) -> Finding:
    """A model whose file comes in a package."""
    try:
        done = gguf.conversion(package_file(path)).exists()
    except NotInstalled as error:
        says, _, install = str(error).partition(": ")
        return Finding(name, "gap", says, f"{install}; without it: PROFILE=embedded (model=embedded)")
    except FileNotFoundError as error:
        return Finding(name, "gap", str(error), "install the pinned version (constraints.txt)")
    return Finding(name, "ok", f"package there, {'' if done else 'to be '}converted")


def datasets() -> Iterator[Finding]:
    """Each data set of configs/dataset: bundled, cached, or still to be had."""
    for name, file in choices()["dataset"].items():
        config: Any = OmegaConf.load(file)
        says, remedy = "to download", "downloaded at first use; or give a copy: dataset.path=FILE (docs/data.md)"
        if "hub" in config:
            there = cached(config.hub, config.revision)
            if not there and str(config.get("path")).startswith(PACKAGED):
                try:
                    there = package_file(config.path).is_file()
                except NotInstalled as error:
                    remedy = str(error).partition(": ")[2]
                except FileNotFoundError as error:
                    remedy = str(error)
        elif "url" in config:
            there = kept_file(config.url, config.checksum).exists()
        elif "task" in config:
            yield Finding(name, "ok", "read from the documentation of what is installed")
            continue
        elif "path" in config:
            if not config.path:  # one's own
                continue
            there = Path(config.path).exists()
            says, remedy = "to be made", "make build-index, then make retrieve (docs/data.md)"
        else:
            yield _shipped(name, place(f"data/embedded/prompts/{name}.jsonl").exists(), "bundled")
            continue
        yield checked(name, there, "there" if there else says, remedy)


def _shipped(name: str, there: bool, says: str) -> Finding:
    return checked(name, there, says if there else "missing", "git checkout data/embedded", "bad")


def parts() -> Iterator[Finding]:
    """What methods need beside weights, and the machine's own cost curve."""
    for name, pattern, use, how in PARTS:
        there = any(place("results/local").glob(pattern))
        yield checked(name, there, f"{'there' if there else 'not built'}; for {use}", how)


def tools() -> Iterator[Finding]:
    """A browser for the tests of pages."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    remedy = "install Chromium, or the tests of the report's pages are skipped"
    yield checked("browser", bool(path), Path(path).name if path else "none", remedy)


#: What is looked at, section by section.
SECTIONS: Mapping[str, Callable[[], Iterator[Finding]]] = {
    "Python and packages": packages,
    "Machine": machine,
    "Disk": disks,
    "Model hub": hub,
    "Models (model=NAME)": models,
    "Data sets (dataset=NAME)": datasets,
    "Parts": parts,
    "Tools": tools,
}
