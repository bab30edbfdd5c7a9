"""Measure methods on datasets with a live model, and write records, tables and a figure.

  python -m scripts.run dataset=rag method=ngram_trie method.n=13      one cell, vanilla beside it
  python -m scripts.run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
  python -m scripts.run experiment=table1                              Table 1 (make reproduce-table1)

An interrupted run goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import DictConfig
from transformers import PreTrainedModel

from data.prompts import build_prompt
from ngram_trie import config as configuration
from ngram_trie import report, runner
from ngram_trie.decoding import Stop
from ngram_trie.drafter import Drafter
from ngram_trie.records import content_hash, read_records
from ngram_trie.target import TargetModel, choose_device, fingerprint, load_model, load_tokenizer

DEFAULT_THREADS = torch.get_num_threads()


@hydra.main(version_base="1.3", config_path=str(configuration.CONFIGS), config_name="config")
def main(config: DictConfig) -> None:
    """Compose, check, run, report."""
    try:
        measure(config)
    except (ValueError, OSError, runner.LosslessError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")


def measure(config: DictConfig) -> Path:
    """Everything one resolved config asks for; returns the output folder."""
    # Names and values are checked by building everything cheap before any weights load.
    configuration.check_values(config)
    config.model.device = str(choose_device(config.model.device))
    torch.set_num_threads(config.engine.num_threads or DEFAULT_THREADS)
    datasets = configuration.build_all(config, "dataset")
    methods = configuration.build_all(config, "method")
    tokenizer = load_tokenizer(config.model.path, config.model.revision)
    stop_strings = tuple(config.model.stop_strings)
    stop = Stop(config.measure.max_new_tokens, frozenset(), stop_strings, tokenizer.decode)
    prompts = {name: [build_prompt(q, tokenizer) for q in dataset.questions] for name, dataset in datasets.items()}
    for method in methods.values():
        if isinstance(method, Drafter):
            method.start(next(iter(prompts.values()))[0])

    manifest = runner.device_manifest(
        configuration.resolve(config),
        fingerprint(config.model.path, config.model.revision),
        content_hash({name: [prompt.ids.tolist() for prompt in part] for name, part in prompts.items()}),
        torch.device(config.model.device),
    )
    folder = Path(config.output or configuration.default_folder(config, manifest.run))
    num_answers = sum(map(len, prompts.values())) * len(methods) * config.measure.repeats
    if config.force or not runner.is_complete(folder, manifest.run, num_answers):
        with runner.open_run(folder, manifest, config.force) as writer:
            model = cached_model(
                **{name: config.model[name] for name in ("path", "dtype", "device", "revision", "attention")}
            )
            target = TargetModel(model, config.engine.max_draft, config.model.context_limit)
            run = runner.Run(
                id=manifest.run,
                model=config.model.name,
                methods=runner.bind_methods(methods, target),
                prompts=prompts,
                warmup=[build_prompt(q, tokenizer) for dataset in datasets.values() for q in dataset.warmup],
                stop=dataclasses.replace(stop, eos_ids=runner.eos_ids(model)),
                repeats=config.measure.repeats,
            )
            runner.measure(run, target, writer)
    print(report.write(folder, list(methods), list(datasets)))
    runner.check_lossless(read_records(folder / "records.jsonl"))
    return folder


@functools.lru_cache(maxsize=1)
def cached_model(**options: Any) -> PreTrainedModel:
    """A sweep runs its cells in one process; the weights are loaded for the first."""
    return load_model(**options)


def cli() -> None:
    """What the shell calls: names first, then Hydra."""
    try:
        configuration.check_names(sys.argv[1:])
    except configuration.ConfigError as error:
        sys.exit(f"error: {error}")
    main()


if __name__ == "__main__":
    cli()
