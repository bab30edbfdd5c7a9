"""One run's folder: what was measured and what follows from it, each read or computed once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ValidationError

from ngram_trie.bench import cost, metrics, pairwise, quality
from ngram_trie.bench.cost import CostCurve
from ngram_trie.bench.measures import compared
from ngram_trie.bench.records import PromptRecord, RunManifest, is_sealed, read_records, records_file
from ngram_trie.methods import is_synthetic
from ngram_trie.store.files import place

MANIFEST = "manifest.json"
#: Folders with curves: what was measured on this machine, then what the project ships.
LOCAL = (place("results/local/calibration"), place("results/local/smollm2-135m/calibration"))
KEPT = tuple(sorted(curve.parent for curve in place("results/speed").rglob("curve.json")))
CALIBRATIONS = (*LOCAL, *KEPT)


class _Engine(BaseModel):
    """How a run's answers came about."""

    name: Literal["live", "replay", "teacher_forced"]
    traces: str | None = None
    categories: str | list[str] | None = None


class _Measure(BaseModel):
    repeats: int = 1
    sessions: int = 1


class _Config(BaseModel):
    """What tables need of a run's configuration; it holds more."""

    engine: _Engine
    paper_tables: list[int] = []
    grid: dict[str, list[Any]] | None = None
    methods: dict[str, Any] | None = None
    method: dict[str, Any] | None = None
    datasets: dict[str, Any] | None = None
    measure: _Measure | None = None
    cost: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    budget: dict[str, Any] | None = None


class RunFolder:
    """A folder with records.jsonl and manifest.json. What is read of it is checked once against its SHA256SUMS.

    Args:
        records: those in records.jsonl, where they are at hand.
    """

    def __init__(self, path: Path, records: Collection[PromptRecord] | None = None) -> None:
        self.path = path
        if records is not None:
            self.records = records

    @cached_property
    def is_sealed(self) -> bool:
        """Whether the run was finished; errors as `records.is_sealed`."""
        return is_sealed(self.path)

    @cached_property
    def manifest(self) -> RunManifest:
        """What was run.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it has another shape, or a file of the finished run was changed; the message names the file.
        """
        _ = self.is_sealed
        return RunManifest.read(self.path / MANIFEST)

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The configuration that the manifest holds.

        Raises:
            ValueError: it is not a run's; the message names the file and the first field that is wrong.
        """
        try:
            _Config.model_validate(self.manifest.config)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, ("config", *first["loc"])))
            what = first["msg"].replace("Input should be", "must be")
            raise ValueError(f"{self.path / MANIFEST}: {place}: {what}") from None
        return {"paper_tables": [], "grid": None, **self.manifest.config}

    @cached_property
    def records(self) -> Collection[PromptRecord]:
        """All of them, in order.

        Raises:
            FileNotFoundError: the folder holds no records.
            ValueError: they are of another version or run, or a live run has none yet.
        """
        path, _ = records_file(self.path), self.is_sealed
        if not path.exists():
            raise FileNotFoundError(f"{path}: no records; `make reproduce-table1` writes them")
        records = read_records(path)
        for number, record in enumerate(records, 1):
            if record.run != self.manifest.run:
                raise ValueError(f"{path}:{number}: of run {record.run}, and manifest.json is of {self.manifest.run}")
        if not records and (self.is_measured or self.manifest.num_records):
            raise ValueError(f"{path} is empty: nothing has been measured yet")
        return records

    @property
    def is_complete(self) -> bool:
        """Whether every answer of the run is there, as far as its manifest says how many those are."""
        return len(self.records) >= (self.manifest.num_records or 0)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records, one row an answer; see `metrics.to_frame`, and `cost.with_predicted` where there is a curve."""
        frame = metrics.to_frame(self.records)
        return cost.with_predicted(frame, self.records, self.curve) if self.curve and len(frame) else frame

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Every two methods compared by every measure; see `pairwise.pairwise`."""
        order = dict.fromkeys([*self.methods(), *self.frame.method])
        return pairwise.pairwise(self.frame, compared(self.frame, self.is_measured), list(order))

    @cached_property
    def without_loops(self) -> RunFolder | None:
        """The same run with the records of those prompts alone whose answer does not loop (`metrics.looping`); None
        where none does, or all do.
        """
        looping = metrics.looping(self.frame)
        left_out = set(looping.index[looping])
        kept = [r for r in self.records if (r.column, r.question_id, r.turn) not in left_out]
        return RunFolder(self.path, kept) if left_out and len(left_out) < len(looping) else None

    @property
    def is_measured(self) -> bool:
        """Whether the run's seconds are a model's; those of a replay are predicted."""
        return bool(self.config["engine"]["name"] != "replay")

    @cached_property
    def model(self) -> str:
        return next((record.model for record in self.records), "no traces")

    @property
    def is_synthetic(self) -> bool:
        """Whether its answers are about text of the project's own making."""
        return is_synthetic(self.model)

    @cached_property
    def curve(self) -> CostCurve | None:
        """What steps cost on the run's device: of a replay the curve it was given, of a live run one measured there."""
        if not self.is_measured and (self.path / "curve.json").exists():
            return CostCurve.read(self.path)
        if "cost" in self.config:
            # By what it holds, never by the `_target_` it names: a manifest may be somebody else's.
            given = {name: value for name, value in self.config["cost"].items() if name != "_target_"}
            return _curve(place(given["folder"])) if "folder" in given else cost.assumed_curve(**given)
        return next((_curve(folder) for folder in CALIBRATIONS if cost.holds_for(folder, self.manifest)), None)

    @cached_property
    def scores(self) -> pd.DataFrame | None:
        """The quality of the answers, rows of `quality.score` as in quality.csv; None where nothing was scored."""
        path, _ = self.path / quality.FILE, self.is_sealed
        return quality.read(path) if path.exists() else None

    def keep_scores(self, scores: pd.DataFrame) -> None:
        """Take the scores of this run's answers, and write them to quality.csv."""
        self.scores = scores
        quality.write(scores, self.path / quality.FILE)

    def methods(self) -> list[str]:
        """The methods with records, as the configuration lists them, each vanilla before the first compared with it."""
        baselines = dict(zip(self.frame.method, self.frame.baseline, strict=True))
        named = [*(self.config.get("methods") or {}), *baselines]
        order = [each for name in named if name in baselines for each in (baselines[name], name)]
        return [name for name in dict.fromkeys(order) if name in baselines]

    def not_run(self) -> dict[str, str]:
        """What the manifest says was not run, methods and else, each with the reason."""
        notes = self.manifest.environment.items()
        return {name.removeprefix("not run: "): why for name, why in notes if name.startswith("not run: ")}

    def left_out(self) -> dict[str, str]:
        """The methods without any answer, each with the reason: what the manifest says, or how its first one failed."""
        methods = self.config.get("methods") or {}
        found = {name: why for name, why in self.not_run().items() if name in methods}
        answered = set(metrics.answered(self.frame).method)
        for record in self.records:
            if record.failure and record.method not in answered:
                found.setdefault(record.method, record.failure.message)
        return {name: why for name, why in found.items() if name not in answered}

    def datasets(self) -> list[str]:
        """The data sets of the records; of a replay the categories asked for, with or without answers."""
        asked = self.config["engine"].get("categories")
        return ([asked] if isinstance(asked, str) else list(asked)) if asked else list(self.frame.dataset.unique())


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one mapping with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _curve(folder: Path) -> CostCurve:
    is_sealed(folder)
    return CostCurve.read(folder)


def save_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write rows with numbers to five significant digits."""
    frame.to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
