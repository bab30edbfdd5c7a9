"""Runs in experiment trackers: what a tracker is given, and one that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from support.records import manifest, record

from ngram_trie.methods import ConfigError
from ngram_trie.report import trackers
from ngram_trie.report.run_folder import RunFolder


class Kept(GeneralTracker):
    """A tracker that keeps what it is given."""

    name, requires_logging_directory, main_process_only = "wandb", False, True
    given: dict[str, Any]

    def __init__(self, run_name: str, **options: Any) -> None:
        super().__init__()
        Kept.given = {"project": run_name, **options}

    def start(self) -> None:
        pass

    @property
    def tracker(self) -> None:
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.given["settings"] = values

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self.given["numbers"] = values

    def finish(self) -> None:
        self.given["finished"] = True


def test_settings_and_numbers_reach_the_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a-run"
    folder.mkdir()
    config = {"engine": {"name": "live"}, "methods": {}}
    manifest(config, commit="abc").write(folder / "manifest.json")
    run = RunFolder(folder, [record(m, str(q), seconds=s) for q in range(3) for m, s in (("vanilla", 2), ("pld", 1))])
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Kept)
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: ["wandb"])
    trackers.log(run, "wandb")
    given = Kept.given
    assert (given["project"], given["name"], given["finished"]) == ("ngram-trie", "a-run", True)
    assert given["settings"]["engine.name"] == "live" and given["settings"]["commit"] == "abc"
    assert given["numbers"]["pld/all/speedup"] == 2 and "vanilla/qa/accept_length" in given["numbers"]


def test_a_tracker_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "get_available_trackers", list)
    with pytest.raises(ConfigError, match="log=mlflow: its client is not installed: pip install mlflow"):
        trackers.check("mlflow")
    with pytest.raises(ConfigError, match="log=nowhere: must be one of"):
        trackers.check("nowhere")
