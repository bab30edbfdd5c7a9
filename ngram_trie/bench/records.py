"""The files of a run: one JSON line per answer, a manifest of what was run on which machine, and the digests of both.

`records.jsonl` is append-only, and a lock keeps it to one writer. Each line is flushed when its answer is complete, so
an interrupt loses at most one line, and the next run resumes there. Every reported number is derived from this file and
those beside it (`INPUTS`). A run that is finished ends with `seal`, which writes their digests to `SUMS`; whoever reads
the folder calls `is_sealed` first. The schema is documented field by field in `PromptRecord`; `SCHEMA_VERSION` grows
when a field changes its meaning.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import math
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from filelock import BaseFileLock
from pydantic import TypeAdapter, ValidationError

from ngram_trie.decoding import GenerationResult, PhaseSeconds
from ngram_trie.prompt import Prompt, column_name
from ngram_trie.store.files import content_hash, drop_torn_line, one_writer, write_atomically

SCHEMA_VERSION = 2
#: Fields that records had for a while and nothing reads.
UNREAD = {"prompt_bleu", "copied"}
#: The `PromptRecord.disturbance` above which an answer counts as disturbed.
DISTURBED = 0.2
#: What tables are derived from, and the file of their digests, as `sha256sum -c` reads it.
RECORDS, SUMS = "records.jsonl", "SHA256SUMS"
INPUTS = ("manifest.json", RECORDS, f"{RECORDS}.gz", "quality.csv", "curve.json", "traces.jsonl")


class ItemKey(NamedTuple):
    """What is answered. Attributes as in `PromptRecord`."""

    dataset: str
    question_id: str
    turn: int
    noise_kind: str = ""


def item_key(about: Any) -> ItemKey:
    """The key of a `Question`, of its `Prompt` or of a `LaterTurn`."""
    return ItemKey(about.dataset, about.question_id, about.turn, about.noise_kind)


class RecordKey(NamedTuple):
    """Which answer it is within a run. Attributes as in `PromptRecord`."""

    method: str
    dataset: str
    question_id: str
    turn: int
    noise_kind: str = ""
    repeat: int = 0
    session: int = 0

    @property
    def item(self) -> ItemKey:
        return ItemKey(*self[1:5])


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


class MethodError(RuntimeError):
    """A method has answered no prompt; the run's other methods have."""


