"""Measure methods on datasets with a live model, or replay them over recorded answers; write records, tables, figures.

  python -m scripts.run dataset=rag method=ngram_trie method.n=13      one cell, vanilla beside it
  python -m scripts.run -m method.n=8,9,10 method.prefix_len=2,3       a sweep, the model loaded once
  python -m scripts.run experiment=table1                              Table 1 (make reproduce-table1)
  python -m scripts.run engine=replay engine.traces=FILE method=pld    accept lengths of recorded answers

An interrupted run goes on where it stopped when the same command is given again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from transformers import PreTrainedModel

from ngram_trie import config as configuration
from ngram_trie.cli import shell
from ngram_trie.data.noise import with_noise as noisy_datasets
from ngram_trie.data.prompts import build_prompt, build_prompts, model_tokenizer
from ngram_trie.decoding import Stop
from ngram_trie.drafter import Drafter
from ngram_trie.engines import forced, live, replay
from ngram_trie.engines.trace_noise import with_noise
from ngram_trie.engines.traces import Trace, TraceWriter, read_traces, select
from ngram_trie.files import content_hash
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.report import derive
from ngram_trie.report.run_folder import RunFolder
from ngram_trie.targets import choose
from ngram_trie.targets.load import choose_device, context_limit
from ngram_trie.targets.model import TargetModel

DEFAULT_THREADS = torch.get_num_threads()


def measure(config: DictConfig) -> Path:
    """Everything one resolved config asks for; returns the output folder.

    Raises:
        ConfigError: a wrong name or value, a part that is not there, or too little memory.
    """
    configuration.check_values(config)
    try:
        return {"live": measure_live, "replay": measure_replay, "forced": measure_forced}[config.engine.name](config)
    except torch.OutOfMemoryError:
        raise configuration.ConfigError(
            "the device's memory does not hold the models: leave methods with models of their own out "
            "(~methods.space), lower model.context_limit, or take a larger device"
        ) from None


def methods_at_hand(config: DictConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """The methods to run; and, for the manifest, those of several that are left out, with the part that is missing.

    Raises:
        ConfigError: it is the only method.
    """
    methods, missing = live.split_missing(configuration.build_all(config, "method"))
    if missing and not config.methods:
        raise configuration.ConfigError("; ".join(f"method {name}: {what}" for name, what in missing.items()))
    return methods, {f"not run: {name}": what for name, what in missing.items()}


def measure_live(config: DictConfig) -> Path:
    """Run the target model."""
    # Names and values are checked by building everything cheap before any weights load.
    settle(config)
    noise = configuration.noise_settings(config)
    datasets = configuration.build_all(config, "dataset")
    if noise:
        datasets = noisy_datasets(datasets, noise)
    methods, not_run = methods_at_hand(config)
    tokenizer = model_tokenizer(config.model)
    stop_strings = tuple(config.model.stop_strings)
    stop = Stop(config.measure.max_new_tokens, frozenset(), stop_strings, tokenizer.decode)
    build = functools.partial(
        build_prompt,
        tokenizer=tokenizer,
        max_tokens=context_limit(*choose.source(config.model), config.model.context_limit)
        - config.measure.max_new_tokens,
        truncation=config.measure.truncation,
    )
    answer_text = functools.partial(tokenizer.decode, skip_special_tokens=True)
    prompts = {name: build_prompts(dataset.questions, build, answer_text) for name, dataset in datasets.items()}
    for method in methods.values():
        for first in (part[0] for part in prompts.values()):
            if isinstance(method, Drafter) and isinstance(first, Prompt):
                first.part(method.context)

    manifest = live.device_manifest(
        configuration.resolve(config) | {"parts": live.part_hashes(methods)},
        choose.identity(config.model),
        content_hash({name: [identity(prompt) for prompt in part] for name, part in prompts.items()}),
        torch.device(config.model.device),
        not_run | cut_prompts(prompts, config.measure.truncation),
    )
    folder = Path(config.output or configuration.default_folder(config, manifest.run))
    names = live.decoder_names(methods)
    num_answers = sum(map(len, prompts.values())) * len(names) * config.measure.repeats
    if config.force or not live.is_complete(folder, manifest.run, num_answers):
        with (
            live.open_run(folder, manifest, config.force) as writer,
            TraceWriter(folder / "traces.jsonl") as traces,
        ):

            def load(path: str, revision: str | None) -> TargetModel:
                """Another target in place of the run's."""
                model = cached_model(path, revision, **options(config))
                return choose.make_target(model, config.engine, config.model.context_limit)

            target = run_target(config)
            run = live.Run(
                id=manifest.run,
                model=choose.name(config.model),
                methods=live.bind_methods(methods, target, load),
                prompts=prompts,
                warmup=[build(question) for dataset in datasets.values() for question in dataset.warmup],
                stop=dataclasses.replace(stop, eos_ids=live.eos_ids(target.model) | set(config.model.stop_ids)),
                repeats=config.measure.repeats,
            )
            live.measure(run, target, writer, traces)
    measured = RunFolder(folder)
    if not config.grid:  # a sweep shows no quality
        questions = [question for dataset in datasets.values() for question in dataset.questions]
        measured.score({(q.dataset, q.question_id, q.turn): q for q in questions}, answer_text)
    print(derive.write(measured, names, list(datasets)))
    live.check_lossless(measured.records)
    return folder


