"""How an index's time, memory and disk grow with the corpus: measured over random unit vectors, and by arithmetic.

Imports neither torch nor pandas up here: the measured processes import this module, and their memory is measured.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import faiss
import numpy as np

from ngram_trie.data.retrieval import index as indexing
from ngram_trie.data.retrieval.estimate import Estimate, duration, size
from ngram_trie.data.retrieval.index import IndexSettings
from ngram_trie.data.retrieval.vectors import BLOCK, VectorStore

TARGET = 21_015_324
QUERIES, FLAT_QUERIES, TOP, NPROBE = 1_000, 100, 100, 16
#: Passages a second that the encoder is assumed to do in the arithmetic: what a reader replaces by build_index's probe.
ASSUMED_RATE = 1_000


@dataclass(frozen=True)
class Scale:
    """What is measured: vectors of `dim`, `shard_size` a file, and the index over them; `scratch` is emptied."""

    scratch: Path
    dim: int
    shard_size: int
    threads: int
    settings: IndexSettings


def unit_vectors(rng: np.random.Generator, num_rows: int, dim: int) -> np.ndarray:
    vectors = rng.standard_normal((num_rows, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def generate(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    """In place of an encoder: the shards of the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    store.folder.mkdir(exist_ok=True)
    for shard in range(store.num_shards):
        rng = np.random.default_rng([settings.seed, shard])
        rows = store.rows(shard)
        parts = (min(BLOCK, rows.stop - start) for start in range(rows.start, rows.stop, BLOCK))
        store.write(shard, (unit_vectors(rng, part, store.dim) for part in parts))


def train(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    faiss.write_index(indexing.train(store, settings), str(folder / "trained.faiss"))


def add(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    index = indexing.read(folder / "trained.faiss")
    assigner = indexing.on_gpus(index.quantizer)
    for shard in range(store.num_shards):
        indexing.add(index, assigner, store, shard, folder / f"part-{shard:05d}.faiss")


def merge(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    indexing.merge(folder, sorted(folder.glob("part-*.faiss")), store.num_rows)


def search(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    queries = unit_vectors(np.random.default_rng(1), QUERIES, store.dim)
    indexing.IvfPq(folder, min(NPROBE, settings.nlist)).search(queries, TOP)


def search_flat(folder: Path, store: VectorStore, settings: IndexSettings) -> None:
    queries = unit_vectors(np.random.default_rng(1), FLAT_QUERIES, store.dim)
    indexing.Flat(store).search(queries, TOP)


PHASES: dict[str, Callable[[Path, VectorStore, IndexSettings], None]] = {
    "generate": generate,
    "train": train,
    "add": add,
    "merge": merge,
    f"search {QUERIES} questions": search,
    f"search {FLAT_QUERIES} questions, flat": search_flat,
}


def peak_memory() -> int:
    """Most bytes that this process had in memory since it began (Linux). `ru_maxrss` would count its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measured(
    phase: str, folder: Path, store: VectorStore, settings: IndexSettings, threads: int
) -> tuple[float, float, int]:
    """Seconds, processor seconds and peak memory of one phase; runs in a process of its own."""
    faiss.omp_set_num_threads(threads)
    started, used = perf_counter(), process_time()
    PHASES[phase](folder, store, settings)
    return perf_counter() - started, process_time() - used, peak_memory()


def rows_of(num_rows: int, scale: Scale) -> list[dict[str, Any]]:
    """One line for each phase over `num_rows` vectors."""
    folder = scale.scratch / f"bench-{num_rows}"
    shutil.rmtree(folder, ignore_errors=True)
    store = VectorStore(folder / "vectors", num_rows, scale.dim, scale.shard_size)
    expected = Estimate(num_rows, scale.dim, scale.shard_size, scale.settings)
    lines = []
    for phase in PHASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            about = (phase, folder, store, scale.settings, scale.threads)
            seconds, cpu_seconds, memory = pool.apply(measured, about)
        disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(
            f"{num_rows} {phase}: {duration(seconds)}, CPU {cpu_seconds:.0f}; {size(memory)} memory, {size(disk)} disk",
            flush=True,
        )
        lines.append(line(num_rows, "measured", phase, seconds, cpu_seconds, memory, disk))
    print(f"{num_rows} estimated: {size(expected.memory)} memory, {size(expected.disk)} disk", flush=True)
    shutil.rmtree(folder)
    return lines


def line(
    num_rows: int, kind: str, phase: str, seconds: float, cpu_seconds: float, memory: int, disk: int
) -> dict[str, Any]:
    columns = ("passages", "kind", "phase", "seconds", "cpu_seconds", "peak_memory_mb", "disk_mb")
    sizes = round(memory / 1e6), round(disk / 1e6)
    return dict(zip(columns, (num_rows, kind, phase, round(seconds, 2), round(cpu_seconds, 2), *sizes), strict=True))


def arithmetic(largest: list[dict[str, Any]], scale: Scale) -> list[Any]:
    """The same lines for TARGET passages: bytes from `Estimate`, seconds in proportion to the largest measured corpus
    (for the clock's, as if one thread had a core to itself: its processor seconds over the number of threads).
    Training has the same sample and so takes the same time, if the measured one was of full size.
    """
    expected = Estimate(TARGET, scale.dim, scale.shard_size, scale.settings)
    parts = expected.vectors + expected.trained + expected.parts
    final = expected.vectors + expected.trained + expected.index
    memory = {"train": expected.training_memory, "add": expected.adding_memory, "merge": expected.merging_memory}
    disk = {"train": expected.vectors + expected.trained, "add": parts, "merge": expected.disk}
    seconds = {row["phase"]: row["cpu_seconds"] for row in largest}
    growth = TARGET / largest[0]["passages"]
    sample_growth = scale.settings.train_size / min(scale.settings.train_size, largest[0]["passages"])
    lines = [line(TARGET, "arithmetic", f"encode at {ASSUMED_RATE}/s", TARGET / ASSUMED_RATE, 0, 0, expected.vectors)]
    for phase in PHASES:
        if phase != "generate":
            factor = sample_growth if phase == "train" else growth
            searching = expected.index + expected.table if "flat" not in phase else expected.adding_memory
            taken = seconds[phase] * factor
            needed = memory.get(phase, searching), disk.get(phase, final)
            lines.append(line(TARGET, "arithmetic", phase, taken / scale.threads, taken, *needed))
    return lines


def measure(table: Path, sizes: Sequence[int], known: list[dict[str, Any]], scale: Scale) -> Any:
    """Measure the sizes of which `known` has no line, and write all lines to `table` after each; returns the frame."""
    import pandas as pd

    lines = list(known)
    # for the processes
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(scale.threads)
    for num_rows in sorted(set(sizes) - {line["passages"] for line in lines}):
        lines += rows_of(num_rows, scale)
        pd.DataFrame(lines).to_csv(table, index=False)
    largest = [line for line in lines if line["passages"] == max(sizes)]
    frame = pd.DataFrame([*lines, *arithmetic(largest, scale)])
    frame.to_csv(table, index=False)
    return frame
