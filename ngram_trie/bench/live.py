"""The first engine: a running model answers every prompt with every method."""

from __future__ import annotations

import functools
import gc
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from ngram_trie.bench.measure import Interleaved
from ngram_trie.bench.others import PAUSES_S, Others
from ngram_trie.bench.progress import say
from ngram_trie.bench.quality import Reference, score
from ngram_trie.bench.records import (
    DISTURBED,
    Failure,
    ItemKey,
    Lossless,
    LosslessError,
    MethodError,
    PromptRecord,
    RecordKey,
)
from ngram_trie.bench.room import check_room
from ngram_trie.bench.traces import Trace
from ngram_trie.budget.adaptive import AdaptiveDrafter
from ngram_trie.budget.compiling import warm_up
from ngram_trie.decoding import Decoder, GenerationResult, PromptTooLong, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter, Traits
from ngram_trie.drafters import NoDraft
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import fingerprint, first_line, relative
from ngram_trie.targets.model import TargetModel

BASELINE = "vanilla"
#: Failures that a method's code is not to blame for.
FORESEEN = ("prompt_too_long", "out_of_memory", "earlier_turn_failed")
#: Tokens that a method answers before it is measured, so that its code is compiled.
WARMUP_TOKENS = 32
#: Where so few take longer than `SLOW_S` seconds, they have to do.
FEW, SLOW_S = 4, 10.0


def split_missing(methods: Mapping[str, Any], is_fetched: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """The methods whose parts are all there, and for each of the others, by name, what is missing and how to get it.

    Args:
        is_fetched: whether the hub was asked for weights, so that those which are not here are missing.
    """
    missing = {
        name: f"{relative(str(where))}: not there; {how}"
        for name, method in methods.items()
        if isinstance(method, Drafter)
        for where, how in method.parts().items()
        if not where.exists() and not (str(where) in method.weights() and not is_fetched)
    }
    return {name: method for name, method in methods.items() if name not in missing}, missing


def part_hashes(methods: Mapping[str, Any]) -> dict[str, str]:
    """What the methods' parts hold, and what else decides their drafts, by method: it decides results."""
    hashes = {}
    for name, method in methods.items():
        if isinstance(method, Drafter):
            # a file completes its folder, unless it is a recording
            parts = [part if part.is_dir() or part.suffix == ".jsonl" else part.parent for part in method.parts()]
            hashes[name] = " ".join(filter(None, [*(fingerprint(str(part)) for part in parts), method.identity()]))
    return {name: hashed for name, hashed in hashes.items() if hashed}


def baselines(methods: Mapping[str, Any]) -> dict[str, str]:
    """The decoders that `bind_methods` makes, by name, each with the one that it is compared with."""
    found: dict[str, str] = {}
    for name, method in methods.items():
        own = isinstance(method, Drafter) and (method.traits.own_model or method.traits.verify)
        baseline = f"{name}_{BASELINE}" if own else getattr(method, "baseline", BASELINE)
        found |= {baseline: baseline, name: baseline} if own else {name: baseline}
    return found


def bind_methods(
    methods: Mapping[str, Any], target: TargetModel, load: Callable[..., TargetModel]
) -> tuple[dict[str, Decoder], dict[str, Failure]]:
    """Decoders over `target`: drafters in the project's loop, outside decoders in their own. A drafter with a model of
    its own, or whose drafts are verified in a way of their own, over the same weights, gets such a target, and a
    vanilla over it as its baseline: METHOD_vanilla.

    A method that cannot be bound, such as one whose weights do not fit the device or the target, does not take part.
    Models of their own come last, so that they take no room from other methods.

    Returns:
        The decoders, and why the other methods have none.

    Raises:
        Exception: that of the only method, or of vanilla.
    """
    decoders: dict[str, Decoder] = {}
    failures: dict[str, Failure] = {}
    first: Exception | None = None
    compared = baselines(methods)
    verifying = functools.cache(lambda verify: load(None, None, verify))

    def bind(name: str, method: Any) -> None:
        if isinstance(method, Drafter):
            check_room(method, target.device)
            traits, baseline, own = method.traits, compared[name], target
            if baseline != BASELINE:
                own = load(traits.own_model, traits.own_revision) if traits.own_model else verifying(traits.verify)
                decoders[baseline] = SpeculativeDecoder(own, NoDraft(), baseline)
            decoders[name] = SpeculativeDecoder(own, method, baseline)
        elif isinstance(method, Decoder):
            method.bind(target)
            decoders[name] = method
        else:
            raise TypeError(f"method {name}: {type(method).__name__} is neither a Drafter nor a Decoder")

    for name in sorted(methods, key=lambda name: compared[name] not in (BASELINE, name)):
        try:
            bind(name, methods[name])
        except Exception as error:
            if name == BASELINE:
                raise
            if isinstance(error, torch.OutOfMemoryError):
                error.__traceback__ = None  # its frames hold what was loaded of the weights
            first = first or error
            failures[name] = failures[f"{name}_{BASELINE}"] = failure_of(error)
            say(f"warning: {name} does not take part: {failures[name].message}")
            free_memory()
    if first and not decoders.keys() - {BASELINE}:
        raise first
    return decoders, failures


def failure_of(error: Exception) -> Failure:
    """What a record says of an exception; of one that nobody foresaw also where it was raised."""
    if isinstance(error, PromptTooLong):
        return Failure("prompt_too_long", str(error))
    if isinstance(error, torch.OutOfMemoryError):
        return Failure("out_of_memory", first_line(error))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, OSError | ValueError) else f" ({Path(frame.filename).name}:{frame.lineno})"
    return Failure(type(error).__name__, f"{first_line(error)}{place}")


