"""Work in steps: commands, what each downloads, writes and takes; described beforehand, checked, and carried out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import HfApi, constants, snapshot_download

from ngram_trie.config import ConfigError
from ngram_trie.data.sources import cache_folder
from ngram_trie.files import PROJECT, relative
from ngram_trie.targets.hub_errors import explain

#: Of a GPU's memory, what caches, masks and logits take, in gigabytes.
CACHE_GB = 4


@dataclass(frozen=True)
class Download:
    """Something to download.

    Attributes:
        name: what it is.
        gigabytes: its size.
        repository, revision: where the hub has it, if it does.
        terms: a licence to accept first.
    """

    name: str
    gigabytes: float
    repository: str = ""
    revision: str | None = None
    terms: str = ""

    @property
    def is_here(self) -> bool:
        return bool(self.repository) and cached(self.repository, self.revision)


@dataclass(frozen=True)
class Step:
    """One command, and what it costs.

    Attributes:
        about: what it is for, in words.
        command: arguments for this Python.
        done: a file that exists once the step is done; None if the command itself knows.
        downloads: what it downloads.
        disk: what it writes beside that: folder -> gigabytes.
        hours: how long it may take.
        last: no later step needs it.
    """

    about: str
    command: Sequence[str]
    done: Path | None = None
    downloads: Sequence[Download] = ()
    disk: Sequence[tuple[Path, float]] = ()
    hours: float = 0.0
    last: bool = False

    @property
    def is_done(self) -> bool:
        return bool(self.done and self.done.exists())

    def __str__(self) -> str:
        """The command as one would type it, paths of the project relative to it."""
        return " ".join(["python", *(part.replace(f"{PROJECT}/", "") for part in self.command)])


def cached(repository: str, revision: str | None) -> bool:
    """Whether a model or data set is in the hub's cache."""
    for kind in ("model", "dataset"):
        try:
            snapshot_download(repository, repo_type=kind, revision=revision, local_files_only=True)
            return True
        except (OSError, ValueError):
            continue
    return False


def gpu_gb() -> float:
    """Memory of the largest GPU in gigabytes; 0 where there is none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return max((torch.cuda.get_device_properties(i).total_memory / 1e9 for i in range(count)), default=0.0)


def fetch(repositories: Iterable[str]) -> None:
    """Download weights in one format: safetensors where there are any.

    Args:
        repositories: REPOSITORY or REPOSITORY@REVISION.

    Raises:
        FileNotFoundError: the hub does not give one; the message says what to do.
    """
    for named in repositories:
        name, _, revision = named.partition("@")
        try:
            files = HfApi().list_repo_files(name, revision=revision or None)
            kinds = ["*.safetensors"] if any(f.endswith(".safetensors") for f in files) else ["*.bin", "*.pt"]
            patterns = [*kinds, "*.json", "*.model", "*.txt", "*.jinja"]
            snapshot_download(name, revision=revision or None, allow_patterns=patterns, ignore_patterns="original/*")
        except Exception as error:  # the hub client raises many kinds
            reason = explain(error, name, revision or None)
            if not cached(name, revision or None):
                raise FileNotFoundError(f"{name} cannot be fetched: {reason}") from error
            print(f"{name}: taken from the cache ({reason})", flush=True)


def describe(steps: Sequence[Step]) -> str:
    """What will be done, a step a paragraph, and the sums."""
    lines = ["Steps. Sizes and times are estimates; an interrupted step is resumed."]
    left = [step for step in steps if not step.is_done]
    for number, step in enumerate(steps, 1):
        if step.is_done:
            lines.append(f"{number}. {step.about}: done ({relative(str(step.done))})")
            continue
        lines.append(f"{number}. {step.about}" + (f": about {duration(step.hours)}" if step.hours else ""))
        lines.append(f"   {step}")
        for part in step.downloads:
            there = "in the cache" if part.is_here else "to download"
            lines.append(f"   {part.name}: {part.gigabytes:.1f} GB, {there}{f'; {part.terms}' if part.terms else ''}")
    downloads, written = sum(room for _, room in _missing(left)), sum(room for step in left for _, room in step.disk)
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "a GPU (there is none here)"
    lines.append(
        f"In all: {downloads:.1f} GB to download, {written:.1f} GB of indexes and results "
        f"({shutil.disk_usage(PROJECT).free / 1e9:.0f} GB are free), "
        f"about {duration(sum(step.hours for step in left))} on {device}."
    )
    return "\n".join(lines)


def duration(hours: float) -> str:
    """Hours in words."""
    return f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"


def _missing(steps: Sequence[Step]) -> list[tuple[Path, float]]:
    """What is still to be downloaded, each thing once: its folder and its gigabytes."""
    parts = {(part.repository, part.name): part for step in steps for part in step.downloads if not part.is_here}
    hub, other = Path(constants.HF_HUB_CACHE), cache_folder()
    return [(hub if part.repository else other, part.gigabytes) for part in parts.values()]


def check_room(steps: Sequence[Step]) -> None:
    """Raises:
    ConfigError: the steps need more disk than is free.
    """
    needs: dict[int, tuple[Path, float]] = {}  # by disk
    for folder, room in [*_missing(steps), *(part for step in steps for part in step.disk)]:
        folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        first, needed = needs.get(folder.stat().st_dev, (folder, 0.0))
        needs[folder.stat().st_dev] = (first, needed + room)
    for folder, needed in needs.values():
        free = shutil.disk_usage(folder).free / 1e9
        if needed > free:
            raise ConfigError(
                f"{needed:.0f} GB are needed on the disk of {folder}, {free:.0f} GB are free: make room, put caches on "
                "another disk (HF_HOME, NGRAM_TRIE_DATA), or leave out data sets"
            )


def carry_out(steps: Sequence[Step]) -> int:
    """Run the steps in order. A failure ends it, except that one model's failed run leaves the others their turn.

    Returns:
        The status of the first failure, 0 if there is none.
    """
    failed = 0
    for step in steps:
        print(f"\n== {step.about}\n   {step}", flush=True)
        if status := subprocess.run([sys.executable, *step.command], cwd=PROJECT, check=False).returncode:
            print(f"error: {step.about}: failed; mend the cause and give the same command again", file=sys.stderr)
            failed = failed or status
            if not step.last:
                break
    return failed
