"""The second engine: the same decoding loop over recorded answers instead of a model, a thousand times faster.

Greedy speculative decoding emits what greedy decoding would have emitted. So for a drafter that sees only tokens, each
step's accept length follows from prompt, answer and drafter, and a recorded answer gives it exactly.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from ngram_trie.baselines.recorded import Recorded
from ngram_trie.bench.measure import Engine
from ngram_trie.bench.records import Failure, PromptRecord, RecordKey
from ngram_trie.bench.traces import UNLIMITED, Trace
from ngram_trie.budget.compiling import kinds
from ngram_trie.decoding import GenerationResult, Seen, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.store.compiled import compiled
from ngram_trie.store.files import end_with_parent
from ngram_trie.tree import DraftTree, IntArray

#: What follows a node that left the recorded answer, or its end: no token, so nothing below it is accepted.
NOTHING = -1
TURNS_PER_JOB = 20


@compiled
def _recorded_choices(tokens: IntArray, parents: IntArray, answer: IntArray, position: int) -> IntArray:
    """(m,) the answer's next token after each node whose path from the root spells the answer, else NOTHING."""
    size = len(tokens)
    reached = np.full(size, -1, np.int64)
    choices = np.full(size, NOTHING, np.int64)
    for node in range(size):
        if node == 0:
            reached[0] = position
        elif reached[parents[node]] >= 0 and choices[parents[node]] == tokens[node]:
            reached[node] = reached[parents[node]] + 1
        if reached[node] >= 0 and reached[node] + 1 < len(answer):
            choices[node] = answer[reached[node] + 1]
    return choices


class TraceTarget:
    """A `Target` that reads its choices from a recorded answer.

    Attributes:
        trace: the recorded answer, which `baselines.recorded` drafts from.
    """

    model = None
    context_limit = draft_limit = UNLIMITED

    def __init__(self, trace: Trace, max_draft: int = 256) -> None:
        self.trace, self.max_draft = trace, max_draft
        self._answer = np.array(trace.output_ids, np.int64)

    def prefill(self, prompt_ids: IntArray) -> Seen:
        self._position = 0
        return Seen(self._answer[:1])

    def verify(self, tree: DraftTree, top_k: int = 0) -> Seen:
        return Seen(_recorded_choices(tree.tokens, tree.parents, self._answer, self._position))

    def commit(self, past: int, path: list[int]) -> None:
        self._position += len(path)

    def synchronize(self) -> None:
        pass


@dataclass(frozen=True)
class RecordedStop(Stop):
    """Ends where the recorded answer ended, for the reason it ended."""

    num_tokens: int = 1
    recorded_reason: str = ""

    def reason(self, output_ids: Sequence[int]) -> str | None:
        return self.recorded_reason if len(output_ids) >= self.num_tokens else None


def replay(drafter: Drafter, trace: Trace, max_draft: int = 256, target: TraceTarget | None = None) -> GenerationResult:
    """What `drafter` would have drafted, and had accepted, while the model gave this answer. The seconds are the
    drafter's own; prefill and verify cost nothing here, unless a `target` of this trace is given that makes them.
    """
    reason = trace.stop_reason or "recorded_end"  # an empty reason would never end it
    stop = RecordedStop(trace.max_output_tokens, num_tokens=len(trace.output_ids), recorded_reason=reason)
    return SpeculativeDecoder(target or TraceTarget(trace, max_draft), drafter).generate(trace.prompt, stop)


def answer(drafter: Drafter, trace: Trace, target: TraceTarget) -> GenerationResult | Failure:
    """As `replay`; a Failure if there is no recorded answer.

    Raises:
        AssertionError: the loop did not give the recorded tokens.
    """
    if not trace.output_ids:
        return Failure("empty_answer", "the recorded answer has no tokens")
    result = replay(drafter, trace, target=target)
    if result.output_ids != trace.output_ids:
        raise AssertionError(f"{type(drafter).__name__} on {trace.key}: the loop did not give the recorded tokens")
    return result


def check_replayable(methods: Mapping[str, Any]) -> None:
    """
    Raises:
        ValueError: a method that no recorded answer can be replayed for, with the reason.
    """
    for name, method in methods.items():
        if not isinstance(method, Drafter):
            raise ValueError(f"method {name} owns its decoding loop and cannot be replayed; use engine=live")
        if method.traits.reads != "tokens" and not isinstance(method, Recorded):
            raise ValueError(
                f"method {name} drafts from the model's {method.traits.reads}, which a trace does not hold; use "
                "engine=live"
            )


@dataclass
class Replay(Engine):
    """Recorded answers, replayed in several processes.

    Attributes:
        items: traces.
        max_draft: nodes of a draft, the root not counted, that are verified at most.
        num_jobs: processes; all cores by default.
    """

    max_draft: int = 256
    num_jobs: int | None = None

    def answers(self, keys: Sequence[RecordKey], known: Mapping[RecordKey, PromptRecord]) -> Iterator[PromptRecord]:
        """As `Engine.answers`, method by method. A warm drafter, which remembers earlier prompts, meets all of them, in
        order and in one process; those with another kind of noise, which are the same questions, knowing nothing.
        """
        jobs: list[tuple[str, Sequence[Trace]]] = []
        for name, drafter in self.methods.items():
            traces = [self.items[key.item] for key in keys if key.method == name]
            left = [trace for trace in traces if RecordKey(name, *trace.key) not in known]
            size = TURNS_PER_JOB
            if drafter.traits.remembers and left:
                noises = dict.fromkeys(trace.prompt.noise_kind for trace in traces)
                lives = [[trace for trace in traces if trace.prompt.noise_kind == noise] for noise in noises]
                jobs += [(name, life) for life in lives]
                continue
            jobs += [(name, left[at : at + size]) for at in range(0, len(left), size)]
        num_jobs = min(self.num_jobs or os.cpu_count() or 1, max(len(jobs), 1))
        run = self.manifest.run
        calls = (delayed(_replay_job)(run, name, self.methods[name], traces, self.max_draft) for name, traces in jobs)
        for records in Parallel(n_jobs=num_jobs, return_as="generator")(calls):
            yield from records


_COMPILED: set[tuple[type, ...]] = set()


def _replay_job(run: str, name: str, drafter: Drafter, traces: Sequence[Trace], max_draft: int) -> list[PromptRecord]:
    """What one process does: the records of `traces`."""
    end_with_parent()
    if drafter.traits.remembers:  # in this very process the next job would find what this one has learned
        drafter = copy.deepcopy(drafter)
    kind = tuple(kinds(drafter))
    records = []
    if isinstance(drafter, Recorded):
        traces = [trace.of_recording(drafter.recording) for trace in traces]
    for trace in traces:
        if kind not in _COMPILED and trace.output_ids:  # compiled code is loaded at its first call: not drafting
            replay(copy.deepcopy(drafter), trace, max_draft)  # a copy: one that remembers has not met the question
            _COMPILED.add(kind)
        outcome = answer(drafter, trace, TraceTarget(trace, max_draft))
        about = {"state": drafter.traits.state, "kind": "drafter"}
        records.append(
            PromptRecord.of(trace.prompt, outcome, run=run, method=name, repeat=0, model=trace.model, **about)
        )
    return records
