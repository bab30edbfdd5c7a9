"""What this machine can run: findings, each with what to do about it, and how they are shown.

Only the standard library is imported up here: a machine that lacks the others is what a doctor is for.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from ngram_trie.files import PROJECT

WIDTH = 80
#: Seconds to wait for the hub.
TIMEOUT = 3.0
#: What browsers for the report's tests are called.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

State = Literal["ok", "gap", "bad"]
_MARKS: dict[State, str] = {"ok": "ok", "gap": "-", "bad": "BAD"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        section, name: where it stands.
        state: "ok"; "gap", something that only some runs need is not there; "bad", nothing runs without.
        says: what was found.
        remedy: what to do, in one sentence; empty where there is nothing to do.
    """

    section: str
    name: str
    state: State
    says: str
    remedy: str = ""


def render(findings: Iterable[Finding], width: int = WIDTH) -> str:
    """The findings by section, aligned; below each section what to do, once for all that it is good for."""
    sections: dict[str, list[Finding]] = {}
    for finding in findings:
        sections.setdefault(finding.section, []).append(finding)
    blocks = []
    for section, found in sections.items():
        column = 6 + max(len(finding.name) for finding in found) + 2
        lines = [section]
        remedies: dict[str, list[str]] = {}
        for finding in found:
            head = f"  {_MARKS[finding.state]:4}{finding.name}".ljust(column)
            lines += textwrap.wrap(head + finding.says, width, subsequent_indent=" " * column, **_WHOLE)
            if finding.remedy:
                remedies.setdefault(finding.remedy, []).append(finding.name)
        for remedy, names in remedies.items():
            about = f"  -> {', '.join(names)}: " if len(found) > 1 else "  -> "
            lines += textwrap.wrap(about + remedy, width, subsequent_indent="     ", **_WHOLE)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "drop_whitespace": True}


def as_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    return [asdict(finding) for finding in findings]


