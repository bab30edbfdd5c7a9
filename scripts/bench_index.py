"""Measure how an index's time, memory and disk grow with the corpus (make bench-index).

  python -m scripts.bench_index OUTPUT --scratch FOLDER --rows 100000 1000000 --threads 2

Random unit vectors stand for a corpus (so nothing is said about recall here: see scripts.retrieve). Each phase runs in
a process of its own, whose peak resident memory is the phase's; it includes pages of mapped files. Processor seconds,
summed over threads, stand beside the clock's, which other work on the machine stretches. Writes scaling.csv and
scaling_manifest.json to OUTPUT: the measured sizes, and by arithmetic the 21,015,324 passages of psgs_w100. Sizes that
OUTPUT has from the same command are not measured again.
The index is that of configs/retrieval.yaml; --nlist, --m and --train-size change it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import faiss
import numpy as np

from ngram_trie.cli.shell import Parser, one_line_errors, positive

# No torch up here: the measured processes import this module, and its memory is not theirs.
from ngram_trie.data.retrieval import index as indexing
from ngram_trie.data.retrieval.estimate import Estimate, duration, size
from ngram_trie.data.retrieval.index import IndexSettings
from ngram_trie.data.retrieval.vectors import BLOCK, VectorStore

TARGET = 21_015_324
QUERIES, FLAT_QUERIES, TOP, NPROBE = 1_000, 100, 100, 16
#: Passages a second that the encoder is assumed to do in the arithmetic: what a reader replaces by build_index's probe.
ASSUMED_RATE = 1_000


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


def measured(arguments: tuple[str, Path, VectorStore, IndexSettings, int]) -> tuple[float, float, int]:
    """Seconds, processor seconds and peak memory of one phase; runs in a process of its own."""
    phase, folder, store, settings, threads = arguments
    faiss.omp_set_num_threads(threads)
    started, used = perf_counter(), process_time()
    PHASES[phase](folder, store, settings)
    return perf_counter() - started, process_time() - used, peak_memory()


def rows_of(num_rows: int, options: argparse.Namespace, settings: IndexSettings) -> list[dict[str, Any]]:
    """One line for each phase over `num_rows` vectors."""
    folder = options.scratch / f"bench-{num_rows}"
    shutil.rmtree(folder, ignore_errors=True)
    store = VectorStore(folder / "vectors", num_rows, options.dim, options.shard_size)
    expected = Estimate(num_rows, options.dim, options.shard_size, settings)
    lines = []
    for phase in PHASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, cpu_seconds, memory = pool.apply(measured, ((phase, folder, store, settings, options.threads),))
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
    return {
        "passages": num_rows,
        "kind": kind,
        "phase": phase,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_memory_mb": round(memory / 1e6),
        "disk_mb": round(disk / 1e6),
    }


def arithmetic(largest: list[dict[str, Any]], options: argparse.Namespace, settings: IndexSettings) -> list[Any]:
    """The same lines for TARGET passages: bytes from `Estimate`, seconds in proportion to the largest measured corpus
    (for the clock's, as if one thread had a core to itself: its processor seconds over the number of threads).
    Training has the same sample and so takes the same time, if the measured one was of full size.
    """
    expected = Estimate(TARGET, options.dim, options.shard_size, settings)
    parts = expected.vectors + expected.trained + expected.parts
    final = expected.vectors + expected.trained + expected.index
    memory = {"train": expected.training_memory, "add": expected.adding_memory, "merge": expected.merging_memory}
    disk = {"train": expected.vectors + expected.trained, "add": parts, "merge": expected.disk}
    seconds = {row["phase"]: row["cpu_seconds"] for row in largest}
    growth = TARGET / largest[0]["passages"]
    sample_growth = settings.train_size / min(settings.train_size, largest[0]["passages"])
    lines = [line(TARGET, "arithmetic", f"encode at {ASSUMED_RATE}/s", TARGET / ASSUMED_RATE, 0, 0, expected.vectors)]
    for phase in PHASES:
        if phase != "generate":
            factor = sample_growth if phase == "train" else growth
            searching = expected.index + expected.table if "flat" not in phase else expected.adding_memory
            taken = seconds[phase] * factor
            needed = memory.get(phase, searching), disk.get(phase, final)
            lines.append(line(TARGET, "arithmetic", phase, taken / options.threads, taken, *needed))
    return lines


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = Parser(__doc__)
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="folder for the table and its manifest")
    parser.add_argument("--scratch", type=Path, required=True, metavar="FOLDER", help="for vectors and index; emptied")
    parser.add_argument(
        "--rows", type=positive, nargs="+", default=[100_000, 1_000_000], metavar="N", help="sizes to measure"
    )
    parser.add_argument("--threads", type=positive, default=2, metavar="N", help="of the processor")
    parser.add_argument("--dim", type=positive, default=1024, metavar="N", help="of the vectors")
    parser.add_argument("--shard-size", type=positive, default=100_000, metavar="N", help="vectors a file")
    parser.add_argument("--nlist", type=positive, default=IndexSettings.nlist, metavar="N", help="lists of the index")
    parser.add_argument("--m", type=positive, default=IndexSettings.m, metavar="N", help="bytes a vector")
    parser.add_argument(
        "--train-size", type=positive, default=IndexSettings.train_size, metavar="N", help="vectors to train on"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)

    import pandas
    import torch

    from ngram_trie.engines.provenance import device_manifest
    from ngram_trie.files import content_hash
    from ngram_trie.records import RunManifest

    with one_line_errors():
        settings = IndexSettings(options.nlist, options.m, train_size=options.train_size)
        for num_rows in options.rows:
            settings.check(num_rows, options.dim)
        torch.set_num_threads(options.threads)
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)  # for the processes
        config = {name: value for name, value in vars(options).items() if name not in ("output", "scratch")}
        manifest = device_manifest(
            config, "random unit vectors", content_hash(config), torch.device("cpu"), {"faiss": faiss.__version__}
        )
        table, about = options.output / "scaling.csv", options.output / "scaling_manifest.json"
        lines: list[dict[str, Any]] = []
        if about.exists() and RunManifest.read(about).run == manifest.run:
            known = pandas.read_csv(table)
            lines = known[known.kind == "measured"].to_dict("records")
        else:
            options.output.mkdir(parents=True, exist_ok=True)
            manifest.write(about)
        for num_rows in sorted(set(options.rows) - {line["passages"] for line in lines}):
            lines += rows_of(num_rows, options, settings)
            pandas.DataFrame(lines).to_csv(table, index=False)
    largest = [line for line in lines if line["passages"] == max(options.rows)]
    frame = pandas.DataFrame([*lines, *arithmetic(largest, options, settings)])
    frame.to_csv(table, index=False)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
