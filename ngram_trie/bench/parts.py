"""One table from several runs: what needs least is measured first, and joined with what comes later.

The parts are runs of one configuration without some of its methods or data sets. Every part has its own vanilla, which
took turns with its methods, and every ratio is one of answers that were measured side by side: where methods are
measured apart from the others, their answers and those of their vanilla are of sessions of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ngram_trie.bench import quality
from ngram_trie.bench.records import (
    INPUTS,
    RECORDS,
    SUMS,
    PromptRecord,
    RunManifest,
    is_sealed,
    read_records,
    records_file,
    seal,
)
from ngram_trie.bench.traces import read_traces
from ngram_trie.store.files import content_hash, one_writer, write_atomically

#: Under which name a joined table's manifest says what it is made of.
NOTE = "parts"


@dataclass(frozen=True)
class Part:
    """A run that is joined with others.

    Attributes:
        folder: of the run.
        session: which number its first session has in the table.
    """

    folder: Path
    session: int = 0

    @property
    def is_begun(self) -> bool:
        """Whether it has answers."""
        return (self.folder / "manifest.json").exists() and records_file(self.folder).exists()


def check(folder: Path) -> None:
    """Raises:
    ValueError: the folder holds a run that was measured in one piece, which parts would replace.
    """
    manifest, parts = folder / "manifest.json", (folder / "parts").glob("*/manifest.json")
    # a table of before the note was made has parts
    if manifest.exists() and NOTE not in RunManifest.read(manifest).environment and not any(parts):
        raise ValueError(f"{folder}: it holds a run that was measured in one piece: move it, or give another folder")


def join(folder: Path, parts: Sequence[Part], config: Mapping[str, Any], notes: Mapping[str, str], whole: bool) -> int:
    """Write the files of a run into `folder` from those of its parts that have answers; returns how many answers.

    Args:
        config: the resolved configuration of all parts together.
        notes: what readers of the table must know, beside the parts' own notes.
        whole: whether no part is to come.

    Raises:
        ValueError: a file of a finished part was changed, or the folder holds a run of its own.
    """
    check(folder)
    begun = [part for part in parts if part.is_begun]
    manifests = [RunManifest.read(part.folder / "manifest.json") for part in begun]
    run = content_hash([manifest.run for manifest in manifests])
    records: dict[Any, PromptRecord] = {}
    for part in begun:
        for record in read_records(records_file(part.folder)):
            moved = replace(record, run=run, session=record.session + part.session)
            records[moved.key] = moved
    notes = dict(notes)
    for manifest in manifests:
        notes |= {name: what for name, what in manifest.environment.items() if not name.startswith("session ")}
    notes[NOTE] = _measured_on(begun, manifests)
    is_done = whole and all(is_sealed(part.folder) for part in begun)
    with one_writer(folder):
        for name in (SUMS, *INPUTS):
            (folder / name).unlink(missing_ok=True)
        write_atomically(folder / RECORDS, "".join(f"{record.to_json()}\n" for record in records.values()))
        _join_scores(folder, begun)
        _join_traces(folder, begun)
        replace(
            manifests[0],
            run=run,
            config=config,
            prompts=content_hash([manifest.prompts for manifest in manifests]),
            num_records=sum(manifest.num_records or 0 for manifest in manifests),
            dirty=any(manifest.dirty for manifest in manifests) or manifests[0].dirty,
            environment=notes,
        ).write(folder / "manifest.json")
        if is_done:
            seal(folder)
    return len(records)


def _measured_on(parts: Sequence[Part], manifests: Sequence[RunManifest]) -> str:
    """What the table is made of; where it is not one machine and one state of the code, those of each part."""
    places = {
        part.folder.name: f"{manifest.device}, {'changed ' * bool(manifest.dirty)}code {(manifest.commit or '?')[:7]}"
        for part, manifest in zip(parts, manifests, strict=True)
    }
    if len(set(places.values())) == 1:
        return ", ".join(places)
    return "; ".join(f"{name} on {place}" for name, place in places.items())


def _join_scores(folder: Path, parts: Sequence[Part]) -> None:
    """The quality of the answers; of one that several parts gave, once."""
    files = [part.folder / quality.FILE for part in parts]
    scores = [quality.read(file) for file in files if file.exists()]
    if scores:
        quality.write(pd.concat(scores).drop_duplicates(list(quality.KEYS)), folder / quality.FILE)


def _join_traces(folder: Path, parts: Sequence[Part]) -> None:
    """Vanilla's answers, each once."""
    lines: dict[Any, str] = {}
    for file in (part.folder / "traces.jsonl" for part in parts):
        if file.exists():
            rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
            lines = {trace.key: row for trace, row in zip(read_traces(file), rows, strict=True)} | lines
    if lines:
        write_atomically(folder / "traces.jsonl", "".join(lines.values()))
