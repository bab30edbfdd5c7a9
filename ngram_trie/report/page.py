"""The report: tables, pictures and manifests of the folders below one of results, in the paper's order. All of it is
data, and escaped.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from ngram_trie.bench.records import records_file
from ngram_trie.methods import is_synthetic
from ngram_trie.report.blocks import JSON, SYNTHETIC, WORDS, read
from ngram_trie.report.derive import headline_figure
from ngram_trie.report.run_folder import MANIFEST, RunFolder
from ngram_trie.report.verdict import verdict

#: The user's own runs, below the results; and an answer to step through, as `ngram-trie explore` writes it.
LOCAL, EXPLORER = "local", "explorer.json"
#: Files that are shown or linked, beside MANIFEST, JSON and EXPLORER.
KINDS = frozenset({".csv", ".jsonl", ".md", ".png", ".svg"})
SECTIONS, MODELS, DATASETS, ASKED, PICTURES = WORDS["report"].values()
#: A title names at most this many collections of data sets.
MOST_NAMED = 4


class Folder:
    """A folder with something to show.

    Attributes:
        name: relative to the results.
        files: by their names in it, also of folders below that have no manifest; links are not followed.
        manifest: what its manifest says, where it is there.
        tables: the blocks of its table.json, where it is there.

    Raises:
        ValueError: it is damaged; the message names the file.
    """

    def __init__(self, name: str, files: dict[str, Path]) -> None:
        self.name, self.files = name, files
        self.manifest = RunFolder(files[MANIFEST].parent).manifest if MANIFEST in files else None
        self.tables = read(files[JSON]) if JSON in files else None

    def part(self, name: str) -> Mapping[str, Any]:
        """A named part of the run's configuration, such as its model; empty without one."""
        found = self.manifest.config.get(name) if self.manifest else None
        return found if isinstance(found, Mapping) else {}

    @cached_property
    def model(self) -> str:
        """What the manifest names, or else the folder's name does, in words."""
        if own := self.part("model").get("name"):
            return str(MODELS.get(str(own).replace("_", "-"), own))
        folder = self.name.partition("/")[2].partition("/")[0]
        return str(next((shown for name, shown in MODELS.items() if name in folder), folder))

    @property
    def size(self) -> float:
        """The model's parameters in millions, as its name has them; 0 where it does not."""
        found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([BM])\b", self.model, re.IGNORECASE)
        return float(found[1]) * (1000 if found[2] in "bB" else 1) if found else 0.0

    @property
    def section(self) -> str:
        """Of SECTIONS: the folder that it is in, or SYNTHETIC; the user's own runs stay together."""
        top = self.name.partition("/")[0]
        is_own = is_synthetic(str(self.part("model").get("name", ""))) or "tiny" in self.model.split()
        return SYNTHETIC if is_own and top != LOCAL else top

    @property
    def datasets(self) -> list[str]:
        """What was asked, or of which categories recorded answers are."""
        if not self.manifest:
            return []
        asked = self.manifest.config.get("datasets") or self.part("engine").get("categories") or []
        return [asked] if isinstance(asked, str) else list(asked)

    @property
    def num_datasets(self) -> float:
        """How many; infinite for recorded answers of all categories."""
        return len(self.datasets) or (math.inf if "categories" in self.part("engine") else 0)

    @property
    def title(self) -> str:
        """Which of the papers' tables or figures it is, the model, the machine and what was asked."""
        found = re.search(r"/(table|figure)(\d)", self.name)
        which = f"{found[1].capitalize()} {found[2]}: " if found else ""
        if not self.manifest:
            return f"{which}{self.model or self.name}"
        budget, is_replay = self.part("budget"), self.part("engine").get("name") == "replay"
        words = re.split("[-/]", self.name)
        parts = [
            f"{which}{self.model}" + ", random weights" * (self.part("model").get("weights") == "random"),
            "recorded answers" if is_replay else _machine(self.manifest.device),
            datasets_in_words(self.datasets),
            {"equal": f"{budget.get('num_nodes')} nodes", "auto": "adaptive length"}.get(str(budget.get("rule")), ""),
            *(about for word, about in ASKED.items() if word in words),
        ]
        return ", ".join(filter(None, parts))

    @property
    def started(self) -> str:
        """When it was measured; "" where nothing says so."""
        return self.manifest.started if self.manifest else ""

    @property
    def pictures(self) -> list[tuple[str, Path]]:
        """Caption and file, in the order of PICTURES."""
        found = [path for path in self.files.values() if path.suffix in (".png", ".svg")]
        order = {name: place for place, name in enumerate(PICTURES)}
        found.sort(key=lambda path: order.get(path.stem, len(order)))
        return [(PICTURES.get(path.stem, path.stem.replace("_", " ")), path) for path in found]

    @property
    def explorer(self) -> Any:
        """What `ngram_trie.report.explorer.explore` gives of an answer; None without one."""
        found = [path for path in self.files.values() if path.name == EXPLORER]
        return json.loads(found[0].read_text(encoding="utf-8")) if found else None

    @property
    def opening(self) -> tuple[list[str], Figure | None]:
        """Of a live run with records the lines of its verdict, and its picture, for none may be there as a file."""
        run = RunFolder(self.files[MANIFEST].parent) if MANIFEST in self.files else None
        if not run or self.part("engine").get("name") != "live":
            return [], None
        file = records_file(run.path)
        if not file.exists() or not file.stat().st_size:
            return [], None
        return verdict(run).splitlines(), None if "headline.png" in self.files else headline_figure(run)


