"""Run methods over prompts and record every answer: interleaved prompt by prompt, resumable, failures kept apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel

from ngram_trie.decoding import Decoder, GenerationResult, PromptTooLong, SpeculativeDecoder, Stop
from ngram_trie.drafter import Drafter
from ngram_trie.drafters import NoDraft
from ngram_trie.engines import provenance
from ngram_trie.engines.traces import Trace, TraceWriter
from ngram_trie.files import fingerprint, first_line, relative
from ngram_trie.prompt import LaterTurn, Prompt
from ngram_trie.records import Failure, Lossless, PromptRecord, RecordWriter, RunManifest, read_records
from ngram_trie.targets.model import TargetModel

BASELINE = "vanilla"


class LosslessError(RuntimeError):
    """A method of the project's loop gave other tokens than vanilla, and no numerical tie explains it."""


@dataclass(frozen=True)
class Run:
    """What to measure.

    Attributes:
        id: `RunManifest.run`.
        model: the target's name in records.
        methods: name -> decoder, each one's baseline among them: its denominator and its reference.
        prompts: dataset -> prompts in question order.
        warmup: prompts that are run and not recorded, so that compilation and caches are paid for beforehand.
        stop: when answers end.
        repeats: how often each prompt is answered by each method.
    """

    id: str
    model: str
    methods: Mapping[str, Decoder]
    prompts: Mapping[str, Sequence[Prompt | LaterTurn]]
    warmup: Sequence[Prompt]
    stop: Stop
    repeats: int

    def __post_init__(self) -> None:
        if absent := {decoder.baseline for decoder in self.methods.values()} - set(self.methods):
            raise ValueError(f"methods {list(self.methods)}: {min(absent)!r} must be among them, it is a denominator")

    def order(self, turn: int, repeat: int) -> list[str]:
        """The methods, rotated so that none always runs first; but the references of all others come before them."""
        names = list(self.methods)
        shift = (turn + repeat) % len(names)
        names = names[shift:] + names[:shift]
        return sorted(names, key=lambda name: not self.is_reference(name, repeat))

    def is_reference(self, method: str, repeat: int) -> bool:
        """Whether other answers are compared with this one, token by token."""
        return repeat == 0 and self.methods[method].baseline == method


