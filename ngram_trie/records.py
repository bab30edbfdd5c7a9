"""The files of a run: one JSON line per answer, and a manifest of what was run on which machine.

`records.jsonl` is append-only, and a lock keeps it to one writer. Each line is flushed when its answer is complete, so
an interrupt loses at most one line, and the next run resumes there. Every reported number is derived from this file.
Records are read when they are asked for (`StoredRecords`), so a long run does not hold them. A line ends with the
checksum of what stands before it; those of files written before there were any have none. The schema
is documented field by field in `PromptRecord`; `SCHEMA_VERSION` grows when a field changes its meaning.
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
import zlib
from collections.abc import Callable, Collection, Container, Iterator, Mapping, ValuesView
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from filelock import BaseFileLock
from pydantic import TypeAdapter, ValidationError

from ngram_trie.decoding import GenerationResult, PhaseSeconds
from ngram_trie.files import content_hash, one_writer, write_atomically
from ngram_trie.prompt import Prompt

SCHEMA_VERSION = 2
#: In the environment of a run that went on behind a change of its code: what was measured by which.
MIXED = "mixed code"


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
        if self.accept_lengths and min(self.accept_lengths) < 1:
            raise ValueError("accept_lengths: a step that emits no token; each emits at least 1")
        if self.failure is None and self.tree_sizes and len(self.tree_sizes) != len(self.accept_lengths):
            raise ValueError(f"tree_sizes: {len(self.tree_sizes)} steps, accept_lengths: {len(self.accept_lengths)}")
        if self.seconds and not all(0 <= each < math.inf for each in vars(self.seconds).values()):
            raise ValueError(f"seconds={vars(self.seconds)}: must be finite and at least 0")

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
        """Parse one line, without a checksum.

        Raises:
            ValueError: not JSON, another schema version, or fields missing, unknown or of a wrong type.
        """
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"a {type(row).__name__}, not a record")
        if row.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"schema version {row.get('schema_version')}, expected {SCHEMA_VERSION}")
        parts = {"seconds": PhaseSeconds, "lossless": Lossless, "failure": Failure}
        for kind, part in ((cls, row), *((kind, row.get(name)) for name, kind in parts.items())):
            names = {each.name for each in fields(kind)}
            if isinstance(part, dict) and (unknown := part.keys() - names):
                raise ValueError(f"{min(unknown)}: no field of a record")
        try:
            return _schema().validate_json(line, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise ValueError(": ".join(filter(None, [".".join(map(str, first["loc"])), what])))


@functools.cache
def _schema() -> TypeAdapter[PromptRecord]:
    return TypeAdapter(PromptRecord)


def sealed(line: str) -> str:
    """A JSON object with the checksum (CRC-32) of its text as its last field."""
    return f'{line[:-1]},"crc32":"{zlib.crc32(line.encode()):08x}"}}'


_SEAL = re.compile(r',"crc32":"([0-9a-f]{8})"}$')


def unsealed(line: str) -> tuple[str, bool]:
    """The text that `sealed` was given, and whether there was a checksum.

    Raises:
        ValueError: it is of another text.
    """
    found = _SEAL.search(line)
    if not found:
        return line, False
    text = line[: found.start()] + "}"
    if zlib.crc32(text.encode()) != int(found[1], 16):
        raise ValueError("its checksum is of another text: the line was changed")
    return text, True


class Line(NamedTuple):
    """A line of a file of records: where it begins, what it holds, and its record, or else why it is none."""

    number: int
    offset: int
    content: bytes
    record: PromptRecord | None
    error: str


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file of records, in order; one that repeats an earlier answer is none. A torn last line (a killed
    run) is left out.
    """
    known: dict[RecordKey, int] = {}
    any_sealed, offset = False, 0
    with path.open("rb") as lines:
        for number, content in enumerate(lines, 1):
            if not content.endswith(b"\n"):
                return
            try:
                body, is_sealed = unsealed(content[:-1].decode())
                if any_sealed and not is_sealed:
                    raise ValueError("it has no checksum, and lines before it have")
                any_sealed |= is_sealed
                record = PromptRecord.from_json(body)
                if record.key in known:
                    raise ValueError(f"the answer of line {known[record.key]} again")
                known[record.key] = number
            except ValueError as error:  # those of JSON and of UTF-8, too
                yield Line(number, offset, content, None, str(error))
            else:
                yield Line(number, offset, content, record, "")
            offset += len(content)


#: What mends a file of records.
REPAIR = "repair=true with the run's own command leaves such lines out and measures them again"


def read_records(path: Path) -> Iterator[PromptRecord]:
    """The records of a file, in order. A torn last line (a killed run) is left out.

    Raises:
        ValueError: any other line that is not a record, or the same answer again; the message names file, line and
            reason.
    """
    for line in read_lines(path):
        if line.record is None:
            raise ValueError(f"{path}:{line.number}: {line.error}; {REPAIR}")
        yield line.record


def _read(file: BinaryIO) -> PromptRecord:
    """The record of the line that begins where the file is."""
    return PromptRecord.from_json(unsealed(file.readline()[:-1].decode())[0])


