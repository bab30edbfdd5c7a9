"""Measure methods on datasets with a live model, and write records, tables and a figure.

  python -m scripts.run dataset=rag method=ngram_trie method.n=13      one cell, vanilla beside it
  python -m scripts.run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
  python -m scripts.run experiment=table1                              Table 1 (make reproduce-table1)

An interrupted run goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import DictConfig

from data.prompts import build_prompt
from ngram_trie import config as configuration
from ngram_trie import report, runner
from ngram_trie.decoding import Stop
from ngram_trie.records import content_hash, read_records
from ngram_trie.target import TargetModel, fingerprint, load_model


@hydra.main(version_base="1.3", config_path="../configs", config_name="config")
def main(config: DictConfig) -> None:
    """Compose, check, run, report."""
    try:
        measure(config)
    except (configuration.ConfigError, FileNotFoundError, FileExistsError, runner.LosslessError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")


def measure(config: DictConfig) -> Path:
    """Everything one resolved config asks for; returns the output folder."""
    # Names and values are checked by building everything cheap before any weights load.
    datasets = configuration.build_all(config, "dataset")
    methods = configuration.build_all(config, "method")
    configuration.check_values(config)
    if config.engine.num_threads:
        torch.set_num_threads(config.engine.num_threads)

    resolved = configuration.resolve(config)
    questions = {name: [question.message for question in dataset.questions] for name, dataset in datasets.items()}
    run_id = content_hash({"config": resolved, "model": fingerprint(config.model.path), "questions": questions})
    folder = Path(config.output or configuration.default_folder(config, run_id))
    num_answers = sum(map(len, questions.values())) * len(methods) * config.measure.repeats

    if config.force or not runner.is_complete(folder, run_id, num_answers):
        model, tokenizer = cached_model(
            **{k: config.model[k] for k in ("path", "dtype", "device", "revision", "attention")}
        )
        target = TargetModel(model, config.engine.max_draft, config.model.context_limit)
        run = runner.Run(
            id=run_id,
            model=config.model.name,
            methods=runner.bind_methods(methods, target),
            prompts={name: [build_prompt(q, tokenizer) for q in d.questions] for name, d in datasets.items()},
            warmup=[build_prompt(q, tokenizer) for d in datasets.values() for q in d.warmup],
            stop=Stop(
                config.measure.max_new_tokens, runner.eos_ids(model), tuple(config.model.stop_strings), tokenizer.decode
            ),
            repeats=config.measure.repeats,
        )
        manifest = functools.partial(runner.device_manifest, run_id, resolved, target.device)
        with runner.open_run(folder, run_id, config.force, manifest) as writer:
            runner.measure(run, target, writer)
    print(report.write(folder, list(methods), list(datasets)))
    runner.check_lossless(read_records(folder / "records.jsonl"))
    return folder


@functools.lru_cache(maxsize=1)
def cached_model(**options: Any) -> Any:
    """A sweep runs its cells in one process; the weights are loaded for the first."""
    return load_model(**options)


if __name__ == "__main__":
    try:
        configuration.check_names(sys.argv[1:])
    except configuration.ConfigError as problem:
        sys.exit(f"error: {problem}")
    main()
