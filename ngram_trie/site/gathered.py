"""What is in `results/`, read as it is: folders with their manifests, laid-out tables, data files and figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ngram_trie.config import is_synthetic
from ngram_trie.report import markup
from ngram_trie.report.blocks import JSON, PUBLISHED, SYNTHETIC, Block, Cell, Tables, read

#: Longer data files are named, not shown: they are one row a question or a bin of a figure.
MOST_ROWS = 130
PAPER, LOCAL = "paper", "local"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """One cell as it is shown.

    Attributes:
        text: the value, or any other text.
        interval, accept: "[low, high]" and the accept length, empty where there is none.
        rank, accept_rank: 1 for the best, 2 for the second best, else 0.
        key: what to sort by; nan sorts as text.
    """

    text: str
    interval: str = ""
    accept: str = ""
    rank: int = 0
    accept_rank: int = 0
    key: float = math.nan

    @property
    def is_number(self) -> bool:
        return math.isfinite(self.key)


@dataclass(frozen=True)
class Table:
    """A table to show, with where it comes from.

    Attributes:
        group: the heading it stands under in its file, such as "Measured" or "The paper's own numbers".
        warning: what that heading says of all its tables.
        file: relative to the results folder.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    file: str
    notes: Sequence[str] = ()
    group: str = ""
    warning: str = ""


def block_table(block: Block, file: str, group: str = "", warning: str = "") -> Table:
    """A block of a table.json."""

    def entry(cell: Cell) -> Entry:
        value, interval, accept = (part.strip("()") for part in markup.parts(cell, block))
        return Entry(value, interval, accept, cell.value_rank, cell.accept_rank, cell.value)

    rows = [
        [_row_name(label), *map(_row_name, lead), *map(entry, row)]
        for (label, row), lead in zip(block.rows.items(), markup.leads(block), strict=True)
    ]
    return Table(
        block.title, [block.corner, *block.lead, *block.columns], rows, file, markup.notes(block), group, warning
    )


def _row_name(text: str) -> Entry:
    """What a row is of; a size, such as n, sorts as the number it is."""
    return Entry(text, key=float(text)) if re.fullmatch(r"\d+(\.\d+)?", text) else Entry(text)


