"""One run's folder: what was measured and what follows from it, each read or computed once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie import cost, metrics
from ngram_trie.config import grid_cells, is_synthetic
from ngram_trie.cost import CostCurve
from ngram_trie.files import place
from ngram_trie.records import PromptRecord, RunManifest, Selected, StoredRecords

#: Folders with curves: what was measured on this machine, then what the project ships. Before both come the folders
#: calibration* beside the run's, one for each machine, so that committed runs are derived with committed curves.
CALIBRATIONS = (place("results/local/calibration"), place("results/embedded/calibration"))


class RunFolder:
    """A folder with records.jsonl and manifest.json.

    Args:
        records: those in records.jsonl, where they are at hand.
    """

    def __init__(self, path: Path, records: Collection[PromptRecord] | None = None) -> None:
        self.path = path
        if records is not None:
            self.records = records

    @cached_property
    def manifest(self) -> RunManifest:
        return RunManifest.read(self.path / "manifest.json")

    @property
    def config(self) -> Mapping[str, Any]:
        return self.manifest.config

    @cached_property
    def records(self) -> Collection[PromptRecord]:
        """All of them, in order; each is read from the file whenever it is asked for.

        Raises:
            FileNotFoundError: the folder holds no records.
            ValueError: they are none of this version's, or a live run has none yet.
        """
        path = self.path / "records.jsonl"
        if not path.exists():
            raise FileNotFoundError(f"{path}: no records; `make reproduce-table1` writes them")
        records = StoredRecords.open(path, self._not_of_the_run)
        if not records and self.is_measured:
            raise ValueError(f"{path} is empty: nothing has been measured yet")
        return records.values()

    def _not_of_the_run(self, record: PromptRecord) -> str:
        """What the manifest does not know of a record."""
        if record.run != self.manifest.run:
            return f"of run {record.run}, and manifest.json is of {self.manifest.run}"
        measure = self.config.get("measure") or {}
        for name, most in (("repeat", "repeats"), ("session", "sessions")):
            if getattr(record, name) >= measure.get(most, 1):
                return f"{name} {getattr(record, name)}, and the run has {measure.get(most, 1)}"
        if (known := self._known_methods) and not {record.method, record.method.removesuffix("_vanilla")} & known:
            return f"method {record.method}, which the run does not have: {', '.join(sorted(known))}"
        if (given := self.config.get("datasets")) and metrics.task_and_context(record.dataset)[0] not in given:
            return f"data set {record.dataset}, which the run does not have: {', '.join(given)}"
        return ""

    @cached_property
    def _known_methods(self) -> frozenset[str]:
        """The methods that the configuration names, and vanilla; nothing where it names none."""
        single, grid = self.config.get("method") or {}, self.config.get("grid")
        named = self.config.get("methods") or ([single["name"]] if single.get("name") else [])
        cells = grid_cells(single["name"], grid) if grid and single else named
        return frozenset([*cells, "vanilla"] if cells else [])

    @property
    def is_complete(self) -> bool:
        """Whether every answer of the run is there, as far as its manifest says how many those are."""
        return len(self.records) >= (self.manifest.num_records or 0)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records, one row an answer; see `metrics.to_frame`."""
        return metrics.to_frame(self.records)

    @cached_property
    def without_loops(self) -> RunFolder | None:
        """The same run with the records of those prompts alone whose answer does not loop (`metrics.looping`); None
        where none does, or all do.
        """
        looping = metrics.looping(self.frame)
        left_out = set(looping.index[looping])
        kept = Selected(self.records, lambda record: record.key.item not in left_out)
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
            return CostCurve.read(place(given["folder"])) if "folder" in given else cost.assumed_curve(**given)
        folders = (*sorted(self.path.absolute().parent.glob("calibration*")), *CALIBRATIONS)
        return next((CostCurve.read(folder) for folder in folders if cost.holds_for(folder, self.manifest)), None)

    @cached_property
    def scores(self) -> pd.DataFrame | None:
        """The quality of the answers, rows of `quality.score` as in quality.csv; None where nothing was scored."""
        path = self.path / "quality.csv"
        return pd.read_csv(path, dtype={"question_id": str}, float_precision="round_trip") if path.exists() else None

    def keep_scores(self, scores: pd.DataFrame) -> None:
        """Take the scores of this run's answers, and write them to quality.csv with all their digits: tables derived
        from the file are those derived now.
        """
        self.scores = scores
        scores.to_csv(self.path / "quality.csv", index=False, lineterminator="\n")

    def methods(self) -> list[str]:
        """The methods with records, as the configuration lists them, each vanilla before the first compared with it."""
        baselines = dict(zip(self.frame.method, self.frame.baseline, strict=True))
        named = [*(self.config.get("methods") or {}), *baselines]
        order = [each for name in named if name in baselines for each in (baselines[name], name)]
        return [name for name in dict.fromkeys(order) if name in baselines]

    def datasets(self) -> list[str]:
        """The data sets of the records; of a replay the categories asked for, with or without answers."""
        asked = self.config["engine"].get("categories")
        return ([asked] if isinstance(asked, str) else list(asked)) if asked else list(self.frame.dataset.unique())


def save_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write rows with numbers to five significant digits."""
    frame.to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
