"""From a configuration to an engine. Names and values are checked by building everything cheap; weights come later."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ngram_trie.baselines.checkpoints import locate
from ngram_trie.baselines.recorded import Recorded
from ngram_trie.bench import config as configuration
from ngram_trie.bench import live, models, replay, schemas, teacher_forced
from ngram_trie.bench.measure import Engine, by_key
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.bench.records import RunManifest, item_key
from ngram_trie.bench.schemas import Run
from ngram_trie.bench.trace_noise import with_noise
from ngram_trie.bench.traces import Trace, read_traces, select, trace_files
from ngram_trie.data.noise import with_noise as noisy_datasets
from ngram_trie.data.prompts import build_prompt, build_prompts, model_tokenizer
from ngram_trie.decoding import Stop
from ngram_trie.drafter import Drafter, Verify
from ngram_trie.methods import ConfigError, build
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.store import arrays as built
from ngram_trie.store.files import content_hash
from ngram_trie.targets.choose import network_for
from ngram_trie.targets.hub import Unreachable
from ngram_trie.targets.load import choose_device, context_limit, load_config, load_model, longest_text, random_model
from ngram_trie.targets.model import TargetModel

DEFAULT_THREADS = torch.get_num_threads()


def prepare(run: Run) -> Engine:
    """The engine that a configuration asks for.

    Raises:
        ConfigError: a wrong name or value, or a part that is not there.
        ValueError: recorded answers, or question ids, that cannot be used.
    """
    run = configuration.budgeted(run)
    built = configuration.build_all(run, "method")
    missing = {} if run.dry_run else fetch_weights(built)
    there = {name: method for name, method in built.items() if name not in missing}
    methods, parts = live.split_missing(there, not run.dry_run)
    missing |= parts
    if missing and not (run.methods and methods):
        raise ConfigError("; ".join(f"method {name}: {what}" for name, what in missing.items()))
    notes = {f"not run: {name}": what for name, what in missing.items()}
    if isinstance(run.engine, schemas.Replay):
        return _replay(run, run.engine, methods, notes)
    run = on_this_machine(run)
    if isinstance(run.engine, schemas.TeacherForced):
        return _forced(run, run.engine, methods, notes)
    return _live(run, methods, notes)


def fetch_weights(methods: Mapping[str, Any]) -> dict[str, str]:
    """Download the weights that methods bring along; of those that cannot be had, by method, why.

    Raises:
        ConfigError: the hub cannot be reached, so that nobody knows whether they can be had.
    """
    missing = {}
    for name, method in methods.items():
        try:
            for path, revision in method.weights().items() if isinstance(method, Drafter) else ():
                locate(path, revision)
        except Unreachable as error:
            raise ConfigError(f"method {name}: {error}; try again later, or go without it: ~methods.{name}") from error
        except FileNotFoundError as error:
            missing[name] = str(error)
    return missing


def on_this_machine(run: Run) -> Run:
    """The run with device and backend decided, where they were left to the machine; torch's threads are set."""
    device = str(choose_device(run.model.device))
    if device == "cuda" and "LOCAL_RANK" in os.environ:  # torchrun: a device for each process
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    run = configuration.changed(run, model={"device": device})
    torch.set_num_threads(run.live.num_threads or DEFAULT_THREADS)
    return configuration.changed(run, engine={"backend": models.resolve_backend(run.model, run.live)})


@functools.lru_cache(maxsize=2)
def cached_model(path: str, revision: str | None, is_random: bool, **options: Any) -> PreTrainedModel:
    """A sweep runs its cells in one process; the weights are loaded, or drawn, for the first."""
    return random_model(path, **options) if is_random else load_model(path, revision=revision, **options)


def unload_models() -> None:
    """Throw away what `cached_model` holds, so that the next session of a run reads its weights again."""
    cached_model.cache_clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def load_target(
    run: Run, path: str | None = None, revision: str | None = None, verify: Verify | None = None
) -> TargetModel:
    """The run's target, or another one in its place, or one that verifies drafts in another way than the run's.

    Raises:
        ValueError: another one that has not all tokens of the run's; on a GPU such a token would end the process.
    """
    asked, engine = run.model, run.live
    if path:
        own, needed = load_config(path, revision).get_text_config().vocab_size, len(model_tokenizer(asked))
        if own < needed:
            raise ValueError(f"{path}: has {own} tokens, the tokenizer of {asked.name} {needed}; go without the method")
    options = {"dtype": asked.dtype, "device": asked.device, "attention": asked.attention}
    where = (path, revision) if path else models.source(asked)
    model = cached_model(*where, path is None and asked.weights == "random", **options)
    limit = longest_text(model.config, asked.context_limit)
    network = network_for(model, limit, engine.backend, verify or engine.verify)
    target = TargetModel(model, engine.max_draft, limit, network)
    target.capture()
    return target


