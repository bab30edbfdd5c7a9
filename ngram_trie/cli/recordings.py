"""Recorded answers and the drafters to show them with, as command lines name them."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

from ngram_trie.bench.config import budgeted
from ngram_trie.bench.live import split_missing
from ngram_trie.bench.replay import check_replayable, replay
from ngram_trie.bench.traces import Trace
from ngram_trie.cli.overrides import composed
from ngram_trie.cli.shorthand import quoted
from ngram_trie.data.prompts import named_tokenizer
from ngram_trie.drafter import Drafter
from ngram_trie.methods import ConfigError, build
from ngram_trie.store.files import place

TINY_MODEL = place("data/tiny/model")


def choose_trace(traces: Sequence[Trace], drafter: Drafter, dataset: str | None, question_id: str | None) -> Trace:
    """The trace of a question, or the one with the median accept length; the drafter itself learns of none.

    Raises:
        ValueError: there is none.
    """
    chosen = [t for t in traces if len(t.output_ids) > 1 and question_id in (None, t.prompt.question_id)]
    dataset = dataset or ("summarization" if any(t.category == "summarization" for t in chosen) else None)
    chosen = [t for t in chosen if dataset in (None, t.category)]
    if not chosen:
        known = sorted({t.category for t in traces})
        raise ValueError(f"no answer to question {question_id or 'any'} of {dataset or 'any'}; data sets: {known}")
    drafter = copy.deepcopy(drafter)
    over = [t for t in traces if t.output_ids] if drafter.traits.remembers else chosen  # it must meet all, in order
    lengths = {trace.key: replay(drafter, trace).accept_lengths for trace in over}
    return sorted(chosen, key=lambda trace: statistics.fmean(lengths[trace.key]))[len(chosen) // 2]


def recall(drafter: Drafter, traces: Sequence[Trace], trace: Trace) -> Drafter:
    """The drafter as a run over `traces`, in their order, has it when it comes to `trace`: one that remembers answers
    has met those before. A copy; other drafters stay as they are.
    """
    if not drafter.traits.remembers:
        return drafter
    drafter, kind = copy.deepcopy(drafter), trace.prompt.noise_kind
    for earlier in takewhile(lambda other: other.key != trace.key, traces):
        if earlier.output_ids and earlier.prompt.noise_kind == kind:
            replay(drafter, earlier)
    return drafter


def replayable(method: str, traces: Path) -> Drafter:
    """The drafter of configs/method as engine=replay has it.

    Args:
        method: its name, and fields to change, or its shape: "blend num_draft=8", "blend shape=chain".
        traces: the recording that is to be replayed; a drafter over other answers takes them from it.

    Raises:
        ConfigError: an unknown name or field, a wrong value, or a part that is not there.
        ValueError: a drafter that cannot be replayed.
    """
    name, *fields = method.split()
    changed = [field if field.startswith("shape=") else f"method.{field}" for field in fields]
    run = composed([f"method={name}", *changed, "engine=replay", f"engine.traces={quoted(str(traces))}"])
    drafter: Drafter = build(budgeted(run).plain["method"], f"method {name}")
    check_replayable({name: drafter})
    for what in split_missing({name: drafter})[1].values():
        raise ConfigError(f"method {name}: {what}")
    return drafter


def decoder(tokenizer: str | None) -> Callable[[Sequence[int]], str] | None:
    """Ids to text by the tokenizer of a name in configs/model, a folder or a hub id; None to show ids."""
    if tokenizer is None:
        return None
    loaded = named_tokenizer(tokenizer)
    return lambda ids: str(loaded.decode(ids, skip_special_tokens=False))