def split_missing(methods: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The methods whose parts are all there, and for each of the others, by name, what is missing and how to get it."""
    missing = {
        name: f"{relative(str(where))}: not there; {how}"
        for name, method in methods.items()
        if isinstance(method, Drafter)
        for where, how in method.parts().items()
        if not where.exists()
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


def decoder_names(methods: Mapping[str, Any]) -> list[str]:
    """The names that `bind_methods` gives its decoders, in their order."""
    names: list[str] = []
    for name, method in methods.items():
        names += [f"{name}_{BASELINE}", name] if isinstance(method, Drafter) and method.own_model else [name]
    return names


def bind_methods(
    methods: Mapping[str, Any], target: TargetModel, load: Callable[[str, str | None], TargetModel]
) -> dict[str, Decoder]:
    """Decoders over `target`: drafters in the project's loop, outside decoders in their own. A drafter with a model of
    its own gets that, and a vanilla over it as its baseline: METHOD_vanilla.
    """
    decoders: dict[str, Decoder] = {}
    for name, method in methods.items():
        if isinstance(method, Drafter) and method.own_model:
            own, baseline = load(method.own_model, method.own_revision), f"{name}_{BASELINE}"
            decoders[baseline] = SpeculativeDecoder(own, NoDraft(), baseline)
            decoders[name] = SpeculativeDecoder(own, method, baseline)
        elif isinstance(method, Drafter):
            decoders[name] = SpeculativeDecoder(target, method)
        elif isinstance(method, Decoder):
            method.bind(target)
            decoders[name] = method
        else:
            raise TypeError(f"method {name}: {type(method).__name__} is neither a Drafter nor a Decoder")
    return decoders


def measure(run: Run, target: TargetModel, writer: RecordWriter, traces: TraceWriter | None = None) -> None:
    """Answer every prompt with every method and write a record of each, and to `traces` vanilla's first answer to each
    prompt; what is recorded already is skipped.
    """
    total = sum(len(prompts) for prompts in run.prompts.values()) * run.repeats * len(run.methods)
    done = len(writer.records)
    with tqdm(total=total, initial=done, unit="answer", dynamic_ncols=True, smoothing=0.05) as progress:
        if done < total:
            warm_up(run, progress)
        for dataset, prompts in run.prompts.items():
            progress.set_description(dataset)
            for index, item in enumerate(prompts):
                prompt = follow(item, writer) if isinstance(item, LaterTurn) else item
                for repeat in range(run.repeats):
                    for method in run.order(index, repeat):
                        key = (method, dataset, item.question_id, item.turn, repeat)
                        if key not in writer:
                            writer.write(answer(run, method, prompt, repeat, writer))
                            progress.update()
                        elif done < total:
                            remind(run.methods[method], prompt, writer.records[key])
                        if traces and method == BASELINE and run.is_reference(method, repeat):
                            reference = writer.records[method, dataset, item.question_id, item.turn, repeat]
                            if not reference.failure:
                                traces.write(to_trace(run, prompt, reference, target))


def remind(decoder: Decoder, prompt: Prompt, record: PromptRecord) -> None:
    """Tell a decoder's drafter, if there is one, of an answer that was recorded before an interruption."""
    drafter = getattr(decoder, "drafter", None)
    if drafter and not record.failure:
        drafter.remind(prompt, record.output_ids)


def follow(later: LaterTurn, writer: RecordWriter) -> Prompt:
    """The prompt of a later turn, after vanilla's recorded answers; an empty one if any of those failed."""
    earlier = [writer.records[BASELINE, later.dataset, later.question_id, turn, 0] for turn in range(later.turn)]
    if any(record.failure for record in earlier):
        return Prompt(np.empty(0, np.int64), {}, later.dataset, later.question_id, later.turn)
    return later.build([record.output_ids for record in earlier])


def to_trace(run: Run, prompt: Prompt, reference: PromptRecord, target: TargetModel) -> Trace:
    """Vanilla's answer as a trace, to be replayed elsewhere."""
    room = min(run.stop.max_new_tokens, target.context_limit - len(prompt.ids))
    return Trace(run.model, prompt, reference.output_ids, room, reference.stop_reason or "")


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


def warm_up(run: Run, progress: tqdm[Any]) -> None:
    """The baselines on every warm-up prompt, for the device; the others on one, for the code that they compile."""
    progress.set_description("warming up")
    for name, decoder in run.methods.items():
        for prompt in run.warmup if decoder.baseline == name else run.warmup[:1]:
            decoder.generate(prompt, run.stop)


def answer(run: Run, method: str, prompt: Prompt, repeat: int, writer: RecordWriter) -> PromptRecord:
    """One record: the answer of `method` to `prompt`, or why there is none."""
    decoder = run.methods[method]
    about = PromptRecord.about(
        prompt,
        run=run.id,
        method=method,
        model=run.model,
        repeat=repeat,
        state=decoder.state,
        kind=decoder.kind,
        baseline=decoder.baseline,
    )
    if not len(prompt.ids):
        return PromptRecord(**about, failure=Failure("earlier_turn_failed", "vanilla has no answer to an earlier turn"))
    try:
        result = decoder.generate(prompt, run.stop)
    except PromptTooLong as error:
        return PromptRecord(**about, failure=Failure("prompt_too_long", str(error)))
    except torch.OutOfMemoryError as error:
        return PromptRecord(**about, failure=Failure("out_of_memory", first_line(error)))
    reference = writer.records.get((decoder.baseline, prompt.dataset, prompt.question_id, prompt.turn, 0))
    if not reference or reference.failure or run.is_reference(method, repeat):
        return PromptRecord(**about, **vars(result))
    verdict = compare(result, reference.output_ids, prompt, decoder.target)
    return PromptRecord(**about, **vars(result), lossless=verdict)


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


def device_manifest(
    config: Mapping[str, Any],
    model: str,
    prompts: str,
    device: torch.device,
    environment: Mapping[str, str] | None = None,
) -> RunManifest:
    """The manifest of a run on `device` that starts now."""
    environment = dict(environment or {})
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        environment |= {"cuda": str(torch.version.cuda), "driver": provenance.driver() or "unknown"}
    else:
        name = f"{provenance.cpu_name()}, {torch.get_num_threads()} threads"
    return provenance.make_manifest(config, model, prompts, name, torch.get_num_threads(), environment)


def open_run(folder: Path, manifest: RunManifest, force: bool = False) -> RecordWriter:
    """The writer of a run's records; goes on where an interrupted session of the same run stopped.

    Raises:
        FileExistsError: the folder holds another run, or was begun by other code or on another machine; what is not
            alike never mixes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, records = folder / "manifest.json", folder / "records.jsonl"
    if force:
        for name in (path, records, folder / "traces.jsonl"):
            name.unlink(missing_ok=True)
    if path.exists():
        found = RunManifest.read(path)
        changed = [
            f"{name} {getattr(found, name)} there, {getattr(manifest, name)} here"
            for name in ("run", "commit", "device", "versions")
            if getattr(found, name) != getattr(manifest, name)
        ]
        if changed:
            raise FileExistsError(
                f"{folder} holds another run ({'; '.join(changed)}): "
                "give another output=FOLDER, or force=true to replace it"
            )
        return RecordWriter(records, manifest.run)
    writer = RecordWriter(records, manifest.run)
    manifest.write(path)
    return writer


def is_complete(folder: Path, run: str, num_answers: int) -> bool:
    """Whether `folder` already holds all `num_answers` records of this run."""
    manifest, records = folder / "manifest.json", folder / "records.jsonl"
    if not (manifest.exists() and records.exists()) or RunManifest.read(manifest).run != run:
        return False
    return sum(1 for _ in read_records(records)) == num_answers
