"""The one measuring loop: every prompt, every method, every repeat, every session, one record each. An interrupted run
is continued.

What differs between running a model, replaying recorded answers and forcing them upon a model is in an `Engine`:
`live.Live`, `replay.Replay` and `teacher_forced.TeacherForced`. `prepare.prepare` makes one from a configuration.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import BaseFileLock

from ngram_trie.bench.progress import Progress, warn_of_load
from ngram_trie.bench.records import (
    INPUTS,
    SUMS,
    Failure,
    ItemKey,
    PromptRecord,
    RecordKey,
    RecordWriter,
    RunManifest,
    differences,
    is_sealed,
)
from ngram_trie.bench.traces import Trace
from ngram_trie.decoding import GenerationResult
from ngram_trie.drafter import Drafter
from ngram_trie.prompt import Prompt
from ngram_trie.store.files import content_hash, one_writer


def by_key(items: Iterable[tuple[ItemKey, Any]]) -> dict[ItemKey, Any]:
    """The items by key, in their order.

    Raises:
        ValueError: a key that is there twice.
    """
    found: dict[ItemKey, Any] = {}
    for key, item in items:
        if key in found:
            raise ValueError(f"dataset {key[0]}: question id {key[1]!r}, turn {key[2]}, is there twice")
        found[key] = item
    return found


@dataclass
class Engine(ABC):
    """What is measured, and how answers come about.

    Attributes:
        manifest: of the run.
        model: the target's name in records and titles.
        methods: the methods by name.
        items: what every method answers, in order.
        datasets: their data sets, in the order of tables; one may have no items.
        repeats: how often each item is answered by each method, one answer soon after the other.
        sessions: how often all of that is done, one session after the other.
        places: of a shard, the items' places among those of the whole run, whose order its methods keep.
        notes: what readers of the tables must know, by name; the manifest gets them as they come.
    """

    manifest: RunManifest
    model: str
    methods: Mapping[str, Any]
    items: Mapping[ItemKey, Any]
    datasets: Sequence[str]
    repeats: int
    sessions: int = field(default=1, kw_only=True)
    places: Sequence[int] | None = field(default=None, kw_only=True)
    notes: dict[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def names(self) -> list[str]:
        """The methods that records are written for, in the order of tables."""
        return list(self.methods)

    def order(self, place: int, repeat: int, session: int = 0) -> list[str]:
        """The methods in the order in which they answer an item: rotated, so that none always runs first."""
        shift = (place + repeat + session) % len(self.names)
        return self.names[shift:] + self.names[:shift]

    @property
    def keys(self) -> list[RecordKey]:
        """The records of the complete run, in the order in which they are measured."""
        return [
            RecordKey(method, *item, repeat, session)
            for session in range(self.sessions)
            for place, item in zip(self.places or range(len(self.items)), self.items, strict=True)
            for repeat in range(self.repeats)
            for method in self.order(place, repeat, session)
        ]

    @abstractmethod
    def answers(self, keys: Sequence[RecordKey], known: Mapping[RecordKey, PromptRecord]) -> Iterator[PromptRecord]:
        """The records of `keys` that are not `known`. Each is known before the next is asked for. Known ones may be
        yielded again.
        """

    def scores(self, records: Iterable[PromptRecord]) -> pd.DataFrame | None:
        """The quality of the answers (`quality.score`), where there is something to compare them with."""
        return None

    def traces(self, records: Mapping[RecordKey, PromptRecord]) -> list[Trace]:
        """The answers to be replayed elsewhere, where they are the model's own."""
        return []

    def record(self, key: RecordKey, prompt: Prompt, result: GenerationResult | Failure, **fields: Any) -> PromptRecord:
        """The record of one result; `fields` as in `PromptRecord.of`."""
        fields = {"model": self.model, "kind": "drafter", **fields}
        about = {"method": key.method, "repeat": key.repeat, "session": key.session}
        return PromptRecord.of(prompt, result, run=self.manifest.run, **about, **fields)


