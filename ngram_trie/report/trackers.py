"""Runs in experiment trackers, through accelerate's wrappers of their clients."""

from __future__ import annotations

import math

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

from ngram_trie.methods import ConfigError
from ngram_trie.report import sweeps
from ngram_trie.report.derive import flatten
from ngram_trie.report.run_folder import RunFolder

PROJECT_NAME = "ngram-trie"
#: Trackers whose wrapper takes a name for the run beside the project's.
_NAMED = {"wandb": "name", "trackio": "name", "mlflow": "run_name"}


def check(name: str) -> None:
    """
    Raises:
        ConfigError: no such tracker, or its client is not installed.
    """
    if name not in LOGGER_TYPE_TO_CLASS:
        raise ConfigError(f"log={name}: must be one of {', '.join(LOGGER_TYPE_TO_CLASS)}")
    if name not in map(str, get_available_trackers()):
        raise ConfigError(f"log={name}: its client is not installed: pip install {name}")


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
    """Log settings and numbers of a run under the name of its folder.

    Raises:
        ConfigError: as in `check`.
    """
    check(name)
    manifest = run.manifest
    about = {"commit": str(manifest.commit), "device": manifest.device, "run": manifest.run}
    settings = {key: str(value) for key, value in flatten(run.config).items()} | about
    kind = LOGGER_TYPE_TO_CLASS[name]
    options = {_NAMED[name]: run.path.name} if name in _NAMED else {}
    tracker = kind(PROJECT_NAME, **options, **({"logging_dir": run.path} if kind.requires_logging_directory else {}))
    tracker.start()
    tracker.store_init_configuration(settings)
    tracker.log(numbers(run))
    tracker.finish()
