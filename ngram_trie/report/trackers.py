"""Runs in experiment trackers, each through its own client where that is installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ngram_trie.config import ConfigError
from ngram_trie.report import sweeps
from ngram_trie.report.derive import flatten
from ngram_trie.report.run_folder import RunFolder

PROJECT_NAME = "ngram-trie"
#: What is uploaded of a run's folder, where a client takes files.
FILES = ("table.md", "table.csv", "table.json", "versus.csv", "manifest.json", "samples.md")
#: The client that each tracker is installed as.
CLIENTS = {
    "mlflow": "mlflow",
    "wandb": "wandb",
    "tensorboard": "torch.utils.tensorboard",
    "trackio": "trackio",
}


def client(name: str) -> Any:
    """The tracker's own module.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(CLIENTS[name])
    except ImportError:
        raise ConfigError(f"log={name}: its client is not installed: pip install {name}") from None


def numbers(run: RunFolder) -> dict[str, float]:
    """The run's numbers by METHOD/DATASET/MEASURE."""
    frame = sweeps.cell_table(run.records, run.curve, run.is_measured)
    measures = ["speedup", "speedup_low", "speedup_high", "predicted_speedup", "accept_length", "num_prompts"]
    return {
        f"{row.method}/{row.dataset}/{name}": float(value)
        for row in frame.itertuples()
        for name in measures
        if (value := getattr(row, name, math.nan)) is not None and math.isfinite(value)
    }


def log(run: RunFolder, name: str) -> None:
    """Log settings, numbers and tables of a run under the name of its folder.

    Raises:
        ConfigError: the client is not installed.
    """
    settings = {key: str(value) for key, value in flatten(run.config).items()}
    about = {"commit": str(run.manifest.commit), "device": run.manifest.device, "run": run.manifest.run}
    files = [run.path / file for file in FILES if (run.path / file).exists()]
    _LOGGERS[name](client(name), run.path.name, settings | about, numbers(run), files)


def _mlflow(
    mlflow: Any, title: str, settings: Mapping[str, str], values: Mapping[str, float], files: list[Path]
) -> None:
    mlflow.set_experiment(PROJECT_NAME)
    with mlflow.start_run(run_name=title):
        mlflow.log_params(settings)
        mlflow.log_metrics(values)
        for file in files:
            mlflow.log_artifact(str(file))


def _wandb(wandb: Any, title: str, settings: Mapping[str, str], values: Mapping[str, float], files: list[Path]) -> None:
    run = wandb.init(project=PROJECT_NAME, name=title, config=dict(settings))
    run.log(dict(values))
    for file in files:
        run.save(str(file), base_path=str(file.parent), policy="now")
    run.finish()


def _trackio(
    trackio: Any, title: str, settings: Mapping[str, str], values: Mapping[str, float], files: list[Path]
) -> None:
    trackio.init(project=PROJECT_NAME, name=title, config=dict(settings))
    trackio.log(dict(values))
    trackio.finish()


def _tensorboard(
    tensorboard: Any, title: str, settings: Mapping[str, str], values: Mapping[str, float], files: list[Path]
) -> None:
    writer = tensorboard.SummaryWriter(str(files[0].parent / "tensorboard") if files else title)
    writer.add_text("settings", "\n".join(f"    {key}: {value}" for key, value in settings.items()))
    for file in files:
        if file.suffix == ".md":
            writer.add_text(file.stem, file.read_text(encoding="utf-8"))
    for key, value in values.items():
        writer.add_scalar(key, value)
    writer.close()


_LOGGERS: dict[str, Callable[..., None]] = {
    "mlflow": _mlflow,
    "wandb": _wandb,
    "tensorboard": _tensorboard,
    "trackio": _trackio,
}
