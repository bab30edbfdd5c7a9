"""One run in several processes or jobs: its questions are dealt out, and what they measured is joined.

A run with `shard=1/4` measures the second quarter of its questions into `FOLDER/shard-1-of-4`. Once all four are there,
`join` writes into FOLDER what one process would have written there: the same records in the same order. Whoever starts
the jobs, starts them again and places them on machines is a scheduler: SLURM, torchrun, a launcher of Hydra.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ngram_trie.bench import quality
from ngram_trie.bench.measure import Engine
from ngram_trie.bench.records import (
    INPUTS,
    RECORDS,
    SUMS,
    PromptRecord,
    RunManifest,
    Shard,
    differences,
    is_sealed,
    read_records,
    records_file,
    seal,
)
from ngram_trie.bench.traces import read_traces
from ngram_trie.methods import ConfigError
from ngram_trie.store.files import one_writer, write_atomically

#: Where `auto` finds the number of a job and how many there are: of an array, and of the processes in each of its jobs.
ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT")
PROCESS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
FOLDERS = "shard-*-of-*"


def parse(given: str | None, environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Number and count of `shard=1/4`, or what a scheduler says with `shard=auto`; None where nothing is given.

    Raises:
        ConfigError: no such shard, or no scheduler.
    """
    if not given:
        return None
    if given != "auto":
        number, of = map(int, given.split("/"))
    else:
        process = next((names for names in PROCESS if all(name in environ for name in names)), None)
        levels = [names for names in (ARRAY, process) if names and all(name in environ for name in names)]
        if not levels:
            raise ConfigError(
                "shard=auto: neither SLURM_ARRAY_TASK_ID nor RANK nor LOCAL_RANK is set with its count: submit an "
                "array (sbatch --array=0-3), start it by torchrun, or say which, as in shard=0/4"
            )
        number, of = 0, 1
        for index, count in levels:
            number, of = number * int(environ[count]) + int(environ[index]), of * int(environ[count])
    if not number < of:
        raise ConfigError(
            f"shard={number}/{of}: shards are counted from 0 to {of - 1}. Of an array that is submitted again in "
            "part, say which, as in shard=2/4"
        )
    return number, of


def folder(run: Path, number: int, of: int) -> Path:
    """Where a shard of a run goes.

    Raises:
        ConfigError: the run was dealt into another number of shards.
    """
    if others := [path.name for path in sorted(run.glob(FOLDERS)) if not path.name.endswith(f"-of-{of}")]:
        raise ConfigError(
            f"shard={number}/{of}: {run} holds {others[0]}: give the same number, or another output=FOLDER"
        )
    return run / f"shard-{number}-of-{of}"


def deal(engine: Engine, number: int, of: int) -> Engine:
    """The engine with every `of`-th question, from question `number` on. A question's turns, its noisy copies and all
    its methods stay together, so that every ratio is one of answers that were measured side by side.

    Raises:
        ConfigError: there are fewer questions.
    """
    questions: dict[tuple[str, ...], int] = {}
    numbers = [questions.setdefault((item.dataset, item.question_id), len(questions)) for item in engine.items]
    mine = [(place, item) for place, item in enumerate(engine.items) if numbers[place] % of == number]
    if not mine:
        raise ConfigError(f"shard={number}/{of}: no question is left for it: the run has {len(questions)}")
    environment = dict(engine.manifest.environment)
    if remembering := [name for name, method in engine.methods.items() if method.traits.remembers]:
        environment["per shard"] = f"{', '.join(remembering)} remember the answers of one shard of {of} alone"
    return replace(
        engine,
        items={item: engine.items[item] for _, item in mine},
        places=[place for place, _ in mine],
        manifest=replace(engine.manifest, shard=Shard(number, of, mine), environment=environment),
    )


def found(run: Path) -> list[Path]:
    """The folders of a run's shards."""
    return sorted(path for path in run.glob(FOLDERS) if (path / "manifest.json").exists())


