"""The files of a run: one JSON line per answer, and a manifest of what was run on which machine.

`records.jsonl` is append-only. Each line is flushed when its answer is complete, so an interrupt loses at most one
line, and the next run resumes there. Every reported number is derived from this file.
The schema is documented field by field in `PromptRecord`; `SCHEMA_VERSION` grows when a field changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ngram_trie.decoding import GenerationResult, PhaseSeconds
from ngram_trie.files import content_hash, drop_torn_line, write_atomically
from ngram_trie.prompt import Prompt

SCHEMA_VERSION = 2


class RecordKey(NamedTuple):
    """Which answer it is within a run. Attributes as in `PromptRecord`."""

    method: str
    dataset: str
    question_id: str
    turn: int
    repeat: int = 0
    session: int = 0

    @property
    def item(self) -> tuple[str, str, int]:
        """What is answered: data set, question id, turn."""
        return self.dataset, self.question_id, self.turn


@dataclass(frozen=True)
class Lossless:
    """How the output compares with vanilla's output for the same prompt.

    Attributes:
        verdict: "identical"; "tie" (half precision, and the two largest logits lie within its rounding); "different":
            a bug, which ends a run with a non-zero status unless the loop is an outside Decoder's.
        position: index of the first output token that differs.
        gap: difference of the two largest logits there.
    """

    verdict: str
    position: int | None = None
    gap: float | None = None


class LosslessError(RuntimeError):
    """A method of the project's loop gave other tokens than vanilla, and no numerical tie explains it."""


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: `kind` is the exception's name or "prompt_too_long"; excluded from every average."""

    kind: str
    message: str


@dataclass(frozen=True)
class PromptRecord:
    """One answer of one method to one prompt. Token counts exclude the prompt; nothing after the stop is kept.

    Attributes:
        run: the run's identity (`RunManifest.run`); records of different configs never share a file.
        method, model, dataset: names as in the config.
        question_id, turn: which question; `repeat` counts from 0, and so does `session`: the whole run is done again in
            each, at another time (`measure.sessions`).
        prompt_hash: of the prompt's token ids; equal for all methods by construction.
        num_prompt_tokens: length of the prompt, template and BOS included.
        output_ids: the answer's token ids, the stop token included.
        accept_lengths: tokens emitted by each step; prefill emits the first token and is no step, so
            `sum(accept_lengths) + 1 == len(output_ids)`.
        tree_sizes: drafted nodes verified in each step (the root not counted).
        draft_us: microseconds that the drafter took in each step.
        seconds: wall-clock by phase.
        stop_reason: "eos", "stop_string", "max_new_tokens" or "context_limit".
        state: "cold", "warm", "preloaded" or "trained", as `Drafter.state`; those of files written before there was
            "trained" say "cold".
        kind: "drafter" (the project's loop) or "decoder" (a loop of its own).
        baseline: the method that this one is compared with: "vanilla", or its own vanilla if it brings a target model.
        lossless: verdict against vanilla; None for vanilla itself.
        failure: set instead of an answer.
        lower_bound: of recorded answers, replayed by a drafter that reads likely tokens: those behind rejected nodes
            were not recorded, so live accept lengths are as a rule larger.
    """

    run: str
    method: str
    model: str
    dataset: str
    question_id: str
    turn: int
    repeat: int
    prompt_hash: str
    num_prompt_tokens: int
    state: str
    kind: str
    output_ids: list[int] = field(default_factory=list)
    accept_lengths: list[int] = field(default_factory=list)
    tree_sizes: list[int] = field(default_factory=list)
    draft_us: list[float] = field(default_factory=list)
    seconds: PhaseSeconds | None = None
    stop_reason: str | None = None
    lossless: Lossless | None = None
    failure: Failure | None = None
    baseline: str = "vanilla"
    session: int = 0
    lower_bound: bool = False
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.failure is None and sum(self.accept_lengths) + 1 != len(self.output_ids):
            raise ValueError(
                f"{self.method} on {self.question_id}: {len(self.output_ids)} tokens, but its steps and prefill "
                f"account for {sum(self.accept_lengths) + 1}"
            )

    @classmethod
    def of(cls, prompt: Prompt, result: GenerationResult | Failure, **fields: Any) -> PromptRecord:
        """The record of one result; `fields` are those that follow neither from the prompt nor from the result."""
        outcome = {"failure": result} if isinstance(result, Failure) else vars(result)
        return cls(
            dataset=prompt.dataset,
            question_id=prompt.question_id,
            turn=prompt.turn,
            prompt_hash=content_hash(prompt.ids.tolist()),
            num_prompt_tokens=len(prompt.ids),
            **outcome,
            **fields,
        )

    @property
    def key(self) -> RecordKey:
        """What makes a record unique within a run."""
        return RecordKey(self.method, self.dataset, self.question_id, self.turn, self.repeat, self.session)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> PromptRecord:
        """Parse one line.

        Raises:
            ValueError: not JSON, another schema version, or fields missing or unknown.
        """
        row = json.loads(line)
        if row.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema version {row.get('schema_version')}, expected {SCHEMA_VERSION}")
        try:
            for name, kind in (("seconds", PhaseSeconds), ("lossless", Lossless), ("failure", Failure)):
                if row.get(name) is not None:
                    row[name] = kind(**row[name])
            return cls(**row)
        except TypeError as error:
            raise ValueError(str(error)) from None


def read_records(path: Path) -> Iterator[PromptRecord]:
    """The records of a file, in order. A torn last line (a killed run) is left out.

    Raises:
        ValueError: any other line that is not a record; the message names file, line and reason.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                yield PromptRecord.from_json(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None


class RecordWriter:
    """Appends the records of one run to a file; what was written there before an interruption stays, in `records`.

    Raises:
        FileExistsError: the file holds records of another run.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.records: dict[RecordKey, PromptRecord] = {}
        if path.exists():
            self.records = {record.key: record for record in read_records(path)}
            if others := {record.run for record in self.records.values()} - {run}:
                raise FileExistsError(f"{path} holds records of run {', '.join(others)}, not of {run}")
            drop_torn_line(path)
        self._file: TextIO = path.open("a", encoding="utf-8")

    def __contains__(self, key: RecordKey) -> bool:
        return key in self.records

    def write(self, record: PromptRecord) -> None:
        self.records[record.key] = record
        self._file.write(record.to_json() + "\n")
        self._file.flush()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@dataclass(frozen=True)
class RunManifest:
    """What was run, on what, with which code.

    Attributes:
        run: hash of `config`, `model` and `prompts`: what decides the results, and so the run's identity.
        config: the resolved config.
        model: hash of the model's files, or hub id and revision.
        prompts: hash of all prompts' token ids.
        commit, dirty: the project's commit, and whether the working tree differed from it; None outside a checkout.
        device, num_threads: hardware in words.
        versions: Python and the libraries that matter.
        started: UTC, ISO 8601.
        environment: what else a reader needs (driver, platform).
    """

    run: str
    config: Mapping[str, Any]
    model: str
    prompts: str
    commit: str | None
    dirty: bool | None
    device: str
    num_threads: int
    versions: Mapping[str, str]
    started: str
    environment: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def write(self, path: Path) -> None:
        """Write to `path`; a kill leaves the old file or the new one, never half of one."""
        write_atomically(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunManifest:
        return cls(**json.loads(path.read_text(encoding="utf-8")))
