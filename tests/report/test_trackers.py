"""Runs in experiment trackers: what a tracker is given, and one that is not there."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS
from support.records import manifest, record

from ngram_trie.methods import ConfigError
from ngram_trie.report import trackers
from ngram_trie.report.run_folder import RunFolder


def test_settings_and_numbers_reach_the_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a-run"
    folder.mkdir()
    config = {"engine": {"name": "live"}, "methods": {}}
    manifest(config, commit="abc").write(folder / "manifest.json")
    run = RunFolder(folder, [record(m, str(q), seconds=s) for q in range(3) for m, s in (("vanilla", 2), ("pld", 1))])
    kind = mock.Mock(requires_logging_directory=False)
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", kind)
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: ["wandb"])
    trackers.log(run, "wandb")
    kind.assert_called_once_with("ngram-trie", name="a-run")
    tracker = kind.return_value
    (settings,), (numbers,) = tracker.store_init_configuration.call_args.args, tracker.log.call_args.args
    assert settings["engine.name"] == "live" and settings["commit"] == "abc"
    assert numbers["pld/all/speedup"] == 2 and "vanilla/qa/accept_length" in numbers
    tracker.finish.assert_called_once_with()


def test_a_tracker_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "get_available_trackers", list)
    with pytest.raises(ConfigError, match="log=mlflow: its client is not installed: pip install mlflow"):
        trackers.check("mlflow")
    with pytest.raises(ConfigError, match="log=nowhere: must be one of"):
        trackers.check("nowhere")
