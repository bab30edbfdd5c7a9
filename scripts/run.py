"""Measure methods on datasets with a live model, or replay them over recorded answers; write records, tables, figures.

  python -m scripts.run dataset=rag method=ngram_trie method.n=13      one cell, vanilla beside it
  python -m scripts.run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
  python -m scripts.run experiment=table1                              Table 1 (make reproduce-table1)
  python -m scripts.run engine=replay engine.traces=FILE method=pld    accept lengths of recorded answers

An interrupted run is continued when the same command is given again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import DictConfig

from ngram_trie import config as configuration
from ngram_trie.cli.hydra_app import hydra_app
from ngram_trie.engines import measure as loop
from ngram_trie.engines.live import LosslessError, check_lossless
from ngram_trie.engines.prepare import prepare
from ngram_trie.engines.traces import write_traces
from ngram_trie.report import derive


def measure(config: DictConfig) -> Path:
    """Everything one resolved config asks for; returns the output folder.

    Raises:
        ConfigError: a wrong name or value, a part that is not there, or too little memory.
        LosslessError: a method gave other tokens than vanilla.
    """
    configuration.check_values(config)
    engine = prepare(config)
    folder = Path(config.output or configuration.default_folder(config, engine.manifest.run))
    with loop.open_run(folder, engine, config.force) as writer:
        try:
            loop.measure(engine, writer)
        except torch.OutOfMemoryError:
            raise configuration.ConfigError(
                "the device's memory does not hold the models: leave methods with models of their own out "
                "(~methods.space), lower model.context_limit, or take a larger device"
            ) from None
    if traces := engine.traces(writer.records):
        write_traces(folder / "traces.jsonl", traces)
    if (scores := engine.scores(writer.records.values())) is not None:
        derive.save_csv(scores, folder / "quality.csv")
    print(derive.write(folder, engine.names, list(engine.datasets)))
    check_lossless(writer.records.values())
    return folder


def cli() -> None:
    """What the shell calls."""
    hydra_app(measure, __doc__, also=(LosslessError,))


if __name__ == "__main__":
    # Launchers pickle the function they run; other processes find it only under its module's name.
    from scripts import run

    run.cli()
