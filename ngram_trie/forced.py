"""The third engine: real forwards of a model while the tokens come from recorded answers.

Where a model's weights cannot be had, its architecture with random weights costs the same time; and a recorded answer
says which drafts would have been accepted. Together they give true seconds for true trees and true accept lengths. What
the model says is computed, brought to the host and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from tqdm import tqdm

from ngram_trie.decoding import GenerationResult
from ngram_trie.drafter import Drafter
from ngram_trie.records import Failure, PromptRecord, RecordWriter
from ngram_trie.replay import TraceTarget, replay
from ngram_trie.target import TargetModel
from ngram_trie.traces import Trace
from ngram_trie.tree import DraftTree, IntArray


class ForcedTarget(TraceTarget):
    """A `Target` that runs `target`'s forwards and then chooses what the recorded answer says."""

    def __init__(self, target: TargetModel, trace: Trace) -> None:
        super().__init__(trace, target.max_draft)
        self.context_limit = target.context_limit
        self._prompt_ids = trace.prompt.ids
        self._target = target

    @property
    def build_seconds(self) -> float:  # type: ignore[override]
        return self._target.build_seconds

    def begin_prefill(self, prompt_ids: IntArray) -> None:
        self._target.begin_prefill(prompt_ids)

    def end_prefill(self) -> int:
        self._target.end_prefill()
        return super().prefill(self._prompt_ids)

    def prefill(self, prompt_ids: IntArray) -> int:
        self.begin_prefill(prompt_ids)
        return self.end_prefill()

    def verify(self, tree: DraftTree) -> IntArray:
        self._target.verify(tree)
        return super().verify(tree)

    def commit(self, past: int, path: list[int]) -> None:
        self._target.commit(past, path)
        super().commit(past, path)

    def synchronize(self) -> None:
        self._target.synchronize()


def title(model: str, traces: str) -> str:
    """The name under which such a run's records and tables go: it says what was not the model's own."""
    return f"{model}, tokens forced from {traces}"


def measure(
    run: str,
    model: str,
    methods: Mapping[str, Drafter],
    categories: Mapping[str, Sequence[Trace]],
    target: TargetModel,
    writer: RecordWriter,
    repeats: int = 1,
    deadline: Callable[[], bool] = lambda: False,
) -> None:
    """Answer every recorded prompt with every method, interleaved prompt by prompt, and write a record of each; what is
    recorded already is skipped. The first prompt is answered once before anything is measured.

    Args:
        run: `RunManifest.run`.
        model: the target's name in records; says what was not real about it.
        methods: drafters that see tokens only, vanilla among them.
        repeats: how often each prompt is answered by each method.
        deadline: asked before every prompt; true ends the measurement there.
    """
    names, traces = list(methods), list(chain.from_iterable(categories.values()))
    total = len(traces) * len(names) * repeats
    with tqdm(total=total, initial=len(writer.records), unit="answer", dynamic_ncols=True, desc="forced") as progress:
        for drafter in methods.values() if len(writer.records) < total else ():
            answer(drafter, traces[0], target)
        for index, trace in enumerate(traces):
            if deadline():
                return
            for repeat in range(repeats):
                shift = (index + repeat) % len(names)
                for name in names[shift:] + names[:shift]:
                    if (name, *trace.key, repeat) not in writer:
                        about = PromptRecord.about(
                            trace.prompt, run=run, method=name, model=model, repeat=repeat, state=methods[name].state,
                            kind="drafter",
                        )  # fmt: skip
                        result = answer(methods[name], trace, target)
                        failed = {"failure": result} if isinstance(result, Failure) else vars(result)
                        writer.write(PromptRecord(**about, **failed))
                        progress.update()


def answer(drafter: Drafter, trace: Trace, target: TargetModel) -> GenerationResult | Failure:
    """The recorded answer, given by `drafter` and the forwards of `target`, or why it cannot be."""
    if not trace.output_ids:
        return Failure("empty_answer", "the recorded answer has no tokens")
    if (length := len(trace.prompt.ids) + len(trace.output_ids)) > target.context_limit:
        return Failure("prompt_too_long", f"{length} recorded tokens, context limit {target.context_limit}")
    result = replay(drafter, trace, target=ForcedTarget(target, trace))
    if result.output_ids != trace.output_ids:
        raise AssertionError(f"{trace.key}: the loop did not give the recorded tokens")
    return result