@dataclass
class Interleaved(Engine):
    """An engine that answers one prompt after the other, all methods in turn.

    A session begins as a run in a new process would: drafters that remember know nothing, the target is loaded and
    warmed up. What differs between sessions is then the machine at another time.

    A drafter that remembers answers is one of several (`drafter`), so that none meets a question that it has answered.

    Attributes:
        pause: seconds to wait before each session but the first.
        unload: throws loaded weights away, so that the next session reads them again.
    """

    pause: float = field(default=0.0, kw_only=True)
    unload: Callable[[], None] = field(default=lambda: None, kw_only=True)

    def answers(self, keys: Sequence[RecordKey], known: Mapping[RecordKey, PromptRecord]) -> Iterator[PromptRecord]:
        kept = (name for name, method in self.methods.items() if self.sessions > 1 or method.traits.remembers)
        self._fresh = copy.deepcopy({name: self.methods[name] for name in kept})
        self._remembering: dict[tuple[str, int, str], Drafter] = {}
        for session, group in itertools.groupby(keys, lambda key: key.session):
            part = list(group)
            if all(key in known for key in part):
                continue
            if session:
                self.let_go()
                # methods that were bound to the target hold it, too
                self.methods, self._remembering = copy.deepcopy(self._fresh), {}
                self.unload()
                if not any(key in known for key in part):  # an interrupted session has waited already
                    time.sleep(self.pause)
            self.warm_up()
            for key in part:
                if key not in known:
                    yield self.answer(key, known)
                elif not known[key].failure:
                    self.remind(key, known)

    def drafter(self, key: RecordKey) -> Drafter:
        """The method's drafter. One that remembers answers begins anew for each repeat and each kind of noise: in no
        other way would it meet each question once, and never with the answer in its tables.
        """
        if not self.methods[key.method].traits.remembers:
            return self.methods[key.method]
        life = key.method, key.repeat, key.noise_kind
        if life not in self._remembering:
            self._remembering[life] = copy.deepcopy(self._fresh[key.method])
        return self._remembering[life]

    @abstractmethod
    def warm_up(self) -> None:
        """Load the weights, and pay for compilation and caches."""

    @abstractmethod
    def let_go(self) -> None:
        """Forget what `warm_up` has loaded: the next session needs its memory."""

    @abstractmethod
    def answer(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> PromptRecord:
        """One record: an answer, or why there is none."""

    @abstractmethod
    def remind(self, key: RecordKey, known: Mapping[RecordKey, PromptRecord]) -> None:
        """Tell a drafter that remembers answers of one that was recorded before an interruption."""


def measure(engine: Engine, writer: RecordWriter, interim: Callable[[], None] | None = None) -> None:
    """Measure what `writer` has no record of. The manifest beside the records gets the engine's notes, and of several
    sessions when each began.

    Args:
        interim: shows what is there so far; called between prompts, every `INTERIM_S` seconds.
    """
    keys = engine.keys
    left = Counter(key.method for key in keys if key not in writer)
    if not left:
        return
    manifest, begun, noted = writer.path.with_name("manifest.json"), set[int](), dict[str, str]()
    is_timed = isinstance(engine, Interleaved)
    if is_timed:
        warn_of_load(engine.manifest.num_threads)
    item: ItemKey | None = None
    shown = time.monotonic()
    with Progress(len(keys), left, len(engine.names), is_timed) as progress:
        for record in engine.answers(keys, writer.records):
            if record.key not in writer:
                if engine.sessions > 1 and record.session not in begun:
                    begun.add(record.session)
                    _note(manifest, f"session {record.session}", datetime.now(UTC).isoformat(timespec="seconds"))
                if interim and item not in (None, record.key.item) and time.monotonic() - shown > INTERIM_S:
                    interim()
                    shown = time.monotonic()
                item = record.key.item
                writer.write(record)
                progress.add(record)
            for name in engine.notes.keys() - noted.keys():
                noted[name] = engine.notes[name]
                _note(manifest, name, noted[name])


def _note(path: Path, name: str, text: str) -> None:
    """Add to the manifest what is to be known of the run, behind what stands there under this name."""
    if path.exists():
        found = RunManifest.read(path)
        texts = (
            dict.fromkeys([*found.environment.get(name, "").split(", "), text])
            if name.startswith("session")
            else [text]
        )
        replace(found, environment={**found.environment, name: ", ".join(filter(None, texts))}).write(path)


#: Seconds between tables of what is there so far.
INTERIM_S = 1200.0
#: What runs write into their folders; a folder without a manifest that holds such a file is somebody else's.
WRITTEN = frozenset({".json", ".jsonl", ".csv", ".md", ".png", ".html"})


def open_run(folder: Path, engine: Engine, force: bool = False) -> RecordWriter:
    """The writer of a run's records, which holds those that the same run wrote before an interruption, and the folder's
    lock.

    Args:
        force: throw away what the folder holds of a run.

    Raises:
        FileExistsError: the folder holds another run or other files, or an incomplete run that was begun at another
            commit or on another machine: what is not alike is never mixed. Or another process writes there.
        ValueError: the run was finished and its files were changed since, or its manifest was; the message names one.
    """
    with contextlib.ExitStack() as failing:
        lock = one_writer(folder)
        failing.callback(lock.release)
        writer = _open(folder, engine, force, lock)
        failing.pop_all()
    return writer


def _open(folder: Path, engine: Engine, force: bool, lock: BaseFileLock) -> RecordWriter:
    keys, path, records = engine.keys, folder / "manifest.json", folder / "records.jsonl"
    manifest = replace(engine.manifest, num_records=len(keys))
    instead = "give another output=FOLDER, or force=true to replace it"
    if force:
        for name in (SUMS, *INPUTS):
            (folder / name).unlink(missing_ok=True)
    elif not is_sealed(folder) and not path.exists():
        others = sorted(file.name for file in folder.iterdir() if file.suffix in WRITTEN and file.stat().st_size)
        if others:
            raise FileExistsError(f"{folder} holds {others[0]}, and no manifest.json that says of which run: {instead}")
    is_empty = not (records.exists() and records.stat().st_size) and not is_sealed(folder)
    if not force and is_sealed(folder) and not records.exists():  # a writer would begin anew
        raise FileExistsError(f"{folder} holds a finished run whose records are compressed: {instead}")
    if not path.exists() or is_empty:  # a run that has answered nothing is in nobody's way
        manifest.write(path)
        return RecordWriter(records, manifest.run, lock=lock)
    found = RunManifest.read(path)
    changed = differences(found, manifest, "run", "commit", "device", "versions")
    other = FileExistsError(f"{folder} holds another run ({'; '.join(changed.values())}): {instead}")
    if "run" in changed:
        raise other
    if content_hash(found.config) != content_hash(manifest.config):
        raise ValueError(f"{path}: changed: its config is not that of run {found.run}; {instead}")
    writer = RecordWriter(records, manifest.run, frozenset(keys), lock)
    if any(key not in writer for key in keys):
        if changed:
            raise other
        if manifest.dirty and not found.dirty:  # what is measured from here on is not the commit's
            replace(found, dirty=True).write(path)
    elif "commit" in changed:
        note = f"measured at commit {found.commit}, and this is {manifest.commit}: force=true measures it again"
        print(f"warning: {folder}: {note}", file=sys.stderr)
    return writer