def settle(config: DictConfig) -> None:
    """Decide what was left to the machine."""
    config.model.device = str(choose_device(config.model.device))
    config.engine.backend = choose.settled(config)
    torch.set_num_threads(config.engine.num_threads or DEFAULT_THREADS)


def options(config: DictConfig) -> dict[str, Any]:
    """How models are loaded."""
    return {name: config.model[name] for name in ("dtype", "device", "attention")}


def run_target(config: DictConfig) -> TargetModel:
    """The run's own target."""
    architecture = config.model.architecture if config.model.weights == "random" else None
    model = cached_model(config.model.path, config.model.revision, architecture=architecture, **options(config))
    return choose.make_target(model, config.engine, config.model.context_limit)


def identity(prompt: Prompt | LaterTurn) -> list[int] | list[str]:
    """What a prompt adds to the run's identity."""
    return prompt.ids.tolist() if isinstance(prompt, Prompt) else list(prompt.said)


def cut_prompts(prompts: Mapping[str, Sequence[Prompt | LaterTurn]], truncation: str) -> dict[str, str]:
    """For the manifest: of which data sets how many prompts were cut to fit. Later turns are not known yet."""
    cut = {name: sum(1 for p in part if isinstance(p, Prompt) and p.num_cut) for name, part in prompts.items()}
    return {f"cut: {name}": f"{count} contexts have lost their {truncation}" for name, count in cut.items() if count}


def measure_replay(config: DictConfig) -> Path:
    """Run the decoding loop over recorded answers."""
    methods, not_run = methods_at_hand(config)
    categories, digest = recorded(config, methods)
    configuration.build(config.cost, "cost")
    if config.engine.draft_in_prefill:
        categories = {name: [trace.drafted_in_prefill() for trace in traces] for name, traces in categories.items()}
    resolved = configuration.resolve(config) | {"parts": live.part_hashes(methods)}
    manifest = live.device_manifest(resolved, "replay", digest, torch.device("cpu"), not_run)
    folder = Path(config.output or configuration.default_folder(config, manifest.run))
    num_answers = sum(map(len, categories.values())) * len(methods)
    if config.force or not live.is_complete(folder, manifest.run, num_answers):
        with live.open_run(folder, manifest, config.force) as writer:
            replay.measure(manifest.run, methods, categories, writer, config.engine.max_draft, config.engine.num_jobs)
    print(derive.write(folder, list(methods), list(categories)))
    return folder


def recorded(config: DictConfig, methods: Mapping[str, Any]) -> tuple[dict[str, list[Trace]], str]:
    """The recorded answers that the methods can be run over, by category, and their file's hash."""
    replay.check_replayable(methods)
    noise = configuration.noise_settings(config)
    path = Path(config.engine.traces)
    categories = select(read_traces(path), config.engine.categories)
    if not any(categories.values()):
        print(f"warning: {path} holds no traces of {', '.join(categories) or 'any category'}", file=sys.stderr)
    if noise:
        categories = with_noise(categories, noise)
    for trace in next(filter(None, categories.values()), [])[:1]:
        for method in methods.values():
            trace.prompt.part(method.context)
    return categories, hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def measure_forced(config: DictConfig) -> Path:
    """Run the target model while the tokens come from recorded answers."""
    settle(config)
    methods, not_run = methods_at_hand(config)
    categories, digest = recorded(config, methods)
    forced.check_forceable(methods)
    if not any(categories.values()):
        raise ValueError(f"engine.traces={config.engine.traces}: no answers of these categories")
    resolved = configuration.resolve(config) | {"parts": live.part_hashes(methods)}
    device = torch.device(config.model.device)
    manifest = live.device_manifest(resolved, choose.identity(config.model), digest, device, not_run)
    folder = Path(config.output or configuration.default_folder(config, manifest.run))
    repeats = config.measure.repeats
    num_answers = sum(map(len, categories.values())) * len(methods) * repeats
    if config.force or not live.is_complete(folder, manifest.run, num_answers):
        target, traces = run_target(config), chain.from_iterable(categories.values())
        forced.check_vocabulary(traces, target.model.config.vocab_size, f"engine.traces={config.engine.traces}")
        with live.open_run(folder, manifest, config.force) as writer:
            name = forced.title(choose.name(config.model), Path(config.engine.traces).name)
            forced.measure(manifest.run, name, methods, categories, target, writer, repeats)
    print(derive.write(folder, list(methods), list(categories)))
    return folder


@functools.lru_cache(maxsize=2)
def cached_model(path: str, revision: str | None, **options: Any) -> PreTrainedModel:
    """A sweep runs its cells in one process; the weights are loaded for the first."""
    return choose.load(path, revision, **options)


def cli() -> None:
    """What the shell calls."""
    shell.hydra_app(measure, __doc__, also=(live.LosslessError,))


if __name__ == "__main__":
    # Launchers pickle the function they run; other processes find it only under its module's name.
    from scripts import run

    run.cli()