def _manifest(run: Run, methods: Mapping[str, Any], model: str, prompts: str, notes: Mapping[str, str]) -> RunManifest:
    resolved = configuration.resolve(run) | {"parts": live.part_hashes(methods)}
    device = "cpu" if run.engine.name == "replay" else run.model.device
    return make_manifest(resolved, model, prompts, device, notes)


def _live(run: Run, methods: Mapping[str, Any], notes: dict[str, str]) -> Engine:
    asked, most = run.model, run.measure.max_new_tokens
    datasets = configuration.build_all(run, "dataset")
    if run.noise:
        datasets = noisy_datasets(datasets, run.noise)
    tokenizer = model_tokenizer(asked)
    source = models.source(asked)
    network, limit = load_config(*source).get_text_config(), context_limit(*source, asked.context_limit)
    if beyond := [token for token in asked.stop_ids if token >= network.vocab_size]:
        raise ConfigError(
            f"model.stop_ids={beyond[0]}: not in the model's vocabulary, which has the tokens from 0 to "
            f"{network.vocab_size - 1}"
        )
    if run.measure.truncation != "fail" and most >= limit:
        raise ConfigError(
            f"measure.max_new_tokens={most}: the context of {limit:,} leaves no token for a prompt to be cut to"
        )
    stop = Stop(most, frozenset(asked.stop_ids), tuple(asked.stop_strings), tokenizer.decode)
    build = functools.partial(
        build_prompt, tokenizer=tokenizer, max_tokens=limit - most, truncation=run.measure.truncation
    )
    decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
    prompts = {name: build_prompts(dataset.questions, build, decode) for name, dataset in datasets.items()}
    for first in (part[0] for part in prompts.values()):
        if isinstance(first, Prompt):
            _check_contexts(methods, first)
    questions = [question for dataset in datasets.values() for question in dataset.questions]
    hashed = content_hash({name: [_identity(prompt) for prompt in part] for name, part in prompts.items()})
    notes |= _cut_prompts(prompts, run.measure.truncation) | _short_of_room(prompts, limit, most)
    return live.Live(
        manifest=_manifest(run, methods, models.identity(asked), hashed, notes),
        model=models.name(asked),
        methods=methods,
        items=by_key((item_key(p), p) for p in chain.from_iterable(prompts.values())),
        datasets=list(datasets),
        repeats=run.measure.repeats,
        sessions=run.measure.sessions,
        pause=run.measure.session_pause_s,
        unload=unload_models,
        warmup=[build(question) for dataset in datasets.values() for question in dataset.warmup],
        stop=stop,
        load=functools.partial(load_target, run),
        context_limit=limit,
        decode=decode,
        # a sweep shows no quality
        share_prefill=run.measure.share_prefill,
        references=None if run.grid else {item_key(q): q for q in questions},
    )


def _identity(prompt: Prompt | LaterTurn) -> list[int] | list[str]:
    """What a prompt adds to the run's identity."""
    return prompt.ids.tolist() if isinstance(prompt, Prompt) else list(prompt.said)


def _cut_prompts(prompts: Mapping[str, Sequence[Prompt | LaterTurn]], truncation: str) -> dict[str, str]:
    """For the manifest: of which data sets how many prompts were cut to fit. Later turns are not known yet."""
    cut = {name: sum(1 for p in part if isinstance(p, Prompt) and p.num_cut) for name, part in prompts.items()}
    return {f"cut: {name}": f"{count} contexts have lost their {truncation}" for name, count in cut.items() if count}


def _short_of_room(prompts: Mapping[str, Sequence[Prompt | LaterTurn]], limit: int, most: int) -> dict[str, str]:
    """For the manifest: how many prompts leave too little of the context for the longest answer."""
    longest = limit - most
    short = {name: sum(isinstance(p, Prompt) and len(p.ids) > longest for p in part) for name, part in prompts.items()}
    return {
        f"room: {name}": (
            f"{count} of {len(prompts[name])} prompts have more than {longest:,} tokens, so the context of {limit:,} "
            f"ends their answers before {most:,} tokens"
        )
        for name, count in short.items()
        if count
    }


