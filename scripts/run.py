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
from omegaconf import DictConfig, OmegaConf

from data.prompts import build_prompt
from ngram_trie import config as configuration
from ngram_trie import report, runner
from ngram_trie.decoding import Stop
from ngram_trie.records import content_hash
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
    datasets = {
        n: configuration.build(c, f"dataset {n}") for n, c in configuration.named(config, "dataset", "datasets").items()
    }
    methods = {
        n: configuration.build(c, f"method {n}") for n, c in configuration.named(config, "method", "methods").items()
    }
    if runner.BASELINE not in methods:
        vanilla = OmegaConf.load(configuration.CONFIGS / "method" / f"{runner.BASELINE}.yaml")
        methods = {runner.BASELINE: configuration.build(vanilla, runner.BASELINE)} | methods
    if config.measure.repeats < 1:
        raise configuration.ConfigError(f"measure.repeats={config.measure.repeats}: at least 1")
    if config.engine.num_threads:
        torch.set_num_threads(config.engine.num_threads)

    resolved = resolve(config)
    questions = {n: [q.message for q in dataset.questions] for n, dataset in datasets.items()}
    run_id = content_hash({"config": resolved, "model": fingerprint(config.model.path), "questions": questions})
    folder = Path(config.output or default_folder(config, run_id))
    size = sum(map(len, questions.values())) * len(methods) * config.measure.repeats

    if config.force or not runner.is_complete(folder, run_id, size):
        model, tokenizer = cached_model(
            **{k: config.model[k] for k in ("path", "dtype", "device", "revision", "attention")}
        )
        target = TargetModel(model, config.engine.max_draft, config.model.context_limit)
        prompts = {n: [build_prompt(q, tokenizer) for q in dataset.questions] for n, dataset in datasets.items()}
        stop = Stop(
            config.measure.max_new_tokens,
            frozenset(runner.eos_ids(model)),
            tuple(config.model.stop_strings),
            tokenizer.decode,
        )
        warmup = [build_prompt(q, tokenizer) for dataset in datasets.values() for q in dataset.warmup]
        run = runner.Run(
            run_id,
            config.model.name,
            runner.bind_methods(methods, target),
            prompts,
            warmup,
            stop,
            config.measure.repeats,
        )
        manifest = functools.partial(runner.make_manifest, run_id, resolved, target.device)
        with runner.open_run(folder, run_id, config.force, manifest) as writer:
            runner.measure(run, target, writer)
    print(report.write(folder, list(methods), list(datasets)))
    return folder


@functools.lru_cache(maxsize=1)
def cached_model(**options: Any) -> Any:
    """A sweep runs its cells in one process; the weights are loaded for the first."""
    return load_model(**options)


def resolve(config: DictConfig) -> dict[str, Any]:
    """What decides the results: the resolved config without where they go; paths relative to the project."""
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    for name in ("output", "force"):
        del resolved[name]
    for single, several in (("dataset", "datasets"), ("method", "methods")):
        if resolved[several]:
            del resolved[single]
    path = Path(resolved["model"]["path"])
    if path.is_relative_to(configuration.PROJECT):
        resolved["model"]["path"] = str(path.relative_to(configuration.PROJECT))
    return resolved


def default_folder(config: DictConfig, run_id: str) -> Path:
    dataset = "+".join(configuration.named(config, "dataset", "datasets"))
    method = "+".join(configuration.named(config, "method", "methods"))
    return configuration.PROJECT / "results" / "local" / "runs" / f"{config.model.name}-{dataset}-{method}-{run_id[:8]}"


if __name__ == "__main__":
    try:
        configuration.check_names(sys.argv[1:])
    except configuration.ConfigError as problem:
        sys.exit(f"error: {problem}")
    main()