def _machine(device: str) -> str:
    """A device's name, shorter: its threads only where they are not as many as its cores."""
    short = re.sub(r"(\d+) cores, \1 threads$", r"\1 cores", re.sub(r"\(R\)| Processor", "", device))
    return re.sub(r"\b1 threads$", "one thread", short)


def datasets_in_words(names: Sequence[str]) -> str:
    """Data sets as a title names them: those of one collection together, of many their number."""
    pairs = [
        next(((p, name[len(p) + 1 :]) for p in DATASETS if name.startswith(f"{p}_")), (name, "")) for name in names
    ]
    grouped = {name: [rest for _, rest in part if rest] for name, part in groupby(pairs, lambda pair: pair[0])}
    if len(grouped) > MOST_NAMED:
        return f"{len(names)} data sets"
    words = [DATASETS.get(name, name) + (f" ({', '.join(parts)})" if parts else "") for name, parts in grouped.items()]
    return re.sub(r"\b(rag|qa)\b", lambda found: found[0].upper(), ", ".join(words).replace("_", " "))


def folders(root: Path, with_local: bool = False) -> Iterator[Folder]:
    """The folders below `root`; of LOCAL where asked for.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: one of them is damaged; the message names the file.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder; results/ of the project holds what was measured")
    last, files = "", dict[str, Path]()
    for place, below, names in os.walk(root):
        path = Path(place)
        below[:] = sorted(name for name in below if with_local or path != root or name != LOCAL)
        kept = [path / name for name in names if Path(name).suffix in KINDS or name in (MANIFEST, JSON, EXPLORER)]
        found = {file.name: file for file in sorted(kept) if not file.is_symlink()}
        name = path.relative_to(root).as_posix()
        if MANIFEST in files and name.startswith(f"{last}/") and not {MANIFEST, JSON} & {*found}:
            files |= {file.relative_to(root / last).as_posix(): file for file in found.values()}
        elif found and path != root:
            if files:
                yield Folder(last, files)
            last, files = name, found
    if files:
        yield Folder(last, files)


def in_order(found: Sequence[Folder]) -> list[tuple[str, list[Folder]]]:
    """Title and folders of each of SECTIONS, in its order; what it does not name follows, and last what is synthetic.
    The largest model stands first, of one model the run of most data sets, and of such the latest; a run stays with the
    folders below it.
    """
    runs: dict[str, list[Folder]] = {}
    for folder in found:
        runs.setdefault("/".join(folder.name.split("/")[:2]), []).append(folder)
    places = {name: place for place, name in enumerate(SECTIONS)}

    def place(run: Sequence[Folder]) -> tuple[float, ...]:
        names = (run[0].section, run[0].name.partition("/")[0])
        first, second = (places.get(name, len(places) - 1.5) for name in names)
        return first, second, -max(folder.size for folder in run), -max(folder.num_datasets for folder in run)

    sections: dict[str, list[Folder]] = {}
    latest = sorted(runs.values(), key=lambda run: max(folder.started for folder in run), reverse=True)
    for run in sorted(latest, key=place):
        sections.setdefault(SECTIONS.get(run[0].section, run[0].section), []).extend(run)
    return list(sections.items())


def page(root: Path, with_local: bool, base: str = "") -> dict[str, Any]:
    """What the report's template shows.

    Args:
        base: how the page's own folder reaches the results: empty within it, else ending in "/".
    """

    def link(file: str) -> Markup:
        return Markup('<a href="{}{}">{}</a>').format(base, quote(file), escape(file.rpartition("/")[2]))

    return {"sections": in_order(list(folders(root, with_local))), "link": link}
