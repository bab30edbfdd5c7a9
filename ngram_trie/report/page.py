"""The report: tables, pictures and manifests of the folders below one of results. All of it is data, and escaped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

from ngram_trie.report.blocks import JSON, Tables, read
from ngram_trie.report.run_folder import MANIFEST, RunFolder

#: The user's own runs, below the results.
LOCAL = "local"
#: Files that are shown or linked, beside MANIFEST and JSON.
KINDS = frozenset({".csv", ".jsonl", ".md", ".png", ".svg"})
#: Pictures that stand before the others of their folder.
FIRST = ("headline", "figure")


@dataclass(frozen=True)
class Folder:
    """A folder with something to show.

    Attributes:
        name: relative to the results.
        files: its own by name; links are not followed.
        about: what its manifest says, name and value.
        tables: the blocks of its table.json, where it is there.
    """

    name: str
    files: Mapping[str, Path]
    about: list[tuple[str, str]]
    tables: Tables | None

    @classmethod
    def read(cls, name: str, files: Mapping[str, Path]) -> Folder:
        """Read what is shown of a folder.

        Raises:
            ValueError: it is damaged; the message names the file.
        """
        about = _about(RunFolder(files[MANIFEST].parent)) if MANIFEST in files else []
        return cls(name, files, about, read(files[JSON]) if JSON in files else None)

    @property
    def pictures(self) -> list[Path]:
        found = [path for name, path in sorted(self.files.items()) if name.endswith(".png")]
        return sorted(found, key=lambda path: FIRST.index(path.stem) if path.stem in FIRST else len(FIRST))


def _about(run: RunFolder) -> list[tuple[str, str]]:
    found = run.manifest
    parts = {name: found.config.get(name) for name in ("model", "engine")}
    named = {name: part["name"] for name, part in parts.items() if isinstance(part, Mapping) and "name" in part}
    about = {
        **named,
        "device": found.device,
        "commit": f"{(found.commit or '-')[:10]}{' (changed files)' if found.dirty else ''}",
        "started": f"{found.started[:16].replace('T', ' ')} UTC",
        "run": found.run,
    }
    return [(name, str(value)) for name, value in about.items()]


def folders(root: Path, with_local: bool = False) -> Iterator[Folder]:
    """The folders below `root`; of LOCAL where asked for.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: one of them is damaged; the message names the file.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder; results/ of the project holds what was measured")
    for place, below, names in os.walk(root):
        path = Path(place)
        below[:] = sorted(name for name in below if with_local or path != root or name != LOCAL)
        kept = [path / name for name in names if Path(name).suffix in KINDS or name in (MANIFEST, JSON)]
        files = {file.name: file for file in sorted(kept) if not file.is_symlink()}
        if files and path != root:
            yield Folder.read(path.relative_to(root).as_posix(), files)


def page(root: Path, with_local: bool, explorer: Mapping[str, Any] | None, base: str = "") -> dict[str, Any]:
    """What the report's template shows.

    Args:
        explorer: of `ngram_trie.report.explorer.explore`; None where there are no recorded answers.
        base: how the page's own folder reaches the results: empty within it, else ending in "/".
    """

    def link(file: str) -> Markup:
        return Markup('<a href="{}{}">{}</a>').format(base, quote(file), escape(file.rpartition("/")[2]))

    found = groupby(folders(root, with_local), lambda each: each.name.partition("/")[0])
    return {"sections": [(name, list(part)) for name, part in found], "explorer": explorer, "link": link}