def requirements() -> tuple[dict[str, list[str]], dict[str, str]]:
    """From pyproject.toml the requirements by extra ("" are those of the project itself), and from constraints.txt the
    versions that the set-up installs.
    """
    import tomllib  # since Python 3.11; an older one is told so

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = (line.partition("==") for line in (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    return {"": project["dependencies"], **project["optional-dependencies"]}, {name: pin for name, _, pin in pinned}


def check_requirement(text: str, pins: dict[str, str]) -> tuple[State, str, str]:
    """A requirement's name, and whether it is met: state and words."""
    from packaging.requirements import Requirement

    requirement = Requirement(text)
    pin = pins.get(requirement.name, "")
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return "bad", requirement.name, "missing"
    if version.partition("+")[0] not in requirement.specifier:
        return "bad", requirement.name, f"{version}, needs {requirement.specifier}"
    if pin and version.partition("+")[0] != pin:
        return "ok", requirement.name, f"{version} (the set-up pins {pin})"
    return "ok", requirement.name, version


def packages() -> list[Finding]:
    """Python and, where it is one that the project runs on, the packages of the project and its extras."""
    section, wanted = "Python and packages", (3, 11) <= sys.version_info[:2] < (3, 13)
    remedy = "" if wanted else "install Python 3.11 or 3.12, then make PYTHON=python3.11 setup"
    found = [Finding(section, "Python", "ok" if wanted else "bad", platform.python_version(), remedy)]
    if not wanted:
        return found
    try:
        import packaging.requirements
    except ImportError:
        return [
            *found,
            Finding(section, "packages", "bad", "nothing is installed", "make setup, then .venv/bin/python"),
        ]
    assert packaging
    extras, pins = requirements()
    for extra, texts in extras.items():
        checked = [check_requirement(text, pins) for text in texts if not text.startswith("ngram-trie[")]
        wrong = [f"{name} {says}" for state, name, says in checked if state == "bad"]
        other = [f"{name} {says}" for state, name, says in checked if "pins" in says]
        if extra == "gpu" and not shutil.which("nvidia-smi"):
            continue  # FAISS comes for one of the two
        if extra == "cpu" and any(name == "faiss-cpu" for _, name, _ in checked) and wrong and _has("faiss-gpu"):
            continue
        missing: State = "gap" if extra else "bad"
        says = "; ".join([*wrong, *other]) or f"all {len(checked)} at the pinned versions"
        remedy = "make setup" if not extra else f"pip install -c constraints.txt -e '.[{extra}]'"
        name = f"extra {extra}" if extra else "core"
        found.append(Finding(section, name, missing if wrong else "ok", says, remedy if wrong else ""))
    return found


def _has(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def machine() -> list[Finding]:
    """Processor, memory, torch and what GPUs it sees."""
    from ngram_trie.engines.provenance import cpu_name, driver

    section = "Machine"
    try:
        memory = f", {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f} GB of memory"
    except (ValueError, OSError, AttributeError):  # a system that does not tell
        memory = ""
    found = [Finding(section, "processor", "ok", cpu_name() + memory)]
    torch: Any = importlib.import_module("torch")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    found.append(Finding(section, "torch", "ok", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads"))
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(number)
            says = f"{about.name}, {about.total_memory / 1e9:.0f} GB, driver {driver() or 'unknown'}"
            found.append(Finding(section, f"GPU {number}", "ok", says))
        return found
    if version := driver():
        remedy = "take a CUDA build of torch that this driver knows: rm -r .venv, then make setup"
        return [*found, Finding(section, "GPU", "gap", f"driver {version}, but torch sees none", remedy)]
    remedy = "the embedded profile and replay need none; the paper's models need one with 24 GB"
    return [*found, Finding(section, "GPU", "gap", "none", remedy)]


def gpu_gb() -> float:
    """Memory of the largest GPU, in GB; 0 where there is none."""
    torch: Any = importlib.import_module("torch")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return max((torch.cuda.get_device_properties(i).total_memory / 1e9 for i in range(count)), default=0.0)


def disks(folders: dict[str, Path], least: float, wanted: float) -> list[Finding]:
    """Free space where the folders lie or will lie, one line a disk.

    Args:
        folders: what each is for -> folder; the first is where results go.
        least: GB without which nothing runs.
        wanted: GB that the paper profile takes.
    """
    by_disk: dict[int, tuple[Path, list[str]]] = {}
    for name, folder in folders.items():
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        by_disk.setdefault(there.stat().st_dev, (there, []))[1].append(name)
    found = []
    for folder, names in by_disk.values():
        free = shutil.disk_usage(folder).free / 1e9
        first = next(iter(folders)) in names
        state: State = "bad" if free < least and first else "gap" if free < wanted else "ok"
        remedy = f"the paper profile takes up to {wanted:.0f} GB: make room, or move caches (HF_HOME, NGRAM_TRIE_DATA)"
        found.append(Finding("Disk", ", ".join(names), state, f"{free:,.0f} GB free", remedy if state != "ok" else ""))
    return found


def hub() -> list[Finding]:
    """Whether the model hub answers, and whether there is a token (which is never shown)."""
    from huggingface_hub import constants, get_token

    section = "Model hub"
    if constants.HF_HUB_OFFLINE:
        remedy = "unset it to fetch models and data"
        found = [Finding(section, "hub", "gap", "HF_HUB_OFFLINE is set: only what is cached can be used", remedy)]
    elif reason := unreachable(constants.ENDPOINT):
        remedy = "copies do as well: model.path=FOLDER, dataset.path=FILE; a mirror: HF_ENDPOINT=URL"
        found = [Finding(section, "hub", "gap", f"{constants.ENDPOINT} cannot be reached ({reason})", remedy)]
    else:
        found = [Finding(section, "hub", "ok", f"{constants.ENDPOINT} answers")]
    if get_token():
        return [*found, Finding(section, "token", "ok", "there")]
    remedy = "only gated models need one: hf auth login, or set HF_TOKEN"
    return [*found, Finding(section, "token", "gap", "none", remedy)]


def unreachable(url: str, timeout: float = TIMEOUT) -> str:
    """Why nothing answers at `url`; empty if something does."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=timeout).close()
    except urllib.error.HTTPError:  # it answers
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    return ""


def browser() -> Finding:
    """A browser for the tests of pages."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    remedy = "" if path else "the tests of the report's pages skip without: install Chromium"
    return Finding("Tools", "browser", "ok" if path else "gap", Path(path).name if path else "none", remedy)


def verdict(findings: Sequence[Finding]) -> tuple[bool, str]:
    """Whether the embedded profile can run, and a line that says so."""
    bad = [finding.name for finding in findings if finding.state == "bad"]
    if bad:
        return False, f"The embedded profile cannot run here: see {', '.join(bad)}."
    return True, "The embedded profile can run here: make reproduce-table1."
