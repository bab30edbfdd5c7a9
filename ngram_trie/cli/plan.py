"""What long work needs, looked at before a byte of weights is fetched: access with the given token, GPU, RAM, disk and
hosts, with gigabytes and hours, as one table.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError
from rich.console import Console
from rich.table import Table

from ngram_trie.bench.provenance import driver
from ngram_trie.bench.room import weights_gb
from ngram_trie.cli.doctor import blind_remedy, gpus
from ngram_trie.data.sources import kept_file, mirrored
from ngram_trie.targets.hub import cached, hub_said, is_unreachable, reach, wanted

State = Literal["here", "to fetch", "left out", "REFUSED", "NO ANSWER"]
#: Those that count as downloads: a host that does not answer may do so later.
FETCHED = ("to fetch", "NO ANSWER")
#: Hours for a gigabyte at 100 Mbit/s.
HOURS_PER_GB = 8e9 / 100e6 / 3600
#: How long the same work takes on other GPUs, as a multiple of an RTX 4090's time, by the bandwidth of their memory.
GPU_FACTORS = {"H200": 0.25, "H100": 0.35, "A100": 0.6, "5090": 0.6, "4090": 1.0, "3090": 1.1, "A6000": 1.3, "L40": 1.2,
               "A10": 1.7, "L4": 3.4, "T4": 3.2}  # fmt: skip


@dataclass(frozen=True)
class Need:
    """Something that is read.

    Attributes:
        name: what it is for.
        source: repository, address, file or folder.
        gigabytes: its size, known from the host where that says it.
        state: whether it is here, can be had, is not needed after all, is refused, or its host does not answer.
        says: why not, and what to do.
        methods, datasets: those that need it; empty where all do.
    """

    name: str
    source: str
    gigabytes: float
    state: State = "to fetch"
    says: str = ""
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Room:
    """Gigabytes that are written below a folder; `keep` of them are of use later."""

    what: str
    folder: Path
    gigabytes: float
    keep: float = 0.0


def hub_need(
    need: Need, revision: str | None, kind: Literal["model", "dataset"] = "model", file: str = "", licence: str = ""
) -> Need:
    """`need` as the hub sees it, asked with the token that is set.

    Args:
        file: of a data set, the one file that is read, or how the names of several begin.
        licence: of a gated model.
    """
    name = need.source
    if Path(name).exists() or (kind == "model" and cached(name, revision)):
        return replace(need, state="here", gigabytes=weights_gb(name, revision) or need.gigabytes)
    if file and isinstance(try_to_load_from_cache(name, file, repo_type=kind, revision=revision), str):
        return replace(need, state="here")
    if constants.HF_HUB_OFFLINE:
        says = "not in the cache, and HF_HUB_OFFLINE forbids to fetch it: unset that"
        return replace(need, state="REFUSED", says=says)
    try:
        about: Any = HfApi().repo_info(name, repo_type=kind, revision=revision, files_metadata=True)
        files = {each.rfilename: each.size or 0 for each in about.siblings or []}
        names = wanted(files) if kind == "model" else [each for each in files if each.startswith(file)]
        if not names:
            return replace(need, state="REFUSED", says=f"it has no {file or 'weights'}")
        # A gate stands before the files; what a repository is, everybody may know.
        get_hf_file_metadata(hf_hub_url(name, names[0], repo_type=kind, revision=revision))
    except GatedRepoError:
        page = f"{constants.ENDPOINT}/{'datasets/' * (kind == 'dataset')}{name}"
        says = (
            f"gated: accept {licence or 'its licence'} at {page}, then hf auth login, or set HF_TOKEN to a token of "
            "that account"
        )
        return replace(need, state="REFUSED", says=says)
    except Exception as error:  # of the hub's client and of the network
        return replace(need, state="NO ANSWER" if is_unreachable(error) else "REFUSED", says=hub_said(error))
    size = sum(files[each] for each in names) / 1e9
    return replace(need, gigabytes=size or need.gigabytes)


def url_need(need: Need, checksum: str) -> Need:
    """`need` as the host of a plain download sees it."""
    if kept_file(need.source, checksum).exists():
        return replace(need, state="here")
    status, silent = reach(mirrored(need.source))
    if silent:
        return replace(need, state="NO ANSWER", says=silent)
    return replace(need, state="REFUSED", says=f"its host answers {status}") if status >= 400 else need


def looked_up(looks: Sequence[Callable[[], Need]]) -> list[Need]:
    """All at once: a host that does not answer takes its time."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda look: look(), looks))