def join(run: Path) -> None:
    """Write the files of the whole run into its folder, from the folders of its shards.

    Raises:
        ValueError: shards of different runs, code or machines; or answers are missing. The message names them.
    """
    paths = found(run)
    manifests = [RunManifest.read(path / "manifest.json") for path in paths]
    first = manifests[0]
    for path, manifest in zip(paths, manifests, strict=True):
        names = ("config", "model", "prompts", "commit", "dirty", "device", "versions")
        if changed := differences(first, manifest, *names):
            raise ValueError(f"{path.name} cannot be joined with {paths[0].name}: {'; '.join(changed.values())}")
    shards = [manifest.shard for manifest in manifests if manifest.shard]
    if len(shards) < len(paths) or len(counts := sorted({shard.of for shard in shards})) > 1:
        raise ValueError(f"{run}: not the shards of one run: {', '.join(path.name for path in paths)}")
    by_number = {shard.number: path for shard, path in zip(shards, paths, strict=True)}
    parts = {path: read_records(file) if (file := records_file(path)).exists() else [] for path in paths}
    missing = [f"shard-{number}-of-{counts[0]} is not there" for number in range(counts[0]) if number not in by_number]
    for path, manifest in zip(paths, manifests, strict=True):
        if not is_sealed(path):
            missing.append(f"{path.name} has {len(parts[path])} of {manifest.num_records} answers")
    if missing:
        raise ValueError(f"{run}: not joined: {'; '.join(missing)}. The command that began a shard goes on with it")
    if (run / "manifest.json").exists() and "shards" not in RunManifest.read(run / "manifest.json").environment:
        raise ValueError(f"{run}: not joined: it holds a run that was measured in one piece; move that, or the shards")
    with one_writer(run):
        (run / SUMS).unlink(missing_ok=True)
        for name in INPUTS:
            (run / name).unlink(missing_ok=True)
        notes = {name: text for manifest in reversed(manifests) for name, text in manifest.environment.items()}
        whole = replace(first, environment=notes)
        _write(run, parts, whole, {item: place for shard in shards for place, item in shard.items})


def _write(
    run: Path, parts: Mapping[Path, list[PromptRecord]], manifest: RunManifest, places: Mapping[tuple[object, ...], int]
) -> None:
    """The files of `INPUTS`, with their digests."""
    # a replay answers method by method, whatever is timed question by question
    methods: Mapping[str, int] = {}
    if manifest.config["engine"]["name"] == "replay":
        order = dict.fromkeys(record.method for records in parts.values() for record in records)
        methods = {name: number for number, name in enumerate(order)}

    def at(record: PromptRecord) -> tuple[int, ...]:
        return methods.get(record.method, 0), record.session, places[record.key.item], record.repeat

    records = sorted((record for part in parts.values() for record in part), key=at)
    write_atomically(run / RECORDS, "".join(f"{record.to_json()}\n" for record in records))
    paths = list(parts)
    if (paths[0] / quality.FILE).exists():
        scored = [pair for path, part in parts.items() for pair in _scored(path, part)]
        scored.sort(key=lambda pair: at(pair[0]))
        quality.write(pd.DataFrame([row for _, row in scored]), run / quality.FILE)
    files = [path / "traces.jsonl" for path in paths]  # a shard without an answer of vanilla has none
    if any(file.exists() for file in files):
        lines: dict[int, str] = {}
        for file in filter(Path.exists, files):
            traces = zip(read_traces(file), file.read_text(encoding="utf-8").splitlines(keepends=True), strict=True)
            lines |= {places[trace.key]: line for trace, line in traces}
        write_atomically(run / "traces.jsonl", "".join(line for _, line in sorted(lines.items())))
    if (paths[0] / "curve.json").exists():
        shutil.copyfile(paths[0] / "curve.json", run / "curve.json")
    environment = dict(manifest.environment) | {"shards": str(len(paths))}
    replace(manifest, shard=None, num_records=len(records), environment=environment).write(run / "manifest.json")
    seal(run)


def _scored(path: Path, records: list[PromptRecord]) -> list[tuple[PromptRecord, dict[str, object]]]:
    """The scored records of a shard with their scores, which stand in the same order (`quality.score`)."""
    rows = quality.read(path / quality.FILE).to_dict("records")
    return list(zip((record for record in records if quality.is_scored(record)), rows, strict=True))