def _check_contexts(methods: Mapping[str, Any], prompt: Prompt) -> None:
    """Raises a ValueError if a drafter reads a part that the prompt does not have."""
    for method in methods.values():
        if isinstance(method, Drafter):
            prompt.part(method.traits.context)


def _replay(run: Run, engine: schemas.Replay, methods: Mapping[str, Any], notes: dict[str, str]) -> Engine:
    categories, digest = _recorded(run, engine, methods)
    notes |= _other_answers(methods, list(chain.from_iterable(categories.values())), engine.traces)
    build(run.plain["cost"], "cost")
    return replay.Replay(
        manifest=_manifest(run, methods, "replay", digest, notes),
        model="",
        methods=methods,
        items=by_key((trace.key, trace) for trace in chain.from_iterable(categories.values())),
        datasets=list(categories),
        repeats=1,
        max_draft=engine.max_draft,
        num_jobs=engine.num_jobs,
    )


def _other_answers(methods: Mapping[str, Any], traces: Sequence[Trace], where: str) -> dict[str, str]:
    """For the manifest: of which recorded drafters how many answers were others, of another length.

    Raises:
        ConfigError: nothing was recorded of such a drafter.
    """
    notes = {}
    for name, method in methods.items():
        if isinstance(method, Recorded):
            recording, known = method.recording, set.intersection(*(set(trace.recorded) for trace in traces))
            if recording not in known:
                there = ", ".join(sorted(known)) or "nothing of any drafter"
                raise ConfigError(f"method {name}: recording={recording}: engine.traces={where} holds {there}")
            others = sum(len(trace.recorded[recording]) != len(trace.output_ids) for trace in traces)
            notes[f"recorded: {name}"] = (
                f"{others} of {len(traces)} answers have another length than the recording, which belongs to another "
                "answer then: they are replayed as far as both go"
            )
    return notes


def _forced(run: Run, engine: schemas.TeacherForced, methods: Mapping[str, Any], notes: dict[str, str]) -> Engine:
    categories, digest = _recorded(run, engine, methods)
    teacher_forced.check_forceable(methods)
    where, traces = f"engine.traces={engine.traces}", list(chain.from_iterable(categories.values()))
    path, revision = models.source(run.model)
    teacher_forced.check_vocabulary(traces, load_config(path, revision).get_text_config().vocab_size, where)
    return teacher_forced.TeacherForced(
        manifest=_manifest(run, methods, models.identity(run.model), digest, notes),
        model=teacher_forced.title(models.name(run.model), Path(engine.traces).name),
        methods=methods,
        items=by_key((trace.key, trace) for trace in traces),
        datasets=list(categories),
        repeats=run.measure.repeats,
        sessions=run.measure.sessions,
        pause=run.measure.session_pause_s,
        unload=unload_models,
        load=functools.partial(load_target, run),
    )


def _recorded(
    run: Run, engine: schemas.Replay | schemas.TeacherForced, methods: Mapping[str, Any]
) -> tuple[Mapping[str, Sequence[Trace]], str]:
    """The recorded answers that the methods can be run over, by category, and the hash of what is read of them."""
    path = Path(engine.traces)
    replay.check_replayable(methods)
    found = read_traces(path)
    if isinstance(engine, schemas.Replay) and engine.draft_in_prefill:
        found = [trace.drafted_in_prefill() for trace in found]
    categories = select(found, engine.categories, engine.parity)
    if not any(categories.values()):
        asked = ", ".join(filter(None, [engine.parity and f"{engine.parity} questions", *categories]))
        there = ", ".join(dict.fromkeys(trace.category for trace in found))
        wanted = f"no answers of {asked}: it has {there}" if there else "holds no answers"
        raise ValueError(f"engine.traces={path}: {wanted}")
    if run.noise:
        categories = with_noise(categories, run.noise)
    first = next(trace for part in categories.values() for trace in part)
    _check_contexts(methods, first.prompt)
    digests = [built.digest(file) for file in trace_files(path)]
    return categories, digests[0] if path.is_file() else content_hash(digests)