def gpu() -> tuple[str, float]:
    """The largest GPU that torch sees, and its memory in gigabytes; ("", 0) without."""
    found = max(gpus(), key=lambda about: about.total_memory, default=None)
    return (str(found.name), found.total_memory / 1e9) if found else ("", 0.0)


def gpu_factor(name: str) -> float:
    """How long work takes on a GPU, as a multiple of an RTX 4090's time; 1 for one that is not known."""
    return next((factor for known, factor in GPU_FACTORS.items() if known in name), 1.0)


def gpu_line() -> str:
    """The GPU in words, or why there is none."""
    name, memory = gpu()
    if name:
        return f"{name}, {memory:.0f} GB, driver {driver() or 'unknown'}"
    version = driver()
    return f"driver {version}, but torch sees none; {blind_remedy()}" if version else "none"


def short_of_disk(needs: Sequence[Need], rooms: Sequence[Room], caches: dict[str, Path]) -> Iterator[str]:
    """What is wrong with the places that are written to, in words: no room, or no permission.

    Args:
        caches: folder of a hub's and of plain downloads, by "hub" and "plain".
    """
    written = [(caches["plain" if "://" in need.source else "hub"], need.gigabytes)
               for need in needs if need.state in FETCHED]  # fmt: skip
    by_disk: dict[int, tuple[Path, float]] = {}
    for folder, gigabytes in [*written, *((room.folder, room.gigabytes) for room in rooms)]:
        there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not os.access(there, os.W_OK):
            yield f"{there} cannot be written to"
        disk = there.stat().st_dev
        first, total = by_disk.get(disk, (there, 0.0))
        by_disk[disk] = first, total + gigabytes
    for folder, total in by_disk.values():
        if total > (free := shutil.disk_usage(folder).free / 1e9):
            yield (
                f"{total:.0f} GB are needed on the disk of {folder} and {free:.0f} GB are free: make room, or put "
                "caches on another disk (HF_HOME, NGRAM_TRIE_DATA, HF_DATASETS_CACHE)"
            )


def show(title: str, sections: dict[str, Sequence[Sequence[str]]]) -> None:
    """Print sections of rows, aligned; the last column may be long."""
    console = Console(width=max(100, shutil.get_terminal_size().columns), highlight=False, markup=False, emoji=False)
    console.print(title)
    for name, rows in sections.items():
        table = Table.grid(padding=(0, 2))
        for _ in range(max(map(len, rows), default=0) + 1):
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row("  ", *row)
        if rows:
            console.print(name, table)


def need_rows(needs: Sequence[Need]) -> Iterator[tuple[str, ...]]:
    """What, gigabytes, where from, and whether it can be had."""
    for need in needs:
        yield need.name, f"{need.gigabytes:.1f} GB", need.source, need.state + (f": {need.says}" if need.says else "")


def ram() -> tuple[float, float]:
    """Gigabytes of memory in all, and of those that are free."""
    memory = psutil.virtual_memory()
    return memory.total / 1e9, memory.available / 1e9


def hours(amount: float) -> str:
    """In words; "-" for none."""
    if not amount:
        return "-"
    return f"{amount:.1f} hours" if amount >= 1 else f"{max(1, round(60 * amount))} minutes"


def is_on_gpu(device: str) -> bool:
    """Whether a run on this `model.device` finds a GPU."""
    return device != "cpu" and torch.cuda.is_available()