def free_memory() -> None:
    """Give back what a method that failed has taken of the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def check_lossless(records: Iterable[PromptRecord]) -> None:
    """Raises:
    LosslessError: a method of the project's loop gave other tokens than vanilla, and no tie explains it.
    """
    differing = [
        f"{r.method} on {r.question_id} from token {r.lossless.position} on"
        for r in records
        if r.lossless and r.lossless.verdict == "different" and r.kind == "drafter"
    ]
    if differing:
        raise LosslessError(f"{len(differing)} answers differ from vanilla's: " + "; ".join(differing[:5]))


def check_answered(records: Iterable[PromptRecord]) -> None:
    """Raises:
    MethodError: a method has answered no prompt, and its own error is why.
    """
    failures: dict[str, list[Failure | None]] = {}
    for record in records:
        failures.setdefault(record.method, []).append(record.failure)
    failed = [
        f"{name}: {each[0].kind}: {each[0].message}"
        for name, each in failures.items()
        if each[0] and all(failure and failure.kind not in FORESEEN for failure in each)
    ]
    if failed:
        raise MethodError(f"no prompt was answered by {'; by '.join(failed)}")


def compare(result: GenerationResult, reference: list[int], prompt: Prompt, target: TargetModel) -> Lossless:
    """Whether the answer is the reference, token by token, and if not, whether a numerical tie explains it."""
    output = result.output_ids
    if output == reference:
        return Lossless("identical")
    pairs = zip(output, reference, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(output), len(reference)))
    if position == min(len(output), len(reference)):  # one ends early: a stop rule, not rounding
        return Lossless("different", position)
    candidates = [output[position], reference[position]]
    gap, is_tie = target.near_tie([*prompt.ids.tolist(), *reference[:position]], candidates)
    return Lossless("tie" if is_tie else "different", position, gap)


def eos_ids(model: PreTrainedModel) -> frozenset[int]:
    """The token ids that end an answer, as the model's generation config lists them."""
    ids = model.generation_config.eos_token_id
    return frozenset([ids] if isinstance(ids, int) else ids or [])