def number_entry(value: Any, decimals: int | None = None) -> Entry:
    """A value of a data file: numbers to four significant digits, or to this many decimals."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Entry(str(value))
    if not math.isfinite(value):
        return Entry("-")
    text = str(value) if isinstance(value, int) else f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"
    return Entry(text, key=float(value))


def frame_table(
    frame: pd.DataFrame, title: str, file: str, notes: Sequence[str] = (), decimals: int | None = None
) -> Table:
    """Rows of a data file; columns that are empty throughout are left out."""
    kept = frame.dropna(axis="columns", how="all").astype(object)
    rows = [[number_entry(value, decimals) for value in row] for row in kept.itertuples(index=False)]
    return Table(title, [str(name).replace("_", " ") for name in kept.columns], rows, file, tuple(notes))


OTHER = "other"
#: The texts of the page: its parts, captions and titles.
WORDS = yaml.safe_load((Path(__file__).parent / "templates" / "words.yaml").read_text(encoding="utf-8"))
#: Names of folders that say what they hold; the first of them in a path decides. Without one the manifest's
#: `paper_tables` do, and without those it is one of the others.
KINDS = {kind for part in WORDS["sections"] for kind in part.get("kinds", [part["id"]])} - {OTHER}
_BY_TABLE = {1: "table1", 2: "grid", 5: "grid", 6: "grid", 3: "num_draft", 4: "table4"}


@dataclass(frozen=True)
class Folder:
    """One folder below the results with something to show.

    Attributes:
        name: relative to the results folder, such as "embedded/table1".
        root: the results folder.
        manifest: its own, or that of the nearest folder above; None where there is none.
        models: names of models by the identity that manifests give them.
    """

    name: str
    root: Path
    manifest: Mapping[str, Any] | None
    models: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.manifest["config"] if self.manifest else {}

    @property
    def kind(self) -> str:
        """One of KINDS, or OTHER."""
        if named := [part for part in self.name.split("/") if part in KINDS]:
            return named[0]
        return next((_BY_TABLE[n] for n in self.config.get("paper_tables") or () if n in _BY_TABLE), OTHER)

    @property
    def run(self) -> str:
        """The folder of the run that it belongs to: its path up to the part that says the kind."""
        parts = self.name.split("/")
        return "/".join(parts[: parts.index(self.kind) + 1]) if self.kind in parts else self.name

    @property
    def engine(self) -> str:
        """Live, replay, or empty where the manifest does not say."""
        engine = self.config.get("engine")
        if isinstance(engine, Mapping):
            return str(engine.get("name", ""))
        return "replay" if self.config.get("traces") else ""

    @property
    def traces(self) -> str:
        """The file that was replayed, empty for a live run."""
        engine = self.config.get("engine")
        given = engine.get("traces") if isinstance(engine, Mapping) else self.config.get("traces")
        return str(given or "")

    @property
    def model(self) -> str:
        """The model by name: the manifest's, or the one that recorded answers are of; else the first folder's name."""
        if name := _model_name(self.manifest):
            return name
        identity = str((self.manifest or {}).get("model", "replay"))
        if identity != "replay":
            return self.models.get(identity, identity)
        for path in ("accept_lengths.csv", "table.csv"):
            frame = self.csv(path)
            if frame is not None and "model" in frame and len(frame):
                return str(frame.model.iloc[0])
        return self.name.partition("/")[0]

    @property
    def is_synthetic(self) -> bool:
        """Whether its text is of our own making: of the models that ship with the project."""
        return self.model.startswith("embedded")

    def manifests(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Its own manifests: "" and that of the whole folder, or the stem of a file and the manifest of that alone."""
        found = [(path, manifest_of(path)) for path in sorted(self.path.glob(f"*{MANIFEST}"))]
        return [(path.name[: -len(MANIFEST)].rstrip("_"), manifest) for path, manifest in found if manifest]

    def csv(self, name: str) -> pd.DataFrame | None:
        """A data file, None where it is not there."""
        path = self.path / name
        return pd.read_csv(path) if path.is_file() and path.stat().st_size else None

    def file(self, name: str) -> str:
        return f"{self.name}/{name}"

    @cached_property
    def tables(self) -> Tables | None:
        """The blocks of table.json, None where there is none."""
        path = self.path / JSON
        return read(path) if path.is_file() else None

    def laid_out(self) -> list[Table]:
        """Those blocks as they are shown."""
        if not self.tables:
            return []
        warnings = {PUBLISHED: self.tables.warning}
        return [
            block_table(block, self.file(JSON), heading, warnings.get(heading, ""))
            for heading, group in self.tables.groups()
            for block in group
        ]

    def data(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Name and rows of every data file but the one that table.json lays out."""
        for path in sorted(self.path.glob("*.csv")):
            if path.name == "table.csv" and (self.path / JSON).is_file():
                continue
            frame = self.csv(path.name)
            if frame is not None:
                if is_synthetic(self.model) and "dataset" in frame:
                    frame = frame.assign(dataset=frame.dataset.astype(str) + f" ({SYNTHETIC})")
                yield path.name, frame
        if (path := self.path / "quality.json").is_file():
            scores = pd.DataFrame.from_dict(json.loads(path.read_text(encoding="utf-8")), orient="index")
            yield path.name, scores.rename_axis("dataset").reset_index()

    def figures(self) -> list[Path]:
        """Its pictures, but that of a case study whose page is there."""
        shown = {path.with_suffix(".png") for path in self.path.glob("case_study.html")}
        return [path for path in sorted(self.path.glob("*.png")) if path not in shown]


def manifest_of(path: Path) -> Mapping[str, Any] | None:
    """A manifest; None where there is no file.

    Raises:
        ValueError: the file is there and is not a manifest.
    """
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); run the command that made the folder again") from None
    if not isinstance(found, dict) or not isinstance(found.get("config"), dict):
        raise ValueError(f"{path}: no manifest of a run: it has no config")
    return found


def _model_name(manifest: Mapping[str, Any] | None) -> str:
    """The name of the configured model, empty where there is none."""
    model = (manifest or {"config": {}})["config"].get("model")
    return str(model.get("name") or "") if isinstance(model, Mapping) else ""


@dataclass(frozen=True)
class Results:
    """A results folder.

    Args:
        root: such as the project's `results/`.
        with_local: also `local/`, the user's own runs.

    Raises:
        FileNotFoundError: there is no such folder.
    """

    root: Path
    with_local: bool = False

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise FileNotFoundError(f"{self.root}: no such folder; results/ of the project holds what was measured")

    def _paths(self) -> Iterator[Path]:
        for path in sorted(self.root.rglob("*")):
            first = path.relative_to(self.root).parts[0]
            if first != LOCAL or self.with_local:
                yield path

    @cached_property
    def folders(self) -> list[Folder]:
        """Every folder that holds a table, a data file, a figure or a manifest, but the published numbers'."""
        kinds = (".csv", ".png", ".html")
        names = {
            str(path.parent.relative_to(self.root))
            for path in self._paths()
            if (path.suffix in kinds and path.parent != self.root) or path.name in (MANIFEST, JSON)
        }
        manifests = {name: self._manifest_of(name) for name in sorted(names - {PAPER, "."})}
        models = {
            str(each.get("model")): _model_name(each) for each in manifests.values() if each and _model_name(each)
        }
        return [Folder(name, self.root, manifest, models) for name, manifest in manifests.items()]

    def _manifest_of(self, name: str) -> Mapping[str, Any] | None:
        path = self.root / name
        while path != self.root:
            if found := manifest_of(path / MANIFEST):
                return found
            others = sorted(path.glob(f"*_{MANIFEST}"))  # of a folder whose files were made apart
            if others:
                return manifest_of(others[0])
            path = path.parent
        return None

    def paper(self, name: str) -> pd.DataFrame | None:
        """A file of published numbers, None where it is not there."""
        path = self.root / PAPER / name
        return pd.read_csv(path) if path.is_file() else None

    def of(self, kind: str, file: str | None = None) -> list[Folder]:
        """The folders of one kind, or those of them that hold `file`."""
        return [f for f in self.folders if f.kind == kind and (file is None or (f.path / file).is_file())]
