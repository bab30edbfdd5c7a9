"""The third engine: real forwards of a model while the tokens come from recorded answers.

Where a model's weights cannot be had, its architecture with random weights costs the same time; and a recorded answer
says which drafts would have been accepted. Together they give true seconds for true trees and true accept lengths. What
the model says is computed, brought to the host and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ngram_trie.bench import replay
from ngram_trie.bench.measure import Interleaved
from ngram_trie.bench.records import Failure, PromptRecord, RecordKey
from ngram_trie.bench.traces import Trace
from ngram_trie.decoding import GenerationResult, Seen
from ngram_trie.drafter import Drafter
from ngram_trie.targets.costs import MeasuredCosts
from ngram_trie.targets.model import TargetModel
from ngram_trie.targets.network import Forward
from ngram_trie.tree import DraftTree, IntArray


class TeacherForcedTarget(replay.TraceTarget):
    """A `Target` that runs `target`'s forwards and then chooses what the recorded answer says."""

    def __init__(self, target: TargetModel, trace: Trace) -> None:
        super().__init__(trace, target.max_draft)
        self.context_limit = target.context_limit
        self._prompt_ids = trace.prompt.ids
        self._target = target

    @property
    def last(self) -> Forward:
        return self._target.last

    def begin_prefill(self, prompt_ids: IntArray) -> None:
        self._target.begin_prefill(prompt_ids)

    def end_prefill(self) -> Seen:
        self._target.end_prefill()
        return super().prefill(self._prompt_ids)

    def prefill(self, prompt_ids: IntArray) -> Seen:
        self.begin_prefill(prompt_ids)
        return self.end_prefill()

    def verify(self, tree: DraftTree, top_k: int = 0) -> Seen:
        built = self._target.verify(tree, top_k).build_seconds
        return replace(super().verify(tree), build_seconds=built)

    def commit(self, past: int, path: list[int]) -> None:
        self._target.commit(past, path)
        super().commit(past, path)

    def synchronize(self) -> None:
        self._target.synchronize()

    def step_costs(self, top_k: int = 0) -> MeasuredCosts:
        return self._target.step_costs(top_k)


def title(model: str, traces: str) -> str:
    """The model's name in such a run's records and tables: it says what was not the model's own."""
    return f"{model}, tokens forced from {traces}"


def check_forceable(methods: Mapping[str, Any]) -> None:
    """Raises:
    ValueError: a drafter that runs a model of its own; there is no target beside it that it was made for.
    """
    for name, method in methods.items():
        if method.traits.uses_device:
            raise ValueError(f"method {name} runs a model of its own, which cannot be forced; use engine=live")


def check_vocabulary(traces: Iterable[Trace], vocab_size: int, file: object) -> None:
    """Raises:
    ValueError: a recorded token that the network has not; on a GPU it would end the process.
    """
    parts = (
        part
        for trace in traces
        for part in (trace.prompt.ids, trace.prompt.noise, *trace.prompt.texts, np.array(trace.output_ids))
    )
    largest = max((int(np.max(part)) for part in parts if len(part)), default=-1)
    if largest >= vocab_size:
        raise ValueError(
            f"{file}: holds token {largest}, but the model's vocabulary has {vocab_size}: "
            "take answers of a model with the same vocabulary"
        )


def answer(drafter: Drafter, trace: Trace, target: TargetModel) -> GenerationResult | Failure:
    """The recorded answer, given by `drafter` and the forwards of `target`, or why it cannot be."""
    if (length := len(trace.prompt.ids) + len(trace.output_ids)) > target.context_limit:
        return Failure("prompt_too_long", f"{length} recorded tokens, context limit {target.context_limit}")
    return replay.answer(drafter, trace, TeacherForcedTarget(target, trace))


@dataclass
class TeacherForced(Interleaved):
    """Recorded answers, forced upon a model.

    Attributes:
        items: traces.
        methods: drafters that can be replayed, vanilla among them.
        load: makes the target.
    """

    load: Callable[[], TargetModel]

    def warm_up(self) -> None:
        self.target = self.load()
        for drafter in self.methods.values():  # the first prompt that can be answered: compilation and caches
            for trace in self.items.values():
                if not isinstance(answer(drafter, trace, self.target), Failure):
                    break

    def let_go(self) -> None:
        vars(self).pop("target", None)

    def answer(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> PromptRecord:
        drafter, trace = self.drafter(key), self.items[key.item]
        about = {"state": drafter.traits.state}
        return self.record(key, trace.prompt, answer(drafter, trace, self.target), **about)

    def remind(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> None:
        trace = self.items[key.item]
        self.drafter(key).remind(trace.prompt, trace.output_ids)