@dataclass(frozen=True)
class Failure:
    """Why there is no answer: `kind` is the exception's name, "prompt_too_long", "out_of_memory" or
    "earlier_turn_failed"; excluded from every average.
    """

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
        noise_kind: of the noise in the question's context, "paragraph" or "passages"; "" without.
        prompt_hash: of the prompt's token ids; equal for all methods by construction.
        num_prompt_tokens: length of the prompt, template and BOS included.
        output_ids: the answer's token ids, the stop token included.
        accept_lengths: tokens emitted by each step; prefill emits the first token and is no step, so
            `sum(accept_lengths) + 1 == len(output_ids)`.
        tree_sizes: drafted nodes verified in each step (the root not counted).
        draft_us: microseconds that the drafter took in each step.
        seconds: wall-clock by phase.
        stop_reason: "eos", "stop_string", "max_new_tokens" or "context_limit".
        state: "cold", "warm", "preloaded" or "trained", as `Traits.state`; those of files written before there was
            "trained" say "cold".
        kind: "drafter" (the project's loop) or "decoder" (a loop of its own).
        baseline: the method that this one is compared with: "vanilla", or its own vanilla if it brings a target model.
        lossless: verdict against vanilla; None for vanilla itself.
        failure: set instead of an answer.
        disturbance: what other work on the machine took from the answer (`bench.others.Others.end`); None where that is
            not known, as on a GPU.
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
    noise_kind: str = ""
    disturbance: float | None = None
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
        if self.disturbance is not None and not 0 <= self.disturbance < math.inf:
            raise ValueError(f"disturbance={self.disturbance}: must be finite and at least 0")
        if self.seconds and not all(0 <= each < math.inf for each in vars(self.seconds).values()):
            raise ValueError(f"seconds={vars(self.seconds)}: must be finite and at least 0")

    @classmethod
    def of(cls, prompt: Prompt, result: GenerationResult | Failure, **fields: Any) -> PromptRecord:
        """The record of one result; `fields` are those that follow neither from the prompt nor from the result."""
        outcome: dict[str, Any] = {"failure": result} if isinstance(result, Failure) else vars(result)
        return cls(
            **item_key(prompt)._asdict(),
            prompt_hash=content_hash(prompt.ids.tolist()),
            num_prompt_tokens=len(prompt.ids),
            **outcome,
            **fields,
        )

    @property
    def key(self) -> RecordKey:
        """What makes a record unique within a run."""
        item = (self.dataset, self.question_id, self.turn, self.noise_kind)
        return RecordKey(self.method, *item, self.repeat, self.session)

    @property
    def column(self) -> str:
        """What tables call its data set, with the noise in it."""
        return column_name(self.dataset, self.noise_kind)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> PromptRecord:
        """Parse one line.

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
            if isinstance(part, dict) and (unknown := part.keys() - names - UNREAD):
                raise ValueError(f"{min(unknown)}: no field of a record")
        record: PromptRecord = _parsed(cls, line)
        return record


@functools.cache
def _schema(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _parsed(kind: Any, text: str | bytes) -> Any:
    """What JSON says, as an object of the dataclass.

    Raises:
        ValueError: it has another shape; the message names the first field that is wrong.
    """
    try:
        return _schema(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    what = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    raise ValueError(": ".join(filter(None, [".".join(map(str, first["loc"])), what])))


def records_file(folder: Path) -> Path:
    """The records in a folder: those of a finished run may have been compressed (gzip) to be kept."""
    compressed = folder / f"{RECORDS}.gz"
    return compressed if compressed.exists() else folder / RECORDS


def read_records(path: Path) -> list[PromptRecord]:
    """The records of a file, in order. A torn last line (a killed run) is left out.

    Raises:
        ValueError: any other line that is not a record, or the same answer again; the message names file, line and
            reason.
    """
    known: dict[RecordKey, int] = {}
    records = []
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            record = PromptRecord.from_json(line)
            if record.key in known:
                raise ValueError(f"the answer of line {known[record.key]} again")
        except (ValueError, RecursionError) as error:  # those of JSON and of UTF-8, too
            raise ValueError(f"{path}:{number}: {error}") from None
        known[record.key] = number
        records.append(record)
    return records


def seal(folder: Path) -> None:
    """Write the digests of what is in a folder of a finished run."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in INPUTS if (folder / name).exists()]
    write_atomically(folder / SUMS, "".join(lines))


def is_sealed(folder: Path) -> bool:
    """Whether a folder is of a finished run, whose files are as they were at its end.

    Raises:
        ValueError: it has been finished, and a file is missing, new or changed, or is a link; the message names it.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"{path}: a link; links in the folder of a run are not followed")
    if not (folder / SUMS).exists():
        return False
    lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if unknown := sorted(sums.keys() - set(INPUTS)):
        raise ValueError(f"{folder / SUMS}: names {unknown[0]!r}, which is no file that tables are derived from")
    for name in INPUTS:
        path, there = folder / name, (folder / name).exists()
        if there != (name in sums) or (there and (not path.is_file() or _digest(path) != sums[name])):
            what = "changed" if there and name in sums else "added" if there else "taken away"
            raise ValueError(f"{path}: {what} since the run was finished ({SUMS}); no table is derived from it")
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class RecordWriter:
    """Appends the records of one run to a file; what was written there before an interruption stays, in `records`.

    Args:
        path: the file.
        run: the run's identity.
        keys: those that the run has; None for any.
        lock: of the folder, where it is held already; it is let go in the end.

    Raises:
        FileExistsError: the file holds records of another run, or no records; or another process writes it.
        ValueError: a line that is not one of the run's records; the message names file, line and reason.
    """

    def __init__(
        self, path: Path, run: str, keys: Container[RecordKey] | None = None, lock: BaseFileLock | None = None
    ) -> None:
        self.path = path
        self._lock = lock or one_writer(path.parent)
        try:
            self.records = {record.key: record for record in read_records(path)} if path.exists() else {}
            for number, record in enumerate(self.records.values(), 1):
                if record.run != run:
                    raise FileExistsError(f"{path} holds records of run {record.run}, not of {run}")
                if keys is not None and record.key not in keys:
                    raise ValueError(f"{path}:{number}: the run has no answer {tuple(record.key)}")
            if path.exists():
                torn = path.read_bytes().rpartition(b"\n")[2]
                if not torn.startswith(f'{{"run":{json.dumps(run)},'.encode()[: len(torn)]):
                    raise FileExistsError(f"{path}: its last line is not of run {run}: give another output=FOLDER")
                drop_torn_line(path)
            self._file = path.open("ab", buffering=0)
            self._size = path.stat().st_size
        except BaseException:
            self._lock.release()
            raise

    def __contains__(self, key: RecordKey) -> bool:
        return key in self.records

    def write(self, record: PromptRecord) -> None:
        """Append a record.

        Raises:
            OSError: there is no room for it; the file is then as it was before.
        """
        line = record.to_json().encode() + b"\n"
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(self._size)
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self.records[record.key] = record
        self._size += len(line)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.release()


@dataclass(frozen=True)
class Shard:
    """The part of a run that one of several jobs measures.

    Attributes:
        number, of: which of how many, from 0.
        items: what is answered, each with its place among all of the run.
    """

    number: int
    of: int
    items: list[tuple[int, ItemKey]]


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
        code: of runs up to November 2026, a hash of the code that decides records.
        num_records: how many the complete run has; None of runs that did not say.
        shard: which part of the run it is; None of a whole run.
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
    shard: Shard | None = None

    def write(self, path: Path) -> None:
        """Write to `path`; a kill leaves the old file or the new one, never half of one."""
        write_atomically(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunManifest:
        """The manifest of a file.

        Raises:
            FileNotFoundError: there is none.
            ValueError: not JSON, or of another shape; the message names the file and the first field that is wrong.
        """
        try:
            manifest: RunManifest = _parsed(cls, path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: not the manifest of a run ({error})") from None
        return manifest


def differences(there: RunManifest, here: RunManifest, *names: str) -> dict[str, str]:
    """Of the fields `names` those that differ, each with its two values; of nested ones the first that differs."""
    return {
        name: said
        for name in names
        if (said := _difference(name, getattr(there, name), getattr(here, name))) is not None
    }


def _difference(name: str, there: Any, here: Any) -> str | None:
    if there == here:
        return None
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        inner = (_difference(f"{name}.{key}", there.get(key), here.get(key)) for key in {**there, **here})
        return next(filter(None, inner), None)
    return f"{name} {there} there, {here} here"