class StoredRecords(Mapping[RecordKey, PromptRecord]):
    """The records of a file by their keys, in order, each read from it whenever it is asked for.

    Args:
        path: the file.
        places: of each record where its line begins, in bytes.
    """

    def __init__(self, path: Path, places: dict[RecordKey, int]) -> None:
        self.path, self.places = path, places

    @classmethod
    def open(cls, path: Path, wrong: Callable[[PromptRecord], str] = lambda record: "") -> StoredRecords:
        """Every line is read once, to find what is wrong.

        Args:
            wrong: in words, why a record is not to be there; "" where it is.

        Raises:
            ValueError: as `read_records`, or a record that is `wrong`.
        """
        places: dict[RecordKey, int] = {}
        for line in read_lines(path):
            error = line.error if line.record is None else wrong(line.record)
            if error or line.record is None:
                raise ValueError(f"{path}:{line.number}: {error}; {REPAIR}")
            places[line.record.key] = line.offset
        return cls(path, places)

    def __getitem__(self, key: RecordKey) -> PromptRecord:
        place = self.places[key]
        with self.path.open("rb") as file:
            file.seek(place)
            return _read(file)

    def values(self) -> StoredValues:
        return StoredValues(self)

    def __contains__(self, key: object) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[RecordKey]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class StoredValues(ValuesView[PromptRecord]):
    """All of them, in order."""

    _mapping: StoredRecords

    def __iter__(self) -> Iterator[PromptRecord]:
        if not self._mapping.places:
            return
        with self._mapping.path.open("rb") as file:
            for place in tuple(self._mapping.places.values()):
                file.seek(place)
                yield _read(file)


class Selected(Collection[PromptRecord]):
    """Those of some records that are `kept`, read whenever they are asked for."""

    def __init__(self, records: Collection[PromptRecord], kept: Callable[[PromptRecord], bool]) -> None:
        self._records, self._kept = records, kept

    def __iter__(self) -> Iterator[PromptRecord]:
        return filter(self._kept, self._records)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, record: object) -> bool:
        return any(each == record for each in self)


class RecordWriter:
    """Appends the records of one run to a file; what was written there before an interruption stays, in `records`.

    Args:
        path: the file.
        run: the run's identity.
        keys: those that the run has; None for any.
        repair: leave out lines that are no records, so that they are measured again.
        lock: of the folder, where it is held already; it is let go in the end.

    Raises:
        FileExistsError: the file holds records of another run, or is none of records; or another process writes it.
        ValueError: a line that is none of the run's records; the message names file, line and reason.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        keys: Container[RecordKey] | None = None,
        repair: bool = False,
        lock: BaseFileLock | None = None,
    ) -> None:
        self.path = path
        self.records = StoredRecords(path, {})
        self._size = 0
        self._lock = lock or one_writer(path.parent)
        try:
            if path.exists():
                self._take_over(run, keys, repair)
            self._file = path.open("ab", buffering=0)
        except BaseException:
            self._lock.release()
            raise

    def _take_over(self, run: str, keys: Container[RecordKey] | None, repair: bool) -> None:
        kept, left_out = [], []
        for line in read_lines(self.path):
            record, error = line.record, line.error
            if record and record.run != run:
                raise FileExistsError(f"{self.path} holds records of run {record.run}, not of {run}")
            if record and keys is not None and record.key not in keys:
                error = f"the run has no answer {tuple(record.key)}"
            if record and not error:
                self.records.places[record.key] = self._size
                self._size += len(line.content)
                if repair:
                    kept.append(line.content)
            elif repair:
                left_out.append(f"{line.number} ({error})")
            else:
                raise ValueError(f"{self.path}:{line.number}: {error}; {REPAIR}")
        if left_out:
            print(f"{self.path}: left out and measured again: line {', line '.join(left_out)}", file=sys.stderr)
            write_atomically(self.path, b"".join(kept))
            return
        with self.path.open("rb") as file:
            file.seek(self._size)
            content = file.read()
        begin = f'{{"run":{json.dumps(run)},'.encode()[: len(content)]
        if not content.startswith(begin):
            raise FileExistsError(
                f"{self.path}: its last line is not of run {run}: give another output=FOLDER, or force=true to "
                "replace it"
            )
        with self.path.open("rb+") as file:
            file.truncate(self._size)

    def __contains__(self, key: RecordKey) -> bool:
        return key in self.records

    def write(self, record: PromptRecord) -> None:
        """Append a record.

        Raises:
            OSError: there is no room for it; the file is then as it was before.
        """
        line = sealed(record.to_json()).encode() + b"\n"
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(self._size)
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self.records.places[record.key] = self._size
        self._size += len(line)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.release()


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
        code: hash of the code that decides records (`provenance.code_hash`); None of runs that did not say.
        num_records: how many the complete run has; None of runs that did not say.
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
    code: str | None = None
    num_records: int | None = None

    def write(self, path: Path) -> None:
        """Write to `path`; a kill leaves the old file or the new one, never half of one."""
        write_atomically(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunManifest:
        return cls(**json.loads(path.read_text(encoding="utf-8")))
