"""Runs in experiment trackers, by stand-ins for their clients."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from test_metrics import record

from ngram_trie.config import ConfigError
from ngram_trie.records import RunManifest
from ngram_trie.report import trackers
from ngram_trie.report.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = tmp_path / "a-run"
    folder.mkdir()
    config = {"engine": {"name": "live"}, "methods": {}}
    RunManifest("r", config, "m", "p", "abc", None, "d", 1, {}, "").write(folder / "manifest.json")
    (folder / "table.md").write_text("| a |")
    return RunFolder(folder, [record(m, str(q), seconds=s) for q in range(3) for m, s in (("vanilla", 2), ("pld", 1))])


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> MagicMock:
    made = MagicMock()
    monkeypatch.setitem(sys.modules, trackers.CLIENTS[request.param], made)
    return made


@pytest.mark.parametrize("stand_in", ["mlflow"], indirect=True)
def test_mlflow(run: RunFolder, stand_in: MagicMock) -> None:
    trackers.log(run, "mlflow")
    stand_in.start_run.assert_called_once_with(run_name="a-run")
    (settings,), (values,) = stand_in.log_params.call_args.args, stand_in.log_metrics.call_args.args
    assert settings["engine.name"] == "live" and settings["commit"] == "abc"
    assert values["pld/all/speedup"] == 2 and "vanilla/qa/accept_length" in values
    assert {Path(call.args[0]).name for call in stand_in.log_artifact.call_args_list} == {"table.md", "manifest.json"}


@pytest.mark.parametrize(("stand_in", "name"), [("wandb", "wandb"), ("trackio", "trackio")], indirect=["stand_in"])
def test_wandb_and_trackio(run: RunFolder, stand_in: MagicMock, name: str) -> None:
    trackers.log(run, name)
    assert stand_in.init.call_args.kwargs["name"] == "a-run"
    assert stand_in.init.call_args.kwargs["config"]["device"] == "d"
    logged = stand_in.init.return_value.log if name == "wandb" else stand_in.log
    assert logged.call_args.args[0]["pld/all/speedup"] == 2


@pytest.mark.parametrize("stand_in", ["tensorboard"], indirect=True)
def test_tensorboard(run: RunFolder, stand_in: MagicMock) -> None:
    trackers.log(run, "tensorboard")
    stand_in.SummaryWriter.assert_called_once_with(str(run.path / "tensorboard"))
    scalars = {call.args for call in stand_in.SummaryWriter.return_value.add_scalar.call_args_list}
    assert ("pld/all/speedup", 2.0) in scalars
    stand_in.SummaryWriter.return_value.close.assert_called_once_with()


def test_a_client_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match="log=mlflow: its client is not installed: pip install mlflow"):
        trackers.client("mlflow")