@dataclass
class Live(Interleaved):
    """A running model.

    Attributes:
        items: prompts, or turns whose prompts follow from vanilla's earlier answers.
        warmup: prompts that are run and not recorded.
        stop: when answers end; the model's own end tokens are added when it is loaded.
        load: makes the run's target from (None, None), or another one from a path and a revision; with "tree" or "rows"
            as a third, one that verifies drafts so (`Traits.verify`).
        context_limit: of the run's target, in tokens.
        decode: from token ids to an answer's text.
        references: what answers are compared with; None for no comparison.
        share_prefill: let a prompt be read once for all methods that take turns on it; each is charged for it.
    """

    warmup: Sequence[Prompt]
    stop: Stop
    load: Callable[..., TargetModel]
    context_limit: int
    decode: Callable[[list[int]], str]
    references: Mapping[ItemKey, Reference] | None = None
    share_prefill: bool = False

    def __post_init__(self) -> None:
        self._baselines = baselines(self.methods)
        if BASELINE not in self._baselines:
            raise ValueError(f"methods {list(self.methods)}: {BASELINE} must be among them, it is a denominator")
        self._later: dict[ItemKey, Prompt] = {}

    @property
    def names(self) -> list[str]:
        return list(self._baselines)

    def order(self, place: int, repeat: int, session: int = 0) -> list[str]:
        """As `Engine.order`, but the references of other answers come first: what follows is compared with them."""
        return sorted(super().order(place, repeat, session), key=lambda name: not self._is_reference(name, repeat))

    def _is_reference(self, method: str, repeat: int) -> bool:
        """Whether other answers of its session are compared with this one, token by token."""
        return repeat == 0 and self._baselines[method] == method

    def warm_up(self) -> None:
        """Load the weights. Each method is made ready when its first turn comes."""
        say(f"loading {self.model}; each method is made ready before its first answer, which is not measured")
        target = self.load(None, None)
        self.decoders, self.failures = bind_methods(self.methods, target, self.load)
        self.stop = self.stop.also(eos_ids(target.model))
        self._ready: set[object] = set()
        self._warmup_tokens = WARMUP_TOKENS
        self._others = Others() if target.device.type == "cpu" else None

    def _make_ready(self, name: str) -> None:
        """Compile what a method needs, and let it begin to answer a prompt, for the device; of a slow model only a few
        tokens. On a CPU a drafter that needs tokens alone is ready when it is compiled and another method has begun,
        but not under an adaptive length: each learns from one beginning, the library's too. One that remembers answers
        begins a second one: what it makes of an answer is compiled, too. A prompt that is too long is left out with a
        note, and the next one taken.
        """
        decoder, method = self.decoders[name], self.methods.get(name)
        decoder.target.keeps_prompt = self.share_prefill
        if isinstance(method, Drafter) and self.warmup:
            warm_up(method.drafter if isinstance(method, AdaptiveDrafter) else method, self.warmup[0], decoder.target)
        drafter = decoder.drafter if isinstance(decoder, SpeculativeDecoder) else None
        if drafter and drafter.traits.reads_top_k:
            decoder.target.capture(drafter.traits.reads_top_k)
        remembers = drafter is not None and drafter.traits.remembers
        is_ready = drafter and drafter.traits.needs_tokens_alone and decoder.target.device.type == "cpu"
        if not is_ready or remembers or isinstance(drafter, AdaptiveDrafter) or decoder.target not in self._ready:
            if decoder.baseline == name and self._begin(decoder, FEW) > SLOW_S:
                self._warmup_tokens = FEW
            self._begin(decoder, self._warmup_tokens)
            if remembers:
                self._begin(decoder, self._warmup_tokens, self.warmup[1:])
        self._ready |= {name, decoder.target}

    def _begin(self, decoder: Decoder, num_tokens: int, prompts: Sequence[Prompt] | None = None) -> float:
        """Begin to answer the first of the warm-up `prompts` (all) that fits; returns the seconds that it took."""
        stop = replace(self.stop, max_new_tokens=min(num_tokens, self.stop.max_new_tokens))
        start = time.perf_counter()
        for prompt in self.warmup if prompts is None else prompts:
            try:
                decoder.generate(prompt, stop)
                break
            except PromptTooLong as error:
                say(f"warning: warm-up prompt {prompt.question_id} left out: {error}")
        return time.perf_counter() - start

    def let_go(self) -> None:
        self.decoders, self._ready = {}, set()

    def decoder(self, key: RecordKey) -> Decoder:
        """The decoder of an answer, made ready."""
        if key.method not in self._ready:
            self._make_ready(key.method)
        decoder = self.decoders[key.method]
        if isinstance(decoder, SpeculativeDecoder) and decoder.traits.remembers:
            drafter = self.drafter(key)
            if drafter is not decoder.drafter:
                decoder = self.decoders[key.method] = SpeculativeDecoder(decoder.target, drafter, decoder.baseline)
        return decoder

    def prompt(self, item: ItemKey, known: Mapping[RecordKey, PromptRecord]) -> Prompt:
        """The prompt of an item, the same in all sessions; an empty one if vanilla failed in an earlier turn."""
        prompt = self.items[item]
        if isinstance(prompt, Prompt):
            return prompt
        if item not in self._later:
            earlier = [known[RecordKey(BASELINE, *item._replace(turn=turn))] for turn in range(prompt.turn)]
            if any(record.failure for record in earlier):
                return Prompt(np.empty(0, np.int64), {}, *item[:3], noise_kind=item.noise_kind)
            self._later[item] = prompt.build([record.output_ids for record in earlier])
        return self._later[item]

    def answer(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> PromptRecord:
        prompt, method = self.prompt(key.item, known), self.methods.get(key.method)
        about: dict[str, Any] = {
            "state": getattr(method, "traits", Traits()).state,
            "kind": getattr(method, "kind", "drafter"),
            "baseline": self._baselines[key.method],
        }
        if failure := self.failures.get(key.method):
            return self.record(key, prompt, failure, **about)
        if not len(prompt.ids):
            failure = Failure("earlier_turn_failed", "vanilla has no answer to an earlier turn")
            return self.record(key, prompt, failure, **about)
        try:
            decoder = self.decoder(key)
            about["disturbance"], result = self._measured(decoder, prompt, key.method)
        except Exception as error:  # a method's own; it ends nothing that others do
            failure = failure_of(error)
            if failure.kind not in FORESEEN and key.method == BASELINE:
                raise
            if failure.kind not in FORESEEN or key.method not in self._ready:
                say(f"warning: {key.method} on {key.question_id}: {failure.kind}: {failure.message}")
            if key.method not in self._ready:  # it was not made ready: nor would it be for the next prompt
                self.failures[key.method] = failure
            free_memory()
            return self.record(key, prompt, failure, **about)
        reference = known.get(key._replace(method=decoder.baseline, repeat=0))
        if reference and not reference.failure and not self._is_reference(key.method, key.repeat):
            about["lossless"] = compare(result, reference.output_ids, prompt, decoder.target)
        return self.record(key, prompt, result, **about)

    def _measured(self, decoder: Decoder, prompt: Prompt, name: str) -> tuple[float | None, GenerationResult]:
        """The answer; of several, while others disturb it, the least disturbed one, however long it took. Each begins
        with what earlier answers taught. Of a drafter that remembers answers, and on a GPU, it is the first one.
        """
        if self._others is None:
            return None, decoder.generate(prompt, self.stop)
        found: list[tuple[float, GenerationResult]] = []
        before = decoder.learned and decoder.learned.copy()
        for pause in (*PAUSES_S, None):
            self._others.begin()
            result = decoder.generate(prompt, self.stop)
            found.append((self._others.end(), result))
            is_done = found[-1][0] <= DISTURBED or decoder.traits.remembers
            if is_done or pause is None or not self._others.may_wait(pause):
                break
            if decoder.baseline == name:  # the first to answer, for whom the prompt is read
                decoder.target.forget()
            if before:
                decoder.learned.become(before)
            time.sleep(pause)
        return min(found, key=lambda each: each[0])

    def remind(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> None:
        try:
            decoder = None if key.method in self.failures else self.decoder(key)
        except Exception as error:  # a method's own, as in `answer`
            self.failures[key.method] = failure_of(error)
            return
        if isinstance(decoder, SpeculativeDecoder):
            drafter = decoder.drafter
            reads = drafter.traits.reads
            if drafter.traits.remembers and reads != "tokens" and f"resumed: {key.method}" not in self.notes:
                self.notes[f"resumed: {key.method}"] = (
                    f"it went on without what it had learned of the model's {reads} before an interruption, so "
                    "its accept lengths are too low for a while; measure it anew in one go"
                )
                say(f"warning: {key.method}: {self.notes[f'resumed: {key.method}']}")
            drafter.remind(self.prompt(key.item, known), known[key].output_ids)

    def scores(self, records: Iterable[PromptRecord]) -> pd.DataFrame | None:
        return None if self.references is None else score(records, self.references, self.decode)

    def traces(self, records: Mapping[RecordKey, PromptRecord]) -> list[Trace]:
        """Vanilla's first answer to each prompt, as far as the run has come."""
        found = []
        for item in self.items:
            record = records.get(RecordKey(BASELINE, *item))
            if record and not record.failure:
                prompt = self.prompt(item, records)
                room = min(self.stop.max_new_tokens, self.context_limit - len(prompt.ids))
                found.append(Trace(self.model, prompt, record.output_ids, room, record.stop_reason or ""))
        return found
